// Products of a sparse matrix and a vector by panels of columns: sums of runs of entries.
//
// Entries are sorted by panel and row, and dealt to tiles of 32 x EACH entries that do not reach beyond a panel; the rest
// of a panel's last tile is padding. A run is the entries of a row in a tile. Each warp has tiles of its own: a lane
// multiplies EACH successive entries by x of the panel, which lies in shared memory, and adds runs; runs that reach over
// lanes are added by a scan. The sums of all runs of a tile are written one after the other; rows are added from them by
// `spmv` with UNIT.
//
// In memory the entries of a tile lie as the lanes load them, 16 bytes at a time: the first vectors of all lanes, then the
// second ones, and so on. Bit i of a lane's flags says that a run ends with its entry i; the last entry of a tile ends one.
//
// A warp loads its next tile before it multiplies one, where registers hold both, whatever panel that is of: the memory
// works while lanes add, and while a block waits for x of its next panel.

#include "instructions.cuh"

#define TILE_ENTRIES (32 * EACH)
// Entries of 16 bytes of columns and of values.
#define OF_COLUMNS 8
#define OF_VALUES (16 / (int)sizeof(Value))

template <typename T>
struct alignas(16) Vector {
  T at[16 / sizeof(T)];
};

template <typename T>
__device__ __forceinline__ void load_vector(Vector<T>& to, const T* from) {
  *reinterpret_cast<uint4*>(&to) = load_once(reinterpret_cast<const uint4*>(from));
}

// Whether the registers of a thread hold two tiles.
#define AHEAD (EACH * (2 + (int)sizeof(Value)) * WARPS <= 48 * 32)

// What a lane loads of a tile.
struct Loaded {
  Vector<unsigned short> column[EACH / OF_COLUMNS];
  Vector<Value> value[EACH / OF_VALUES];
  unsigned ends;
  int place;
};

__device__ __forceinline__ void load_tile(
    Loaded& to, const unsigned short* columns, const Value* values, const unsigned short* flags, const int* places,
    int tile, int lane) {
  const long long start = (long long)tile * TILE_ENTRIES;
#pragma unroll
  for (int v = 0; v < EACH / OF_COLUMNS; ++v) load_vector(to.column[v], columns + start + (v * 32 + lane) * OF_COLUMNS);
#pragma unroll
  for (int v = 0; v < EACH / OF_VALUES; ++v) load_vector(to.value[v], values + start + (v * 32 + lane) * OF_VALUES);
  to.ends = flags[tile * 32 + lane];
  to.place = places[tile];
}

extern __shared__ uint4 memory[];

// firsts: first tile of each panel of `width` columns, and the number of tiles. places: first sum of each tile.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 1) spmv_runs(
    const unsigned short* columns, const Value* values, const unsigned short* flags, const int* places,
    const int* firsts, const Value* x, Sum* sums, int num_tiles, int width, int num_columns) {
  Value* panel = reinterpret_cast<Value*>(memory);
  const int panel_bytes = (width * (int)sizeof(Value) + 15) / 16 * 16;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Sum* runs = reinterpret_cast<Sum*>(reinterpret_cast<char*>(memory) + panel_bytes) + warp * TILE_ENTRIES;
  const long long all = num_tiles;
  const int end = (int)(all * (blockIdx.x + 1) / gridDim.x);
  int number = 0, t = (int)(all * blockIdx.x / gridDim.x), tile = t + warp;
  Loaded ahead;
  if (AHEAD && tile < end) load_tile(ahead, columns, values, flags, places, tile, lane);
  for (; t < end; ++number) {
    const int next = min(end, firsts[number + 1]);
    if (next <= t) continue;
    __syncthreads();
    const int here = min(width, num_columns - number * width);
#pragma unroll 8
    for (int i = threadIdx.x; i < here; i += 32 * WARPS) panel[i] = __ldg(x + (long long)number * width + i);
    __syncthreads();
    for (; tile < next; tile += WARPS) {
      Loaded own;
      if (AHEAD) {
        own = ahead;
        if (tile + WARPS < end) load_tile(ahead, columns, values, flags, places, tile + WARPS, lane);
      } else {
        load_tile(own, columns, values, flags, places, tile, lane);
      }
      const unsigned ends = own.ends;
      const int place = own.place;
      const int count = __popc(ends);
      const int before = scan_counts(count, lane);
      const int total = of_lane(before + count, 31);
      // The first run of a lane may have begun in lanes before it.
      Sum sum = 0, head = 0;
      int at = before;
      bool is_first = true;
#pragma unroll
      for (int i = 0; i < EACH; ++i) {
        const Sum factor = widened(panel[own.column[i / OF_COLUMNS].at[i % OF_COLUMNS]]);
        sum += widened(own.value[i / OF_VALUES].at[i % OF_VALUES]) * factor;
        if (ends >> i & 1) {
          if (is_first) head = sum;
          else runs[at] = sum;
          is_first = false;
          ++at;
          sum = 0;
        }
      }
      // What the lanes before have left open: up to and with the last one of them that ends a run.
      Sum open = sum;
      int is_closed = count > 0;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const Sum other = of_lane_before(open, step, lane);
        const int other_closed = of_lane(is_closed, lane >= step ? lane - step : lane);
        if (lane >= step) {
          if (!is_closed) open += other;
          is_closed |= other_closed;
        }
      }
      const Sum carried = of_lane_before(open, 1, lane);
      if (count > 0) runs[before] = head + (lane > 0 ? carried : Sum(0));
      wait_for_lanes();
      for (int i = lane; i < total; i += 32) sums[place + i] = runs[i];
      wait_for_lanes();
    }
    t = next;
  }
}
