// Sweeps of a star stencil over a grid of two or three axes, several steps in one launch.
//
// A tile walks along the streaming axis, the slowest one: y of a grid of two axes, z of one of three. Row (or plane) s
// of the grid arrives, and with it row s - RS of step 1, s - 2 RS of step 2, and so on: every step keeps the last RS
// rows that it has got, and RS sums that wait for rows to come. Steps follow each other by one multiplication and
// addition; neighbours within a row are added behind that, in registers, from other lanes, or, from other rows of a
// plane, through shared memory. A tile computes halos anew that other tiles own: after every step its outermost
// elements are wrong by one radius more, and those that are still right in the end are stored.
//
// Elements are copied asynchronously to a ring of DEPTH rows. A thread reads only what it has copied itself, so that a
// grid of two axes needs no barrier, and one of three a single one a plane, for rows of other groups of lanes.
//
// Macros: DIMS, KIND (0: float, 1: double, 2: half, 3: bfloat16), STEPS, VECTOR (elements of a thread along x), ROWS (of
// a thread along y), LANES (threads along x), THREADS, DEPTH, RS (at least 1), BS, BY, BX (widths of the border along
// the streaming axis, y and x), MS, MY, MX (bit o - 1: offset -o is in the star, bit 3 + o: offset o), CENTRE, HAS_F,
// ALIGNED (rows start at multiples of 16 bytes and have whole pieces).

#include "instructions.cuh"

struct Coefficients {
  real s[8], y[8], x[8];  // offsets -1 to -4, then 1 to 4
  real centre, f;
};

constexpr int N = ROWS * VECTOR;
constexpr int GROUPS = THREADS / LANES;
constexpr int WIDTH = LANES * VECTOR;
constexpr int PIECE = VECTOR * sizeof(element) < 16 ? VECTOR * sizeof(element) : 16;  // bytes
constexpr int PER_PIECE = PIECE / sizeof(element);
constexpr int PIECES = VECTOR / PER_PIECE;
// One step loads the pieces beside a tile, so that tiles are whole lines of memory, and none of it is computed anew.
constexpr bool LOADS_SIDES = STEPS == 1 && ALIGNED && BX > 0;
constexpr int SIDE = (BX + PER_PIECE - 1) / PER_PIECE;  // pieces
constexpr int HALO_X = LOADS_SIDES ? 0 : (BX * STEPS + PER_PIECE - 1) / PER_PIECE * PER_PIECE;
constexpr int LATER_X = (BX * (STEPS - 1) + PER_PIECE - 1) / PER_PIECE * PER_PIECE;
constexpr int HALO_Y = DIMS == 3 ? BY * STEPS : 0;
constexpr int USED_X = WIDTH - 2 * HALO_X;
constexpr int USED_Y = DIMS == 3 ? GROUPS * ROWS - 2 * HALO_Y : 1;
constexpr int F_RING = HAS_F ? (STEPS - 1) * RS + DEPTH : 0;
constexpr int SLOT = ROWS * PIECES * THREADS * PIECE;  // bytes of a row (or plane) in the ring
constexpr int EDGES = DIMS == 3 ? 2 * BY * WIDTH : 0;  // elements that a group shows to others, of one step
constexpr int SIDES_AT = (DEPTH + F_RING) * SLOT + 2 * STEPS * GROUPS * EDGES * sizeof(real);

struct alignas(PIECE) Piece {
  element e[PER_PIECE];
};
struct alignas(VECTOR * sizeof(real) < 16 ? VECTOR * sizeof(real) : 16) Line {
  real v[VECTOR];
};

__device__ __forceinline__ real multiply_add(real factor, real value, real sum) {
#if KIND == 1
  return fma(factor, value, sum);
#else
  return fmaf(factor, value, sum);
#endif
}

// Whether the star has an offset along an axis, and the place of its coefficient.
__device__ __forceinline__ constexpr int place(int offset) { return offset < 0 ? -offset - 1 : 3 + offset; }
__device__ __forceinline__ constexpr bool has(int mask, int offset) { return mask >> place(offset) & 1; }

#ifndef STREAMED
#define STREAMED 0
#endif
__device__ __forceinline__ void put(element* to, const Piece& piece) {
#if STREAMED == 1
  if constexpr (PIECE == 16) {
    const uint4 w = *reinterpret_cast<const uint4*>(&piece);
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(w.x), "r"(w.y), "r"(w.z), "r"(w.w) : "memory");
    return;
  }
