// The same product where rows of an operand start anywhere. What comes before is `../../source/kernel.cu` up to its
// kernel: the ring, tiles, and the consumers. Here all four warps of the producer copy lines of such an operand to shared
// memory, and move them to where they belong; the other operand comes through the TMA unit, as there.
#include "copies.cuh"
#include "lines.cuh"

static_assert(kCluster == 1, "what threads copy reaches one block");
static_assert(ROWS_GATHERED || COLUMNS_GATHERED, "else no operand needs it");
static_assert(kElement == 2 || (ROWS_K_MAJOR && COLUMNS_K_MAJOR), "wgmma takes others along K alone");
constexpr int kWarps = kWarpgroup / 32;
constexpr int kRowLines = ROWS_GATHERED ? kRowsBytes / kLine : 0;
constexpr int kColumnLines = COLUMNS_GATHERED ? kColumnsBytes / kLine : 0;
constexpr int kRowBlocks = (kRowLines + kBlockLines - 1) / kBlockLines;
constexpr int kLineBlocks = kRowBlocks + (kColumnLines + kBlockLines - 1) / kBlockLines;
// Raw slices: one is moved while the others are under way.
constexpr int kRawStages = RAW_STAGES, kRawBytes = kLineBlocks * kRawBlock;
constexpr bool kLoads = !(ROWS_GATHERED && COLUMNS_GATHERED);
constexpr int kLoadedBytes = ROWS_GATHERED ? kColumnsBytes : kRowsBytes;
// What warps that gather get of the registers that the block is launched with: more where sums leave them or three
// consumers could not share them; and how many units of a line a thread has under way with them. With others some kernels
// would spill.
constexpr bool kHasRoom = kConsumers == 3 || kBlocks * kSums * (PROMOTES + 1) <= 160;
constexpr int kGatherRegisters = kHasRoom ? 48 : 40;
constexpr int kMultiplyRegisters = (kShare - kGatherRegisters) / kConsumers / 8 * 8;
constexpr int kTogether = !kDealsOut || (kHasRoom && kElement != 4) ? 4 : 2;
static_assert(kRawStages >= 2, "copies are under way while a slice is moved");

// The operands, each as a map of the TMA unit or as it lies in memory.
struct Sides {
  const TensorMap* map;
  Matrix rows, columns;
};

// The slices of all of this block's units, one after the other.
struct Walk {
  int number, row, column, step, end;
  __device__ __forceinline__ Walk(const Sizes& s) { enter(s, blockIdx.x); }
  __device__ __forceinline__ void enter(const Sizes& s, int unit) {
    number = unit;
    if (!has(s)) return;
    const Unit u = unit_of(s, unit, 0);
    row = u.row, column = u.column, step = u.begin, end = u.end;
  }
  __device__ __forceinline__ bool has(const Sizes& s) const { return number < num_units(s); }
  __device__ __forceinline__ void next(const Sizes& s) {
    if (++step == end) enter(s, number + gridDim.x);
  }
};

// Every warp has blocks of lines of its own, from memory to where they belong: none waits for another one.
// Which thread this is, is found anew where it is used: it takes registers otherwise.
__device__ __forceinline__ void ask_slice(const Sides& sides, const Walk& at, unsigned raw) {
  const int thread = thread_anew(), lane = thread % 32, warp = thread / 32 % kWarps;
#pragma unroll 1
  for (int block = warp; block < kLineBlocks; block += kWarps) {
    const unsigned to = raw + block * kRawBlock;
    if (block < kRowBlocks) {
      if constexpr (ROWS_GATHERED)
        ask_block<ROWS_K_MAJOR, kElement>(sides.rows, to, block, at.row, at.step * kDepth, lane);
    } else {
      if constexpr (COLUMNS_GATHERED)
        ask_block<COLUMNS_K_MAJOR, kElement>(sides.columns, to, block - kRowBlocks, at.column, at.step * kDepth, lane);
    }
  }
}

__device__ __forceinline__ void move_slice(
    const Sides& sides, const Walk& at, unsigned raw, const Shared& shared, int stage, int depth) {
  const int thread = thread_anew(), lane = thread % 32, warp = thread / 32 % kWarps;
#pragma unroll 1
  for (int block = warp; block < kLineBlocks; block += kWarps) {
    const unsigned from = raw + block * kRawBlock;
    const int k = at.step * kDepth;
    if (block < kRowBlocks) {
      if constexpr (ROWS_GATHERED)
        move_block<ROWS_K_MAJOR, kElement, kTogether>(
            sides.rows, from, shared.rows_of(stage), block, kRowLines, at.row, k, depth, lane);
    } else {
      if constexpr (COLUMNS_GATHERED)
        move_block<COLUMNS_K_MAJOR, kElement, kTogether>(
            sides.columns, from, shared.columns_of(stage), block - kRowBlocks, kColumnLines, at.column, k, depth, lane);
    }
  }
}

