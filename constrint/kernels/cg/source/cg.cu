// The method of conjugate gradients in one launch whose blocks are all resident and meet twice in an iteration.
//
// A block has consecutive rows. In the first half of an iteration it computes p = z + beta p of its rows, and of every
// neighbour or column that they read, from z and the old p; so nobody waits for p, which has two buffers. x follows one
// iteration later, when the old p is read anyway. In the second half r = r - alpha q, where q = A p is computed again
// from p (a star), or was stored (CSR). What fits stays on the chip: of a block's first rows r (a star) or q (CSR), and
// x, in shared memory.
#include "shape.cuh"
#include "grid.cuh"
#include "operator.cuh"

enum Status { RUNNING, CONVERGED, MOST_ITERATIONS, NOT_POSITIVE, NOT_FINITE, PRECONDITIONER };
#if STENCIL
#define SCALE scale_of_star
#else
#define SCALE 1.0
#endif
enum StateField { OF_RHO, OF_RHO_BEFORE, OF_SQUARE, OF_TRUE_SQUARE, OF_THRESHOLD, OF_ITERATIONS, OF_STATUS, OF_CURVATURE };

__device__ __forceinline__ bool is_finite(double x) { return x - x == 0.0; }

struct Rows {
  int begin, end;  // of the block
  __device__ __forceinline__ int row(int step) const { return begin + step * THREADS + static_cast<int>(threadIdx.x); }
  // A row that there is: loads of rows beyond the last one are of that one.
  __device__ __forceinline__ int there(int i) const { return i < end ? i : end - 1; }
};

struct Solver {
  Operator matrix;
  Rows rows;
  const real* __restrict__ inverse;
  real scale;
  real *x, *r, *q;
  real* kept;  // shared memory

  __device__ __forceinline__ bool is_kept(int i) const {
    return KEPT_ROWS > 0 && static_cast<unsigned>(i - rows.begin) < static_cast<unsigned>(KEPT_ROWS);
  }

  // x of a block's own row.
  __device__ __forceinline__ real* solution(int i) const {
    const int place = i - rows.begin;
    return place < KEPT_X ? kept + KEPT_ROWS + place : x + i;
  }

#if STENCIL
  __device__ __forceinline__ real residual(int i) const {
    const real* const from = is_kept(i) ? kept + (i - rows.begin) : r + i;
    return *from;
  }
  __device__ __forceinline__ void set_residual(int i, real to) const {
    const bool is_own = is_kept(i);
    if (is_own) kept[i - rows.begin] = to;
    if (!is_own || i - rows.begin < HALO || rows.end - 1 - i < HALO) r[i] = to;
  }
  __device__ __forceinline__ real preconditioned(int i) const { return scale * residual(i); }
#else
  __device__ __forceinline__ real residual(int i) const { return r[i]; }
  __device__ __forceinline__ void set_residual(int i, real to) const { r[i] = to; }
  __device__ __forceinline__ real preconditioned(int i) const { return JACOBI ? inverse[i] * r[i] : r[i]; }
  __device__ __forceinline__ real product(int i) const { return is_kept(i) ? kept[i - rows.begin] : q[i]; }
  __device__ __forceinline__ void set_product(int i, real to) const {
    if (is_kept(i)) {
      kept[i - rows.begin] = to;
    } else {
      q[i] = to;
    }
  }
#endif

  // Calls finish(place in the group, row, (A v)[row]) for every row of STEPS_AT_ONCE steps that are all loaded beforehand.
  template <class Vector, class Finish>
  __device__ __forceinline__ void products(int step, const Vector& value, const Finish& finish) const {
#if STENCIL
    decltype(value(0)) sums[STEPS_AT_ONCE];
#pragma unroll
    for (int u = 0; u < STEPS_AT_ONCE; ++u) {
      const int i = rows.there(rows.row(step + u));
      sums[u] = matrix.row(i, value(i), value);
    }
#pragma unroll
    for (int u = 0; u < STEPS_AT_ONCE; ++u) {
      if (rows.row(step + u) < rows.end) finish(u, rows.row(step + u), sums[u]);
    }
#else
    const int lane = threadIdx.x % LANES, first = rows.begin + step * THREADS + static_cast<int>(threadIdx.x) / LANES;
    for (int turn = 0; turn < LANES * STEPS_AT_ONCE; ++turn) {
      const int i = first + turn * (THREADS / LANES);
      const auto sum = matrix.row(i, lane, i < rows.end, value);
      if (lane == 0 && i < rows.end) finish(0, i, sum);
    }
#endif
  }

