// The matrix: a star of constant coefficients on a grid of NX x NY x NZ points (STENCIL), or rows in CSR. A vector that it
// is multiplied with gives one element, one(i), or VECTOR of them beside each other, several(i, to).
#pragma once

#if STENCIL
// Lines along x that a star reads: their offsets (z, y), the elements beside a point that it takes to the left and to the
// right, and the place of the leftmost coefficient; the others follow it. Points outside of the grid are zero.
__device__ static constexpr int LINES[NUM_LINES][5] = {LINE_LIST};

struct Operator {
  real coefficients[NUM_COEFFICIENTS];

  // sums[v] = row i + v of the matrix times a vector, whose elements of these rows are `own`. There are no branches: a
  // line outside reads the row's own points, times zero.
  template <class Sum, class Vector>
  __device__ __forceinline__ void rows(int i, const Sum (&own)[VECTOR], const Vector& vector, Sum (&sums)[VECTOR]) const {
    const int x = i % NX, y = i / NX % NY, z = i / (NX * NY);
#pragma unroll
    for (int v = 0; v < VECTOR; ++v) sums[v] = 0;
#pragma unroll
    for (int l = 0; l < NUM_LINES; ++l) {
      const int dz = LINES[l][0], dy = LINES[l][1], left = LINES[l][2], right = LINES[l][3], first = LINES[l][4];
      const bool inside = (dy == 0 || static_cast<unsigned>(y + dy) < static_cast<unsigned>(NY)) &&
                          (dz == 0 || static_cast<unsigned>(z + dz) < static_cast<unsigned>(NZ));
      const int begin = inside ? i + (dz * NY + dy) * NX : i;
      Sum line[VECTOR + 2 * REACH], several[VECTOR];
      if (dz == 0 && dy == 0) {
#pragma unroll
        for (int v = 0; v < VECTOR; ++v) line[REACH + v] = own[v];
      } else {
        vector.several(begin, several);
#pragma unroll
        for (int v = 0; v < VECTOR; ++v) line[REACH + v] = several[v];
      }
#pragma unroll
      for (int e = 1; e <= left; ++e) {
        const Sum there = vector.one(x >= e ? begin - e : begin);
        line[REACH - e] = x >= e ? there : static_cast<Sum>(0);
      }
#pragma unroll
      for (int e = 0; e < right; ++e) {
        const bool has = x + VECTOR + e < NX;
        const Sum there = vector.one(has ? begin + VECTOR + e : begin);
        line[REACH + VECTOR + e] = has ? there : static_cast<Sum>(0);
      }
#pragma unroll
      for (int d = -left; d <= right; ++d) {
        const real coefficient = inside ? coefficients[first + left + d] : static_cast<real>(0);
#pragma unroll
        for (int v = 0; v < VECTOR; ++v) sums[v] = fma(static_cast<Sum>(coefficient), line[REACH + v + d], sums[v]);
      }
    }
  }
};
#else
struct Operator {
  const row_index* __restrict__ starts;
  const column_index* __restrict__ columns;
  const real* __restrict__ values;

  // Row i of the matrix times a vector, by LANES threads of a warp, all of which get the sum.
  template <class Sum, class Vector>
  __device__ __forceinline__ Sum row(int i, int lane, bool exists, const Vector& vector) const {
    Sum sum = 0;
    if (exists) {
      const row_index end = starts[i + 1];
#pragma unroll UNROLL
      for (row_index e = starts[i] + lane; e < end; e += LANES) {
        sum += values[e] * vector.one(static_cast<int>(columns[e]));
      }
    }
#pragma unroll
    for (int distance = LANES / 2; distance > 0; distance /= 2) sum += of_next_lanes(sum, distance);
    return sum;
  }
};
#endif