#endif
  *reinterpret_cast<Piece*>(to) = piece;
}

// Elements across the streaming axis, from the low ends up to the high ones.
struct Window {
  int x_low, x_high, y_low, y_high;
};

struct Tile {
  real sums[STEPS][RS][N];  // of rows that wait for rows to come, the latest first
  real past[STEPS][RS][N];  // rows that have come, the latest first
  const element *u, *f;     // this thread's first element in the row that is copied next
  element* out;             // the same in the row that is stored next
  int nx, ny, ns, x, y;     // sizes of the grid; this thread's first element
  int s, copied, first, last;  // rows that arrive and are copied next; those that this tile stores
  Window stored, needed;  // what this tile stores, and what it needs of the right side
  int f_slot, u_slot, f_next, group, lane, parity;
  unsigned keeps;           // bit k: element k is in the border across the streaming axis

  __device__ __forceinline__ long long pitch() const { return DIMS == 3 ? (long long)nx * ny : nx; }

  // Copy a row of the grid to a slot of a ring, as far as it is in a window; all else is zero.
  __device__ __forceinline__ void copy(const element* from, const element* whole, unsigned char* ring, int slot,
                                       const Window& window) const {
    const bool has_row = copied >= 0 && copied < ns;
#pragma unroll
    for (int q = 0; q < ROWS; q++) {
      const bool is_in = has_row && (DIMS == 2 || (y + q >= window.y_low && y + q < window.y_high));
#pragma unroll
      for (int p = 0; p < PIECES; p++) {
        unsigned char* to = ring + slot * SLOT + ((q * PIECES + p) * THREADS + threadIdx.x) * PIECE;
        const element* at = from + (long long)q * nx + p * PER_PIECE;
#if ALIGNED
        copy_async<PIECE>(to, at, is_in && x + p * PER_PIECE >= window.x_low && x + p * PER_PIECE < window.x_high);
#else
#pragma unroll
        for (int e = 0; e < PER_PIECE; e++) {
          const int column = x + p * PER_PIECE + e;
          const bool is_there = is_in && column >= window.x_low && column < window.x_high;
          if constexpr (sizeof(element) >= 4) {
            copy_async<sizeof(element)>(to + e * sizeof(element), is_there ? at + e : whole, is_there);
          } else {
            const element value = is_there ? at[e] : element(0);
            *reinterpret_cast<element*>(to + e * sizeof(element)) = value;
          }
        }
#endif
      }
    }
  }

  __device__ __forceinline__ void read(real (&row)[N], const Piece* ring, int slot) const {
#pragma unroll
    for (int q = 0; q < ROWS; q++) {
#pragma unroll
      for (int p = 0; p < PIECES; p++) {
        const Piece piece = ring[(slot * ROWS * PIECES + q * PIECES + p) * THREADS + threadIdx.x];
#pragma unroll
        for (int e = 0; e < PER_PIECE; e++) row[q * VECTOR + p * PER_PIECE + e] = widen(piece.e[e]);
      }
    }
  }

  __device__ __forceinline__ void store(const real (&row)[N], int s_out) {
    if (s_out < first || s_out >= last) return;
#pragma unroll
    for (int q = 0; q < ROWS; q++) {
      if (DIMS == 3 && (y + q < stored.y_low || y + q >= stored.y_high)) continue;
#pragma unroll
      for (int p = 0; p < PIECES; p++) {
        const int at = x + p * PER_PIECE;
        Piece piece;
#pragma unroll
        for (int e = 0; e < PER_PIECE; e++) piece.e[e] = narrow(row[q * VECTOR + p * PER_PIECE + e]);
        element* to = out + (long long)q * nx + p * PER_PIECE;
#if ALIGNED
        if (at >= stored.x_low && at < stored.x_high) put(to, piece);
#else
#pragma unroll
        for (int e = 0; e < PER_PIECE; e++) {
          if (at + e >= stored.x_low && at + e < stored.x_high) to[e] = piece.e[e];
        }
#endif
      }
    }
  }