  // r = b - A x, without x where there is none; the old p is 0. Sums: r . r, r . z, b . b.
  __device__ __forceinline__ void begin(
      int step, bool has_guess, const real* b, real* old, Sums& sums) const {
    if (has_guess) {
      const real* const from = x;
      products(
          step, [&](int i) { return static_cast<double>(from[i]); },
          [&](int, int i, double sum) { count(i, static_cast<real>(b[i] - sum), b[i], sums); });
    }
#pragma unroll
    for (int u = 0; u < STEPS_AT_ONCE; ++u) {
      const int i = rows.row(step + u);
      if (i < rows.end) {
        old[i] = 0;
        if (has_guess) *solution(i) = x[i];
        if (!has_guess) {
          *solution(i) = 0;
          count(i, b[i], b[i], sums);
        }
      }
    }
  }

  __device__ __forceinline__ void count(int i, real residual_there, real right, Sums& sums) const {
    set_residual(i, residual_there);
    add_squares(i, residual_there, sums);
    sums.of[2] += static_cast<double>(right) * right;
  }

  __device__ __forceinline__ void add_squares(int i, real residual_there, Sums& sums) const {
    sums.of[0] += static_cast<double>(residual_there) * residual_there;
#if !STENCIL
    if (JACOBI) sums.of[1] += static_cast<double>(residual_there) * (inverse[i] * residual_there);
#endif
  }

  // x += pending old, p = z + beta old, q = A p. Sum: p . q.
  __device__ __forceinline__ void advance(
      int step, real pending, real beta, const real* old, real* p, Sums& sums) const {
    const auto direction = [&](int i) { return fma(beta, old[i], preconditioned(i)); };
    real next[STEPS_AT_ONCE], there[STEPS_AT_ONCE];
#pragma unroll
    for (int u = 0; u < STEPS_AT_ONCE; ++u) {
      const int i = rows.there(rows.row(step + u));
      const real before = old[i];
      next[u] = fma(beta, before, preconditioned(i));
      there[u] = *solution(i) + pending * before;
    }
#if STENCIL
    real products_of[STEPS_AT_ONCE];
#pragma unroll
    for (int u = 0; u < STEPS_AT_ONCE; ++u) {
      products_of[u] = matrix.row(rows.there(rows.row(step + u)), next[u], direction);
    }
#endif
#pragma unroll
    for (int u = 0; u < STEPS_AT_ONCE; ++u) {
      const int i = rows.row(step + u);
      if (i < rows.end) {
        *solution(i) = there[u];
        p[i] = next[u];
#if STENCIL
        sums.of[0] += static_cast<double>(next[u]) * products_of[u];
#endif
      }
    }
#if !STENCIL
    products(step, direction, [&](int, int i, real sum) {
      set_product(i, sum);
      sums.of[0] += static_cast<double>(direction(i)) * sum;
    });
#endif
  }

  // r -= alpha q. Sums: r . r, r . z.
  __device__ __forceinline__ void lessen(int step, real alpha, const real* p, Sums& sums) const {
    real there[STEPS_AT_ONCE];
#pragma unroll
    for (int u = 0; u < STEPS_AT_ONCE; ++u) {
      const int i = rows.there(rows.row(step + u));
#if STENCIL
      there[u] = residual(i) - alpha * matrix.row(i, p[i], [&](int j) { return p[j]; });
#else
      there[u] = residual(i) - alpha * product(i);
#endif
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
        x[i] = *solution(i) + (pending != 0 ? pending * p[i] : static_cast<real>(0));
        if (is_kept(i)) r[i] = residual(i);
      }
    }
  }
};

// Calls body(step) for the steps of a block, STEPS_AT_ONCE of them at a time.
template <class Body>
__device__ __forceinline__ void each(int steps, const Body& body) {
#pragma unroll 1
  for (int step = 0; step < steps; step += STEPS_AT_ONCE) body(step);
}

// x is the guess where `has_guess`, else written. p has two buffers of n. history[i] is r . r after
// first + i iterations.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM) conjugate_gradient(
#if STENCIL
    COEFFICIENT_PARAMETERS, double scale_of_star,
#else
    const row_index* __restrict__ starts, const column_index* __restrict__ columns, const real* __restrict__ values,
    const real* __restrict__ inverse,
