// The parts of an iteration, each for STEPS_AT_ONCE steps of a block, in which every thread has VECTOR rows. All loads of
// a part come before its stores, so that they are in flight together.
#pragma once
#include "operator.cuh"
#include "vectors.cuh"

#if !STENCIL
constexpr int STAGED = WARP * UNROLL;
#endif

struct Rows {
  int begin, end;  // of the block
  __device__ __forceinline__ int row(int step) const {
    return begin + (step * THREADS + static_cast<int>(threadIdx.x)) * VECTOR;
  }
  // A row that there is: loads of rows beyond the last one are of that one.
  __device__ __forceinline__ int there(int i) const { return i < end ? i : end - VECTOR; }
};

struct Solver {
  Operator matrix;
  Rows rows;
  const real* __restrict__ inverse;
  real scale;
  real *x, *r, *q;
  real* kept;  // shared memory
  double* staged;  // products of a warp's elements of a matrix in CSR

  __device__ __forceinline__ bool is_kept(int i) const {
    return KEPT_ROWS > 0 && static_cast<unsigned>(i - rows.begin) < static_cast<unsigned>(KEPT_ROWS);
  }

  // Where x of a block's own row stands.
  __device__ __forceinline__ real* solution(int i) const {
    const int place = i - rows.begin;
    return place < KEPT_X ? kept + KEPT_ROWS + place : x + i;
  }

  // Where r of any row stands.
  __device__ __forceinline__ const real* residual(int i) const {
    return STENCIL && is_kept(i) ? kept + (i - rows.begin) : r + i;
  }

  __device__ __forceinline__ void set_residual(int i, const real (&to)[VECTOR]) const {
#if STENCIL
    const bool is_own = is_kept(i);
    if (is_own) store(kept + (i - rows.begin), to);
    if (!is_own || i - rows.begin < HALO || rows.end - VECTOR - i < HALO) store(r + i, to);
#else
    store(r + i, to);
#endif
  }

  // q of a block's own row of a matrix in CSR.
  __device__ __forceinline__ real* product(int i) const { return is_kept(i) ? kept + (i - rows.begin) : q + i; }

  // z = M r, or p = z + beta old.
  struct Direction {
    const Solver& solver;
    real beta;
    const real* old;
    __device__ __forceinline__ real preconditioned(int i, real residual_there) const {
#if STENCIL
      return solver.scale * residual_there;
#else
      return JACOBI ? solver.inverse[i] * residual_there : residual_there;
#endif
    }
    __device__ __forceinline__ real one(int i) const {
      return fma(beta, old[i], preconditioned(i, *solver.residual(i)));
    }
    __device__ __forceinline__ void several(int i, real (&to)[VECTOR]) const {
      real before[VECTOR];
      several(i, to, before);
    }
    __device__ __forceinline__ void several(int i, real (&to)[VECTOR], real (&before)[VECTOR]) const {
      real there[VECTOR];
      load(old + i, before);
      load(solver.residual(i), there);
#pragma unroll
      for (int v = 0; v < VECTOR; ++v) to[v] = fma(beta, before[v], preconditioned(i + v, there[v]));
    }
  };

  // Calls finish(row, (A v)[row and the next ones]) for the rows of STEPS_AT_ONCE steps.
  template <class Sum, class Vector, class Finish>
  __device__ __forceinline__ void products(int step, const Vector& vector, const Finish& finish) const {
#if STENCIL
    Sum sums[STEPS_AT_ONCE][VECTOR];
#pragma unroll
    for (int u = 0; u < STEPS_AT_ONCE; ++u) {
      const int i = rows.there(rows.row(step + u));
      Sum own[VECTOR];
      vector.several(i, own);
      matrix.rows(i, own, vector, sums[u]);
    }
#pragma unroll
    for (int u = 0; u < STEPS_AT_ONCE; ++u) {
      if (rows.row(step + u) < rows.end) finish(rows.row(step + u), sums[u]);
    }
#elif LANES == 1
    // The elements of a warp's rows are read beside each other and multiplied; each row then adds its own, in order.
    const int lane = threadIdx.x % WARP;
    Sum* const buffer = reinterpret_cast<Sum*>(staged + threadIdx.x / WARP * STAGED);
    for (int u = 0; u < STEPS_AT_ONCE; ++u) {
      const int i = rows.row(step + u);
      const row_index mine = matrix.starts[i < rows.end ? i : rows.end];
      const row_index next = matrix.starts[i < rows.end ? i + 1 : rows.end];
      const row_index last = of_lane(next, WARP - 1);
      Sum sums[VECTOR] = {0};
      for (row_index base = of_lane(mine, 0); base < last; base += STAGED) {
        Sum values[UNROLL];
        int columns[UNROLL];
#pragma unroll
        for (int e = 0; e < UNROLL; ++e) {
          const row_index at = base + e * WARP + lane;
          values[e] = at < last ? matrix.values[at] : static_cast<real>(0);
          columns[e] = at < last ? static_cast<int>(matrix.columns[at]) : 0;
        }
#pragma unroll
        for (int e = 0; e < UNROLL; ++e) values[e] *= vector.one(columns[e]);
#pragma unroll
        for (int e = 0; e < UNROLL; ++e) buffer[e * WARP + lane] = values[e];
        sync_warp();
        const row_index from = mine > base ? mine : base, to = next < base + STAGED ? next : base + STAGED;
        for (row_index at = from; at < to; ++at) sums[0] += buffer[at - base];
        sync_warp();
      }
      if (i < rows.end) finish(i, sums);
    }
#else
    const int lane = threadIdx.x % LANES, first = rows.begin + step * THREADS + static_cast<int>(threadIdx.x) / LANES;
    for (int turn = 0; turn < LANES * STEPS_AT_ONCE; ++turn) {
      const int i = first + turn * (THREADS / LANES);
      const Sum sums[VECTOR] = {matrix.template row<Sum>(i, lane, i < rows.end, vector)};
      if (lane == 0 && i < rows.end) finish(i, sums);
    }
#endif
  }