  // Begin to copy the pieces beside the tile; `from` is this thread's first element.
  __device__ __forceinline__ void copy_sides(const element* from, Piece* sides, int slot) const {
    __syncwarp();  // other lanes have read what lies there
    if (lane >= 2 * SIDE) return;
    const bool is_left = lane < SIDE;
    const int column = x + lane * (PER_PIECE - VECTOR) + (is_left ? -SIDE * PER_PIECE : WIDTH - SIDE * PER_PIECE);
    const bool is_in = copied >= 0 && copied < ns && column >= 0 && column < nx;
#pragma unroll
    for (int q = 0; q < ROWS; q++) {
      Piece* to = sides + ((slot * ROWS + q) * GROUPS + group) * 2 * SIDE + lane;
      copy_async<PIECE>(to, from + (column - x) + (long long)q * nx, is_in && (DIMS == 2 || y + q < ny));
    }
  }

  // Let the outermost lanes' neighbours be those of the pieces beside the tile.
  __device__ __forceinline__ void take_sides(real (&line)[VECTOR + 2 * BX], const Piece* sides, int q) const {
    if (lane != 0 && lane != LANES - 1) return;
    const Piece* at = sides + (((u_slot * ROWS + q) * GROUPS + group) * 2 + (lane != 0)) * SIDE;
    real side[SIDE * PER_PIECE];
#pragma unroll
    for (int p = 0; p < SIDE; p++) {
      const Piece piece = at[p];
#pragma unroll
      for (int e = 0; e < PER_PIECE; e++) side[p * PER_PIECE + e] = widen(piece.e[e]);
    }
#pragma unroll
    for (int o = 1; o <= BX; o++) {
      if (lane == 0) line[BX - o] = side[SIDE * PER_PIECE - o];
      else line[BX + VECTOR + o - 1] = side[o - 1];
    }
  }

  // Add a step's neighbours within its latest row, and the right side.
  __device__ __forceinline__ void add_row(int t, const Coefficients& c, const Piece* f_ring, const real* edges,
                                          const Piece* sides) {
    const real(&row)[N] = past[t][0];
    real right_side[N];
    if constexpr (HAS_F) {
      int slot = f_slot - t * RS;
      if (slot < 0) slot += F_RING;
      read(right_side, f_ring, slot);
    }
    real above[BY > 0 ? BY : 1][VECTOR], below[BY > 0 ? BY : 1][VECTOR];
    if constexpr (DIMS == 3 && BY > 0) {
      const real* of_step = edges + t * GROUPS * EDGES + lane * VECTOR;
#pragma unroll
      for (int o = 0; o < BY; o++) {
        const int before = group > 0 ? group - 1 : 0, behind = group < GROUPS - 1 ? group + 1 : group;
        const Line up = *reinterpret_cast<const Line*>(of_step + before * EDGES + (BY + o) * WIDTH);
        const Line down = *reinterpret_cast<const Line*>(of_step + behind * EDGES + o * WIDTH);
#pragma unroll
        for (int v = 0; v < VECTOR; v++) above[o][v] = up.v[v], below[o][v] = down.v[v];
      }
    }
#pragma unroll
    for (int q = 0; q < ROWS; q++) {
      real line[VECTOR + 2 * BX];
#pragma unroll
      for (int v = 0; v < VECTOR; v++) line[BX + v] = row[q * VECTOR + v];
#pragma unroll
      for (int o = 1; o <= BX; o++) {
        line[BX - o] = __shfl_up_sync(0xffffffffu, row[q * VECTOR + VECTOR - o], 1, LANES);
        line[BX + VECTOR + o - 1] = __shfl_down_sync(0xffffffffu, row[q * VECTOR + o - 1], 1, LANES);
      }
      if constexpr (LOADS_SIDES) take_sides(line, sides, q);
#pragma unroll
      for (int v = 0; v < VECTOR; v++) {
        real sum = sums[t][0][q * VECTOR + v];
        if constexpr (CENTRE) sum = multiply_add(c.centre, line[BX + v], sum);
#pragma unroll
        for (int o = -BX; o <= BX; o++) {
          if (o && has(MX, o)) sum = multiply_add(c.x[place(o)], line[BX + v + o], sum);
        }
        if constexpr (DIMS == 3) {
#pragma unroll
          for (int o = -BY; o <= BY; o++) {
            if (o && has(MY, o)) {
              const int from = q + o;
              const real value = from < 0        ? above[(from + BY) < 0 ? 0 : from + BY][v]
                                 : from >= ROWS ? below[(from - ROWS) >= (BY > 0 ? BY : 1) ? 0 : from - ROWS][v]
                                                : row[(from < 0 ? 0 : from >= ROWS ? 0 : from) * VECTOR + v];
              sum = multiply_add(c.y[place(o)], value, sum);
            }
          }
        }
        if constexpr (HAS_F) sum = multiply_add(c.f, right_side[q * VECTOR + v], sum);
        sums[t][0][q * VECTOR + v] = sum;
      }
    }
  }

