// The matrix: a star of constant coefficients on a grid of NX x NY x NZ points (STENCIL), or rows in CSR.
#pragma once

#if STENCIL
// Offsets (z, y, x) of the neighbours, without the centre; borders are zero.
__device__ static constexpr int OFFSETS[NUM_OFFSETS][3] = {OFFSET_LIST};

struct Operator {
  real centre;
  real others[NUM_OFFSETS];

  // The row of the matrix times a vector, in the type of its elements; `own` is the vector's element of the row.
  template <class Sum, class Vector>
  __device__ __forceinline__ Sum row(int i, Sum own, const Vector& value) const {
    const int x = i % NX, y = i / NX % NY, z = i / (NX * NY);
    Sum near[NUM_OFFSETS];
#pragma unroll
    for (int o = 0; o < NUM_OFFSETS; ++o) {
      const int dz = OFFSETS[o][0], dy = OFFSETS[o][1], dx = OFFSETS[o][2];
      const bool inside = (dx == 0 || static_cast<unsigned>(x + dx) < static_cast<unsigned>(NX)) &&
                          (dy == 0 || static_cast<unsigned>(y + dy) < static_cast<unsigned>(NY)) &&
                          (dz == 0 || static_cast<unsigned>(z + dz) < static_cast<unsigned>(NZ));
      // Without a branch: a point outside reads the row's own element instead.
      const Sum there = value(inside ? i + (dz * NY + dy) * NX + dx : i);
      near[o] = inside ? there : static_cast<Sum>(0);
    }
    Sum sum = centre * own;
#pragma unroll
    for (int o = 0; o < NUM_OFFSETS; ++o) sum += others[o] * near[o];
    return sum;
  }
};
#else
struct Operator {
  const row_index* __restrict__ starts;
  const column_index* __restrict__ columns;
  const real* __restrict__ values;

  // The same by LANES threads of a warp, all of which get the sum.
  template <class Vector>
  __device__ __forceinline__ auto row(int i, int lane, bool exists, const Vector& value) const {
    decltype(value(0)) sum = 0;
    if (exists) {
      const row_index end = starts[i + 1];
#pragma unroll UNROLL
      for (row_index e = starts[i] + lane; e < end; e += LANES) {
        sum += values[e] * value(static_cast<int>(columns[e]));
      }
    }
#pragma unroll
    for (int distance = LANES / 2; distance > 0; distance /= 2) sum += of_next_lanes(sum, distance);
    return sum;
  }
};
#endif