#endif
    const real* __restrict__ b, real* x, real* r, real* p, real* q, Word* slots, double* state, double* history,
    double rtol, double atol, int n, int rows_per_block, int has_guess, int is_resumed, int first, int last, int most,
    int history_size) {
  unsigned char* const shared_bytes = shared_memory_of_block();
  Meeting& meeting = *reinterpret_cast<Meeting*>(shared_bytes);
  Solver solver;
  solver.kept = reinterpret_cast<real*>(shared_bytes + sizeof(Meeting));
#if STENCIL
  solver.matrix = Operator{COEFFICIENTS};
  solver.scale = static_cast<real>(scale_of_star);
#else
  solver.matrix = Operator{starts, columns, values};
  solver.inverse = inverse;
#endif
  solver.x = x, solver.r = r, solver.q = q;
  const long long begin_of_block = static_cast<long long>(blockIdx.x) * rows_per_block;
  solver.rows.begin = static_cast<int>(begin_of_block < n ? begin_of_block : n);
  solver.rows.end = static_cast<int>(begin_of_block + rows_per_block < n ? begin_of_block + rows_per_block : n);
  const int steps = (rows_per_block + THREADS - 1) / THREADS;
  const bool writes = blockIdx.x == 0 && threadIdx.x == 0;
  unsigned number = 0;
  int iteration = first, status = RUNNING;
  double rho, rho_before, square, threshold, curvature = 0.0;
  real pending = 0;
  Sums sums;

  if (is_resumed) {
    rho = state[OF_RHO], rho_before = state[OF_RHO_BEFORE], square = state[OF_SQUARE], threshold = state[OF_THRESHOLD];
    each(steps, [&](int step) {
#pragma unroll
      for (int u = 0; u < STEPS_AT_ONCE; ++u) {
        const int i = solver.rows.row(step + u);
        if (i < solver.rows.end) *solver.solution(i) = x[i];
      }
    });
#if STENCIL
    for (int i = solver.rows.begin + threadIdx.x; i < solver.rows.end && solver.is_kept(i); i += THREADS) {
      solver.kept[i - solver.rows.begin] = r[i];
    }
#endif
    // State is read before block 0 writes it.
    sums.of[0] = 0.0;
    meet<1>(sums, meeting, slots, ++number);
  } else {
    sums.of[0] = sums.of[1] = sums.of[2] = 0.0;
    real* const old = p + (first & 1) * static_cast<long long>(n);
    each(steps, [&](int step) { solver.begin(step, has_guess, b, old, sums); });
    meet<3>(sums, meeting, slots, ++number);
    square = sums.of[0], rho = JACOBI ? sums.of[1] : SCALE * square;
    rho_before = 0.0;
    if (sums.of[2] == 0.0) {
      // The solution of A x = 0 is 0.
      square = rho = 0.0;
      each(steps, [&](int step) {
#pragma unroll
        for (int u = 0; u < STEPS_AT_ONCE; ++u) {
          const int i = solver.rows.row(step + u);
          if (i < solver.rows.end) *solver.solution(i) = 0;
        }
      });
    }
    const double norm = rtol * sqrt(sums.of[2]);
    threshold = norm > atol ? norm : atol;
    if (writes) history[0] = square;
  }

  while (true) {
    if (!is_finite(square)) {
      status = NOT_FINITE;
    } else if (sqrt(square) <= threshold) {
      status = CONVERGED;
    } else if (iteration >= most) {
      status = MOST_ITERATIONS;
    } else if (!(rho > 0.0) || !is_finite(rho)) {
      status = PRECONDITIONER;
    }
    if (status != RUNNING || iteration >= last) break;
    real* const old = p + (iteration & 1) * static_cast<long long>(n);
    real* const next = p + (~iteration & 1) * static_cast<long long>(n);
    hide(solver.rows.begin);
    const real beta = rho_before > 0.0 ? static_cast<real>(rho / rho_before) : static_cast<real>(0);
    sums.of[0] = 0.0;
    each(steps, [&](int step) { solver.advance(step, pending, beta, old, next, sums); });
    pending = 0;
    meet<1>(sums, meeting, slots, ++number);
    curvature = sums.of[0];
    if (!(curvature > 0.0) || !is_finite(curvature)) {
      status = is_finite(curvature) ? NOT_POSITIVE : NOT_FINITE;
      break;
    }
    hide(solver.rows.begin);
    const real alpha = static_cast<real>(rho / curvature);
    sums.of[0] = sums.of[1] = 0.0;
    each(steps, [&](int step) { solver.lessen(step, alpha, next, sums); });
    meet<JACOBI ? 2 : 1>(sums, meeting, slots, ++number);
    rho_before = rho, square = sums.of[0];
    rho = JACOBI ? sums.of[1] : SCALE * square;
    pending = alpha;
    ++iteration;
    if (writes && iteration - first < history_size) history[iteration - first] = square;
  }

  const real* const direction = p + (iteration & 1) * static_cast<long long>(n);
  each(steps, [&](int step) { solver.finish(step, pending, direction); });
  double true_square = square;
  if (status != RUNNING) {
    sums.of[0] = 0.0;
    meet<1>(sums, meeting, slots, ++number);
    sums.of[0] = 0.0;
    for (int step = 0; step < steps; step += STEPS_AT_ONCE) {
      solver.products(step, [&](int i) { return static_cast<double>(x[i]); }, [&](int, int i, double sum) {
        const double left = b[i] - sum;
        sums.of[0] += left * left;
      });
    }
    meet<1>(sums, meeting, slots, ++number);
    true_square = sums.of[0];
  }
  if (writes) {
    state[OF_RHO] = rho, state[OF_RHO_BEFORE] = rho_before, state[OF_SQUARE] = square;
    state[OF_TRUE_SQUARE] = true_square, state[OF_THRESHOLD] = threshold, state[OF_ITERATIONS] = iteration;
    state[OF_STATUS] = status, state[OF_CURVATURE] = curvature;
  }
}