__device__ __forceinline__ void gather(const Sides& sides, const Sizes& s, const Shared& shared, unsigned raw) {
  Walk asked(s), now(s);
  // Groups of copies are counted, so that one without copies ends a walk that is over.
#pragma unroll 1
  for (int i = 0; i < kRawStages - 1; ++i) {
    if (asked.has(s)) ask_slice(sides, asked, raw + i * kRawBytes), asked.next(s);
    end_copies();
  }
  Place place;
  int full = 0;  // the raw slice that is moved; the one before it is free
#pragma unroll 1
  for (; now.has(s); now.next(s), place.step()) {
    const int free = (full == 0 ? kRawStages : full) - 1;
    if (asked.has(s)) ask_slice(sides, asked, raw + free * kRawBytes), asked.next(s);
    end_copies();
    const unsigned barrier = shared.full + 8 * place.stage;
    wait(shared.empty + 8 * place.stage, place.parity ^ 1);
    if (kLoads && threadIdx.x == kConsumers * kWarpgroup) {
      expect(barrier, kLoadedBytes);
      if constexpr (!ROWS_GATHERED) {
        load_slice<ROWS_K_MAJOR, kRows, 1>(
            sides.map, shared.rows_of(place.stage), barrier, now.row, now.step * kDepth, 0, place.stage, 0);
      } else if constexpr (!COLUMNS_GATHERED) {
        load_slice<COLUMNS_K_MAJOR, kColumns, 1>(
            sides.map, shared.columns_of(place.stage), barrier, now.column, now.step * kDepth, 0, place.stage, 0);
      }
    }
    wait_copied<kRawStages - 1>();
    __syncwarp();  // what other lanes have copied has arrived, too
    move_slice(sides, now, raw + full * kRawBytes, shared, place.stage, s.depth);
    fence_for_boxes();  // wgmma sees what was stored
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(barrier);
    full = full + 1 == kRawStages ? 0 : full + 1;
  }
  wait_copied<0>();
}

// How an operand is given: by a map, or as it lies in memory.
#define SIDE_0(name) const __grid_constant__ TensorMap name##_map
#define SIDE_1(name)                                                                                  \
  const unsigned char* name##_first, const __grid_constant__ long long name##_pitch,                  \
      const __grid_constant__ long long name##_bytes, const __grid_constant__ int name##_lines
#define JOINED(a, b) a##b
#define SIDE_OF(is_gathered, name) JOINED(SIDE_, is_gathered)(name)

extern "C" __global__ void __launch_bounds__((CONSUMERS + 1) * 128, RESIDENT)
    gemm(SIDE_OF(ROWS_GATHERED, rows), SIDE_OF(COLUMNS_GATHERED, columns),
#if STORES_BOXES
         const __grid_constant__ TensorMap whole_map, const __grid_constant__ TensorMap rest_map,
#else
         out_t* c,
#endif
         const void* const __grid_constant__ bias, const void* const __grid_constant__ source, sum_t* workspace,
         unsigned* counters, const __grid_constant__ int rows, const __grid_constant__ int columns,
         const __grid_constant__ int depth, const __grid_constant__ int row_tiles,
         const __grid_constant__ int column_tiles, const __grid_constant__ int group, const __grid_constant__ int whole,
         const __grid_constant__ int parts, const __grid_constant__ long long stride,
         const __grid_constant__ int is_aligned, const __grid_constant__ long long source_row,
         const __grid_constant__ long long source_column, const __grid_constant__ float alpha,
         const __grid_constant__ float beta, const __grid_constant__ unsigned long long by_group,
         const __grid_constant__ unsigned long long by_height, const __grid_constant__ unsigned long long by_last,
         const __grid_constant__ unsigned long long by_parts) {
  const Sizes s = {rows,  columns, depth,  row_tiles,  column_tiles,
                   group, whole,   parts,  stride,     is_aligned,
                   {bias, source,  source_row, source_column, alpha, beta},
                   by_group, by_height, by_last, by_parts};
#if STORES_BOXES
  const To c = {&whole_map, &rest_map};
#endif
  Sides sides = {};
#if ROWS_GATHERED
  sides.rows = {rows_first, rows_pitch, rows_bytes, rows_lines};
#else
  sides.map = &rows_map;
#endif
#if COLUMNS_GATHERED
  sides.columns = {columns_first, columns_pitch, columns_bytes, columns_lines};
#else
  sides.map = &columns_map;
#endif
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ __align__(8) unsigned long long barriers[2 * kStages];
  Shared shared;
  shared.ring = shared_address(memory);
  shared.staging = shared.ring + kStages * kStageBytes;
  shared.full = shared_address(barriers);
  shared.empty = shared.full + 8 * kStages;
  if (threadIdx.x == kConsumers * kWarpgroup) {
    if (kLoads) prefetch_map(sides.map);
#pragma unroll
    for (int i = 0; i < kStages; ++i) {
      // A warp of the producer each, and whoever asks the TMA unit; a warp of whoever reads.
      barrier_init(shared.full + 8 * i, kWarps + kLoads);
      barrier_init(shared.empty + 8 * i, 4 * (IN_TURNS ? 1 : kConsumers));
    }
    fence_barrier_init();
#if STORES_BOXES
    prefetch_map(&whole_map);
    prefetch_map(&rest_map);
#endif
  }
  __syncthreads();
#if OVERLAPS
  wait_for_launches();
#endif
  if (threadIdx.x / kWarpgroup == kConsumers) {
    if constexpr (kDealsOut) set_registers<false, kGatherRegisters>();
    gather(sides, s, shared, shared.staging + kConsumers * kStagingBytes * BUFFERS);
  } else {
    if constexpr (kDealsOut) set_registers<true, kMultiplyRegisters>();
    consume(s, c, workspace, counters, shared, 0);
#if STORES_BOXES
    if (threadIdx.x % kWarpgroup == 0) wait_stored<0>();
#endif
  }
}