  // One row arrives: all steps go on by one row.
  template <bool EDGE>
  __device__ __forceinline__ void advance(const Coefficients& c, const Piece* u_ring, const Piece* f_ring, real* edges,
                                          const Piece* sides) {
    real row[N];
    read(row, u_ring, u_slot);
    real* shown = edges + parity * STEPS * GROUPS * EDGES;
#pragma unroll
    for (int t = 0; t < STEPS; t++) {
      real next[N];
      const int s_next = s - (t + 1) * RS;
      const bool keeps_row = EDGE && (s_next < BS || s_next >= ns - BS);
#pragma unroll
      for (int k = 0; k < N; k++) {
        next[k] = has(MS, RS) ? multiply_add(c.s[place(RS)], row[k], sums[t][RS - 1][k]) : sums[t][RS - 1][k];
        if constexpr (EDGE) {
          if (keeps_row || (keeps >> k & 1)) next[k] = past[t][RS - 1][k];
        }
#pragma unroll
        for (int o = RS - 1; o >= 1; o--) {
          const real sum = sums[t][o - 1][k];
          sums[t][o][k] = has(MS, o) ? multiply_add(c.s[place(o)], row[k], sum) : sum;
        }
        real sum = real(0);
#pragma unroll
        for (int o = RS; o >= 1; o--) {
          if (has(MS, -o)) {
            sum = o == RS ? c.s[place(-o)] * past[t][o - 1][k] : multiply_add(c.s[place(-o)], past[t][o - 1][k], sum);
          }
        }
        sums[t][0][k] = sum;
#pragma unroll
        for (int o = RS - 1; o >= 1; o--) past[t][o][k] = past[t][o - 1][k];
        past[t][0][k] = row[k];
        row[k] = next[k];
      }
      if constexpr (DIMS == 3 && BY > 0) {
        real* own = shown + (t * GROUPS + group) * EDGES + lane * VECTOR;
#pragma unroll
        for (int o = 0; o < BY; o++) {
          Line top, bottom;
#pragma unroll
          for (int v = 0; v < VECTOR; v++) {
            top.v[v] = past[t][0][o * VECTOR + v];
            bottom.v[v] = past[t][0][(ROWS - BY + o) * VECTOR + v];
          }
          *reinterpret_cast<Line*>(own + o * WIDTH) = top;
          *reinterpret_cast<Line*>(own + (BY + o) * WIDTH) = bottom;
        }
      }
    }
    store(row, s - STEPS * RS);
    if constexpr (DIMS == 3 && BY > 0) __syncthreads();
#pragma unroll
    for (int t = 0; t < STEPS; t++) add_row(t, c, f_ring, shown, sides);
  }

  // Begin to copy the next rows of u and f.
  __device__ __forceinline__ void copy_next(const element* all_u, const element* all_f, unsigned char* memory, int slot) {
    copy(u, all_u, memory, slot, Window{0, nx, 0, ny});
    if constexpr (HAS_F) {
      copy(f, all_f, memory + DEPTH * SLOT, f_next, needed);
      f_next = f_next + 1 == F_RING ? 0 : f_next + 1;
    }
    if constexpr (LOADS_SIDES) copy_sides(u, reinterpret_cast<Piece*>(memory + SIDES_AT), slot);
    commit_copies();
    u += pitch();
    f += pitch();
    copied++;
  }

