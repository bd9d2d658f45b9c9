// The method of conjugate gradients in one launch whose blocks are all resident and meet twice in an iteration.
//
// A block has consecutive rows. In the first half of an iteration it computes p = z + beta p of its rows, and of every
// neighbour or column that they read, from z and the old p; so nobody waits for p, which has two buffers. x follows one
// iteration later, when the old p is read anyway. In the second half r = r - alpha q, where q = A p is computed again
// from p (a star), or was stored (CSR). What fits stays on the chip: of a block's first rows r (a star) or q (CSR), and
// x, in shared memory.
#include "shape.cuh"
#include "grid.cuh"
#include "solver.cuh"

enum Status { RUNNING, CONVERGED, MOST_ITERATIONS, NOT_POSITIVE, NOT_FINITE, PRECONDITIONER };
#if STENCIL
#define SCALE scale_of_star
#else
#define SCALE 1.0
#endif
enum StateField { OF_RHO, OF_RHO_BEFORE, OF_SQUARE, OF_TRUE_SQUARE, OF_THRESHOLD, OF_ITERATIONS, OF_STATUS, OF_CURVATURE };

__device__ __forceinline__ bool is_finite(double x) { return x - x == 0.0; }

// Calls body(step) for the steps of a block, STEPS_AT_ONCE of them at a time.
template <class Body>
__device__ __forceinline__ void each(int steps, const Body& body) {
#pragma unroll 1
  for (int step = 0; step < steps; step += STEPS_AT_ONCE) body(step);
}

// The same, from the last step to the first: it begins with what the caches still hold of a sweep before it.
template <class Body>
__device__ __forceinline__ void each_back(int steps, const Body& body) {
#pragma unroll 1
  for (int step = (steps - 1) / STEPS_AT_ONCE * STEPS_AT_ONCE; step >= 0; step -= STEPS_AT_ONCE) body(step);
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
#if !STENCIL
  solver.staged = reinterpret_cast<double*>(shared_bytes + sizeof(Meeting));
  solver.kept = reinterpret_cast<real*>(solver.staged + WARPS * STAGED);
#endif
#if STENCIL
  solver.matrix = Operator{{COEFFICIENTS}};
  solver.scale = static_cast<real>(scale_of_star);
#else
  solver.matrix = Operator{starts, columns, values};
  solver.inverse = inverse;
#endif
  solver.x = x, solver.r = r, solver.q = q;
  const long long begin_of_block = static_cast<long long>(blockIdx.x) * rows_per_block;
  solver.rows.begin = static_cast<int>(begin_of_block < n ? begin_of_block : n);
  solver.rows.end = static_cast<int>(begin_of_block + rows_per_block < n ? begin_of_block + rows_per_block : n);
  const int steps = (rows_per_block + THREADS * VECTOR - 1) / (THREADS * VECTOR);
  const bool writes = blockIdx.x == 0 && threadIdx.x == 0;
  unsigned number = 0;
  int iteration = first, status = RUNNING;
  double rho, rho_before, square, threshold, curvature = 0.0;
  real pending = 0;
  Sums sums;

  if (is_resumed) {
    rho = state[OF_RHO], rho_before = state[OF_RHO_BEFORE], square = state[OF_SQUARE], threshold = state[OF_THRESHOLD];
    for (int i = solver.rows.begin + threadIdx.x; i < solver.rows.end; i += THREADS) *solver.solution(i) = x[i];
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
      for (int i = solver.rows.begin + threadIdx.x; i < solver.rows.end; i += THREADS) *solver.solution(i) = 0;
      __syncthreads();
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
    each_back(steps, [&](int step) { solver.lessen(step, alpha, next, sums); });
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
    each(steps, [&](int step) {
      solver.products<double>(step, Plain<double>{x}, [&](int i, const double (&product)[VECTOR]) {
#pragma unroll
        for (int v = 0; v < VECTOR; ++v) {
          const double left = b[i + v] - product[v];
          sums.of[0] += left * left;
        }
      });
    });
    meet<1>(sums, meeting, slots, ++number);
    true_square = sums.of[0];
  }
  if (writes) {
    state[OF_RHO] = rho, state[OF_RHO_BEFORE] = rho_before, state[OF_SQUARE] = square;
    state[OF_TRUE_SQUARE] = true_square, state[OF_THRESHOLD] = threshold, state[OF_ITERATIONS] = iteration;
    state[OF_STATUS] = status, state[OF_CURVATURE] = curvature;
  }
}