  // r = b - A x, without x where there is none; the old p is 0. Sums: r . r, r . z, b . b.
  __device__ __forceinline__ void begin(int step, bool has_guess, const real* b, real* old, Sums& sums) const {
    if (has_guess) {
      products<double>(step, Plain<double>{x}, [&](int i, const double (&product)[VECTOR]) {
        real left[VECTOR];
#pragma unroll
        for (int v = 0; v < VECTOR; ++v) left[v] = static_cast<real>(b[i + v] - product[v]);
        count(i, left, b, sums);
      });
    }
#pragma unroll
    for (int u = 0; u < STEPS_AT_ONCE; ++u) {
      const int i = rows.row(step + u);
      if (i < rows.end) {
        real right[VECTOR];
#pragma unroll
        for (int v = 0; v < VECTOR; ++v) {
          old[i + v] = 0;
          solution(i)[v] = has_guess ? x[i + v] : static_cast<real>(0);
          right[v] = b[i + v];
        }
        if (!has_guess) count(i, right, b, sums);
      }
    }
  }

  __device__ __forceinline__ void count(int i, const real (&there)[VECTOR], const real* b, Sums& sums) const {
    set_residual(i, there);
    add_squares(i, there, sums);
#pragma unroll
    for (int v = 0; v < VECTOR; ++v) sums.of[2] += static_cast<double>(b[i + v]) * b[i + v];
  }

  __device__ __forceinline__ void add_squares(int i, const real (&there)[VECTOR], Sums& sums) const {
#pragma unroll
    for (int v = 0; v < VECTOR; ++v) {
      sums.of[0] += static_cast<double>(there[v]) * there[v];
#if !STENCIL
      if (JACOBI) sums.of[1] += static_cast<double>(there[v]) * (inverse[i + v] * there[v]);
#endif
    }
  }

  // x += pending old, p = z + beta old, q = A p. Sum: p . q.
  __device__ __forceinline__ void advance(
      int step, real pending, real beta, const real* old, real* p, Sums& sums) const {
    const Direction direction{*this, beta, old};
    real next[STEPS_AT_ONCE][VECTOR], there[STEPS_AT_ONCE][VECTOR];
#if STENCIL
    real products_of[STEPS_AT_ONCE][VECTOR];
#endif
#pragma unroll
    for (int u = 0; u < STEPS_AT_ONCE; ++u) {
      const int i = rows.there(rows.row(step + u));
      real before[VECTOR];
      load(solution(i), there[u]);
      direction.several(i, next[u], before);
#pragma unroll
      for (int v = 0; v < VECTOR; ++v) there[u][v] = fma(pending, before[v], there[u][v]);
#if STENCIL
      matrix.rows(i, next[u], direction, products_of[u]);
#endif
    }
#pragma unroll
    for (int u = 0; u < STEPS_AT_ONCE; ++u) {
      const int i = rows.row(step + u);
      if (i < rows.end) {
        store(solution(i), there[u]);
        store(p + i, next[u]);
#if STENCIL
#pragma unroll
        for (int v = 0; v < VECTOR; ++v) sums.of[0] += static_cast<double>(next[u][v]) * products_of[u][v];
#endif
      }
    }
#if !STENCIL
    products<real>(step, direction, [&](int i, const real (&sum)[VECTOR]) {
      store(product(i), sum);
      sums.of[0] += static_cast<double>(direction.one(i)) * sum[0];
    });
#endif
  }

  // r -= alpha q. Sums: r . r, r . z.
  __device__ __forceinline__ void lessen(int step, real alpha, const real* p, Sums& sums) const {
    real there[STEPS_AT_ONCE][VECTOR];
#pragma unroll
    for (int u = 0; u < STEPS_AT_ONCE; ++u) {
      const int i = rows.there(rows.row(step + u));
      real products_of[VECTOR];
      load(residual(i), there[u]);
#if STENCIL
      const Plain<real> direction{p};
      real own[VECTOR];
      direction.several(i, own);
      matrix.rows(i, own, direction, products_of);
#else
      load(product(i), products_of);
#endif
#pragma unroll
      for (int v = 0; v < VECTOR; ++v) there[u][v] = fma(-alpha, products_of[v], there[u][v]);
    }
#pragma unroll
    for (int u = 0; u < STEPS_AT_ONCE; ++u) {
      const int i = rows.row(step + u);
      if (i < rows.end) {
        set_residual(i, there[u]);
        add_squares(i, there[u], sums);
      }
    }
  }

  // What the chip holds goes to memory, with the step of x that is pending.
  __device__ __forceinline__ void finish(int step, real pending, const real* p) const {
#pragma unroll
    for (int u = 0; u < STEPS_AT_ONCE; ++u) {
      const int i = rows.row(step + u);
      if (i < rows.end) {
#pragma unroll
        for (int v = 0; v < VECTOR; ++v) {
          x[i + v] = solution(i)[v] + (pending != 0 ? pending * p[i + v] : static_cast<real>(0));
          if (STENCIL && is_kept(i)) r[i + v] = residual(i)[v];
        }
      }
    }
  }
};