  template <bool EDGE>
  __device__ __forceinline__ void next_row(const element* all_u, const element* all_f, const Coefficients& c,
                                           unsigned char* memory) {
    const Piece* f_ring = reinterpret_cast<const Piece*>(memory + DEPTH * SLOT);
    wait_for_copies<DEPTH - 1>();
    if constexpr (LOADS_SIDES) __syncwarp();
    advance<EDGE>(c, reinterpret_cast<const Piece*>(memory), f_ring,
                  reinterpret_cast<real*>(memory + (DEPTH + F_RING) * SLOT),
                  reinterpret_cast<const Piece*>(memory + SIDES_AT));
    copy_next(all_u, all_f, memory, u_slot);
    u_slot = u_slot + 1 == DEPTH ? 0 : u_slot + 1;
    f_slot = f_slot + 1 == (HAS_F ? F_RING : 1) ? 0 : f_slot + 1;
    out += pitch();
    s++;
    parity ^= 1;
  }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    jacobi(const element* __restrict__ u, const element* __restrict__ f, element* __restrict__ out, int nx, int ny,
           int ns, int tiles_x, int tiles_y, int chunks, int chunk, int tiles, Coefficients c) {
  extern __shared__ __align__(16) unsigned char memory[];
  Tile tile;
  tile.group = threadIdx.x / LANES;
  tile.lane = threadIdx.x % LANES;
  const int number = DIMS == 3 ? blockIdx.x : blockIdx.x * GROUPS + tile.group;
  const bool is_tile = number < tiles;
  int rest = is_tile ? number : 0;
  const int tx = rest % tiles_x;
  rest /= tiles_x;
  const int ty = rest % tiles_y;
  rest /= tiles_y;
  const int tc = rest % chunks, batch = rest / chunks;

  tile.nx = nx, tile.ny = ny, tile.ns = ns;
  tile.x = tx * USED_X + tile.lane * VECTOR;
  tile.y = DIMS == 3 ? ty * USED_Y + tile.group * ROWS : 0;
  tile.stored.x_low = tx == 0 ? 0 : tx * USED_X + HALO_X;
  tile.stored.x_high = tx == tiles_x - 1 ? nx : min(nx, tx * USED_X + WIDTH - HALO_X);
  tile.stored.y_low = ty == 0 ? 0 : ty * USED_Y + HALO_Y;
  tile.stored.y_high = ty == tiles_y - 1 ? ny : min(ny, ty * USED_Y + GROUPS * ROWS - HALO_Y);
  // The first step takes the right side as far as the last step's values reach it.
  tile.needed.x_low = max(0, tile.stored.x_low - LATER_X);
  tile.needed.x_high = min(nx, tile.stored.x_high + LATER_X);
  tile.needed.y_low = max(0, tile.stored.y_low - (STEPS - 1) * BY);
  tile.needed.y_high = min(ny, tile.stored.y_high + (STEPS - 1) * BY);
  tile.first = tc * chunk;
  tile.last = is_tile ? min(ns, tile.first + chunk) : tile.first;
  tile.s = tile.copied = tile.first - STEPS * BS;
  tile.parity = 0;
  const long long own = (long long)batch * ns * tile.pitch() + (long long)tile.y * nx + tile.x;
  tile.u = u + own + tile.copied * tile.pitch();
  tile.f = f + own + tile.copied * tile.pitch();
  tile.out = out + own + (tile.s - STEPS * RS) * tile.pitch();
  tile.keeps = 0;
  bool at_border = false;
#pragma unroll
  for (int k = 0; k < N; k++) {
    const int x = tile.x + k % VECTOR, y = tile.y + k / VECTOR;
    const bool keeps = x < BX || x >= nx - BX || (DIMS == 3 && (y < BY || y >= ny - BY));
    tile.keeps |= unsigned(keeps) << k;
  }
  {
    const int x0 = tx * USED_X, y0 = ty * USED_Y;
    at_border = x0 < BX || x0 + WIDTH > nx - BX;
    if (DIMS == 3) at_border = at_border || y0 < BY || y0 + GROUPS * ROWS > ny - BY;
  }
#pragma unroll
  for (int t = 0; t < STEPS; t++) {
#pragma unroll
    for (int r = 0; r < RS; r++) {
#pragma unroll
      for (int k = 0; k < N; k++) tile.sums[t][r][k] = tile.past[t][r][k] = real(0);
    }
  }

  tile.u_slot = tile.f_slot = tile.f_next = 0;
  for (int slot = 0; slot < DEPTH; slot++) tile.copy_next(u, f, memory, slot);

  const int rows = chunk + STEPS * (BS + RS);
#pragma unroll 1
  for (int i = 0; i < rows; i += 2) {
    bool is_edge = at_border || tile.s - STEPS * RS < BS || tile.s + 1 - RS >= ns - BS;
    if constexpr (LANES < 32 && DIMS == 2) is_edge = __any_sync(0xffffffffu, is_edge);
    if (is_edge) {
      tile.template next_row<true>(u, f, c, memory);
      tile.template next_row<true>(u, f, c, memory);
    } else {
      tile.template next_row<false>(u, f, c, memory);
      tile.template next_row<false>(u, f, c, memory);
    }
  }
  wait_for_copies<0>();
}
