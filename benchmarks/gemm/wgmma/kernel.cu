// C = A @ B on Hopper: one warp loads slices of both operands through the TMA unit into a ring, one to three warpgroups
// multiply them with wgmma, and blocks of a cluster load what they share once.
//
// "Rows" and "columns" are those of wgmma: 64 rows each, and columns in steps of 8. With TURNED the rows of wgmma are C's
// columns. The grid is persistent: clusters walk over units of work, which are tiles, or parts along K of the last tiles.
#include "instructions.cuh"

constexpr int kRows = ROWS, kColumns = COLUMNS, kStages = STAGES, kConsumers = CONSUMERS;
constexpr int kClusterRows = CLUSTER_ROWS, kClusterColumns = CLUSTER_COLUMNS, kCluster = kClusterRows * kClusterColumns;
// Consumers share a tile, by rows or by columns, or take tiles in turns.
constexpr int kByColumns = IN_TURNS ? 1 : CONSUMERS_BY_COLUMNS, kByRows = IN_TURNS ? 1 : kConsumers / kByColumns;
constexpr int kOwnRows = kRows / kByRows, kOwnColumns = kColumns / kByColumns, kBlocks = kOwnRows / 64;
constexpr int kSums = kOwnColumns / 2;  // of a thread and a block of 64 rows
constexpr int kElement = ELEMENT_BYTES, kDepth = 128 / kElement;
// An operand that is contiguous along K lies in rows of 128 bytes; another in slabs 128 bytes wide.
constexpr int kSlabBytes = kDepth * 128;
constexpr int kRowsBytes = ROWS_K_MAJOR ? kRows * 128 : (kRows * kElement + 127) / 128 * kSlabBytes;
constexpr int kColumnsBytes = COLUMNS_K_MAJOR ? kColumns * 128 : (kColumns * kElement + 127) / 128 * kSlabBytes;
constexpr int kStageBytes = kRowsBytes + kColumnsBytes;
// Of a warpgroup, where 16-bit results are put in order.
constexpr int kStagingPitch = 64 * 2 + 16, kStagingBytes = STORES_BOXES ? 64 * 128 : 64 * kStagingPitch;
constexpr int kWarpgroup = 128;
static_assert(kOwnRows % 64 == 0 && kOwnColumns % 8 == 0 && kOwnColumns <= 256, "what wgmma takes");
static_assert(!IN_TURNS || kConsumers == 2, "two take tiles in turns");

struct Sizes {
  int rows, columns, depth;         // of the product, as wgmma sees it
  int row_tiles, column_tiles;      // in tiles of a cluster
  int group;                        // rows of cluster tiles that are walked together
  int whole, parts;                 // cluster tiles that are not split, and parts of each of the others
  long long stride;                 // elements from one row of C to the next
  int is_aligned;                   // whether vectors of 16 bytes of C can be stored
  float alpha;
};

#if STORES_BOXES
typedef const OutMaps& To;
#else
typedef out_t* To;
#endif

struct Unit {
  int row, column, begin, end, part, parts, slot;
};

__device__ __forceinline__ int num_units(const Sizes& s) {
  return s.whole + (s.row_tiles * s.column_tiles - s.whole) * s.parts;
}

__device__ __forceinline__ Unit unit_of(const Sizes& s, int number, int rank) {
  Unit u;
  int tile = number;
  u.part = 0, u.parts = 1, u.slot = 0;
  if (number >= s.whole) {
    tile = s.whole + (number - s.whole) / s.parts;
    u.part = (number - s.whole) % s.parts, u.parts = s.parts;
    u.slot = (tile - s.whole) * kCluster + rank;
  }
  const int in_group = s.group * s.column_tiles, group = tile / in_group, first = group * s.group;
  const int height = min(s.group, s.row_tiles - first), place = tile - group * in_group;
  u.row = ((first + place % height) * kClusterRows + rank / kClusterColumns) * kRows;
  u.column = (place / height * kClusterColumns + rank % kClusterColumns) * kColumns;
  const int steps = (s.depth + kDepth - 1) / kDepth;
  u.begin = 0, u.end = steps;
  // A wave may wait for these divisions: they are left out where they are not needed.
  if (u.parts > 1) {
    u.begin = static_cast<int>(static_cast<long long>(steps) * u.part / u.parts);
    u.end = static_cast<int>(static_cast<long long>(steps) * (u.part + 1) / u.parts);
  }
  return u;
}

// A place in the ring: the stage, and the parity of how often the ring was walked before.
struct Place {
  int stage = 0;
  unsigned parity = 0;
  __device__ __forceinline__ void step() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
  __device__ __forceinline__ void skip(int steps) {
    stage += steps;
    parity ^= (stage / kStages) & 1;
    stage %= kStages;
  }
};

struct Shared {
  unsigned ring, staging, full, empty;  // addresses
  __device__ __forceinline__ unsigned rows_of(int stage) const { return ring + stage * kStageBytes; }
  __device__ __forceinline__ unsigned columns_of(int stage) const { return rows_of(stage) + kRowsBytes; }
};

// One operand's slice of a tile: this block loads its part of it, for all blocks that share the slice. Where parts would
// not be whole atoms of eight rows, blocks load the whole slice in turns, by the stage.
template <bool kIsKMajor, int kWidth, int kShares>
__device__ __forceinline__ void load_slice(
    const TensorMap* map, unsigned to, unsigned barrier, int first, int k, int share, int stage, unsigned short mask) {
  if constexpr (kIsKMajor && kWidth % (8 * kShares) != 0) {
    if (stage % kShares == share) load_box<true>(map, to, barrier, k, first, mask);
  } else if constexpr (kIsKMajor) {
    constexpr int kPart = kWidth / kShares, kBox = kPart > 256 ? kPart / 2 : kPart;
#pragma unroll
    for (int at = 0; at < kPart; at += kBox) {
      const int row = share * kPart + at;
      load_box<(kShares > 1)>(map, to + row * 128, barrier, k, first + row, mask);
    }
  } else {
    constexpr int kSlabs = (kWidth * kElement + 127) / 128;
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
      if (slab % kShares == share)
        load_box<(kShares > 1)>(map, to + slab * kSlabBytes, barrier, first + slab * (128 / kElement), k, mask);
    }
  }
}

__device__ __forceinline__ void produce(
    const TensorMap* rows_map, const TensorMap* columns_map, const Sizes& s, const Shared& shared, int rank) {
  const int row_place = rank / kClusterColumns, column_place = rank % kClusterColumns;
  // The slice of rows is the same in all blocks beside each other, that of columns in all above each other.
  const unsigned short rows_mask = ((1 << kClusterColumns) - 1) << (row_place * kClusterColumns);
  unsigned short columns_mask = 0;
  for (int i = 0; i < kClusterRows; ++i) columns_mask |= 1 << (i * kClusterColumns + column_place);
  Place place;
  const int units = num_units(s), clusters = gridDim.x / kCluster;
  for (int number = blockIdx.x / kCluster; number < units; number += clusters) {
    const Unit u = unit_of(s, number, rank);
    for (int step = u.begin; step < u.end; ++step, place.step()) {
      wait(shared.empty + 8 * place.stage, place.parity ^ 1);
      const unsigned full = shared.full + 8 * place.stage;
      expect(full, kStageBytes);
      const int k = step * kDepth;
      load_slice<ROWS_K_MAJOR, kRows, kClusterColumns>(
          rows_map, shared.rows_of(place.stage), full, u.row, k, column_place, place.stage, rows_mask);
      load_slice<COLUMNS_K_MAJOR, kColumns, kClusterRows>(
          columns_map, shared.columns_of(place.stage), full, u.column, k, row_place, place.stage, columns_mask);
    }
  }
}

// Tells all blocks that load into this one's ring that a warp has read a stage.
__device__ __forceinline__ void release(const Shared& shared, int stage, int rank) {
  const unsigned barrier = shared.empty + 8 * stage;
  const int lane = threadIdx.x % 32;
  if constexpr (kCluster == 1) {
    if (lane == 0) arrive(barrier);
  } else {
    const int row_place = rank / kClusterColumns, column_place = rank % kClusterColumns;
    const int above = lane - kClusterColumns;
    if (lane < kClusterColumns) {
      arrive_at(barrier, row_place * kClusterColumns + lane);
    } else if (above < kClusterRows && above != row_place) {
      arrive_at(barrier, above * kClusterColumns + column_place);
    }
  }
}

// Descriptors of what one wgmma reads: an address, and how far apart atoms of 8 rows by 128 bytes lie.
template <bool kIsKMajor>
__device__ __forceinline__ unsigned long long slice_descriptor(unsigned slice, int first, int atom) {
  // Along K an instruction takes 32 bytes; of an operand that is not contiguous along K, 32 / kElement rows of a slab.
  const unsigned address = kIsKMajor ? slice + first * 128 + atom * 32
                                     : slice + first * kElement / 128 * kSlabBytes + atom * (32 / kElement) * 128;
  const unsigned long long leading = kIsKMajor ? 1 : kSlabBytes >> 4, stride = 1024 >> 4;
  return static_cast<unsigned long long>((address & 0x3FFFF) >> 4) | leading << 16 | stride << 32 | 1ull << 62;
}

__device__ __forceinline__ void multiply(
    sum_t (&sums)[kBlocks][kSums], const Unit& u, const Shared& shared, Place& place, int first_row, int first_column,
    int rank) {
  int before = 0;
  fence_sums(sums);
  for (int step = u.begin; step < u.end; ++step) {
    wait(shared.full + 8 * place.stage, place.parity);
    wgmma_fence();
#pragma unroll
    for (int atom = 0; atom < 4; ++atom) {
      const auto columns =
          slice_descriptor<COLUMNS_K_MAJOR>(shared.columns_of(place.stage), first_column, atom);
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        const auto rows =
            slice_descriptor<ROWS_K_MAJOR>(shared.rows_of(place.stage), first_row + 64 * block, atom);
        wgmma(sums[block], rows, columns, step > u.begin || atom > 0);
      }
    }
    wgmma_commit();
    // The step before this one is done: its stage may be loaded anew.
    if (step > u.begin) {
      wgmma_wait<1>();
      release(shared, before, rank);
    }
    before = place.stage;
    place.step();
  }
#if IN_TURNS
  named_arrive(8 + (1 - threadIdx.x / kWarpgroup), 2 * kWarpgroup);
#endif
  wgmma_wait<0>();
  fence_sums(sums);
  if (u.end > u.begin) release(shared, before, rank);
}

// Parts along K leave their sums in memory; whoever comes last adds all of them, in order. Says whether this one did.
__device__ __forceinline__ bool add_parts(
    sum_t (&sums)[kBlocks][kSums], const Unit& u, sum_t* workspace, unsigned* counters, int consumer,
    unsigned* last) {
  constexpr int kAll = kBlocks * kSums;
  const int thread = threadIdx.x % kWarpgroup, user = u.slot * kByRows * kByColumns + (IN_TURNS ? 0 : consumer);
  sum_t* const mine = workspace + static_cast<long long>(user) * u.parts * kAll * kWarpgroup + thread;
#pragma unroll
  for (int i = 0; i < kAll; ++i) store_partial(mine + (u.part * kAll + i) * kWarpgroup, sums[i / kSums][i % kSums]);
  __threadfence();
  named_sync(1 + consumer, kWarpgroup);
  if (thread == 0) {
    const unsigned came = atomicAdd(counters + user, 1u);
    if (came == u.parts - 1) counters[user] = 0;
    last[consumer] = came == u.parts - 1;
    __threadfence();
  }
  named_sync(1 + consumer, kWarpgroup);
  const bool is_last = last[consumer];
  named_sync(1 + consumer, kWarpgroup);
  if (!is_last) return false;
#pragma unroll
  for (int i = 0; i < kAll; ++i) sums[i / kSums][i % kSums] = 0;
  for (int part = 0; part < u.parts; ++part) {
#pragma unroll
    for (int i = 0; i < kAll; ++i) sums[i / kSums][i % kSums] += load_partial(mine + (part * kAll + i) * kWarpgroup);
  }
  return true;
}

#if DTYPE < 2 && STORES_BOXES
// 16-bit results go through shared memory to the TMA unit, in boxes of 64 rows and 64 columns of wgmma; what is left of a
// row of sums is a box of its own. Rows of a box are 128 bytes, swizzled; those of a narrower one are not.
__device__ __forceinline__ void store(
    const sum_t (&sums)[kBlocks][kSums], const OutMaps& maps, const Sizes& s, unsigned staging, int first_row,
    int first_column) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, consumer = threadIdx.x / kWarpgroup;
  const bool is_first = threadIdx.x % kWarpgroup == 0;
  const unsigned own = staging + consumer * kStagingBytes * BUFFERS;
  constexpr int kRest = kOwnColumns % 64;
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
    for (int chunk = 0; chunk < kOwnColumns; chunk += 64) {
      constexpr int kChunks = (kOwnColumns + 63) / 64;
      const int number = block * kChunks + chunk / 64, width = min(64, kOwnColumns - chunk);
      const bool is_narrow = !TURNED && width < 64;
      const unsigned to = own + number % BUFFERS * kStagingBytes;
      // Whoever asked the unit to store what lay here knows when it was read.
      if (is_first) wait_stored<BUFFERS - 1>();
      named_sync(1 + consumer, kWarpgroup);
#pragma unroll
      for (int j = 0; j < 8 && chunk + 8 * j < kOwnColumns; j += 2) {
        const int at = 4 * (chunk / 8 + j);
        const bool is_pair = chunk + 8 * j + 8 < kOwnColumns;
        unsigned words[4] = {};
#pragma unroll
        for (int i = 0; i < 4 && at + 2 * i < kSums; ++i)
          words[i] = narrow2(s.alpha * sums[block][at + 2 * i], s.alpha * sums[block][at + 2 * i + 1]);
        // Of the matrices of 8 by 8, the second has the lower rows, and the third and fourth the next columns.
        const int row = TURNED ? 8 * (j + lane / 16) + lane % 8 : 16 * warp + lane % 16;
        const int unit = TURNED ? 2 * warp + lane / 8 % 2 : j + lane / 16;
        const unsigned address =
            is_narrow ? to + row * (kRest * 2) + unit * 16 : to + row * 128 + ((unit ^ lane % 8) * 16);
        if (is_pair) {
          store_matrices<(TURNED != 0)>(address, words[0], words[1], words[2], words[3]);
        } else {
          // The address of lanes 16 to 31 is not used.
          store_matrices<(TURNED != 0)>(address, words[0], words[1]);
        }
      }
      fence_for_boxes();
      named_sync(1 + consumer, kWarpgroup);
      if (is_first) {
        const int x = TURNED ? first_row + 64 * block : first_column + chunk;
        const int y = TURNED ? first_column + chunk : first_row + 64 * block;
        store_box(width < 64 ? &maps.rest : &maps.whole, to, x, y);
      }
    }
  }
}

#elif DTYPE < 2
// 16-bit results go through shared memory, so that vectors of 16 bytes leave; a row of C is 64 elements there.
__device__ __forceinline__ void store(
    const sum_t (&sums)[kBlocks][kSums], out_t* c, const Sizes& s, unsigned staging, int first_row, int first_column) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, consumer = threadIdx.x / kWarpgroup;
  const unsigned own = staging + consumer * kStagingBytes + (TURNED ? 0 : warp * 16 * kStagingPitch);
  // C's rows and columns that 64 rows and 64 columns of wgmma are.
  const int c_rows = TURNED ? s.columns : s.rows, c_columns = TURNED ? s.rows : s.columns;
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
    for (int chunk = 0; chunk < kOwnColumns; chunk += 64) {
      constexpr int kAll = kOwnColumns / 8;
#pragma unroll
      for (int j = 0; j < 8 && chunk / 8 + j < kAll; ++j) {
        const int at = 4 * (chunk / 8 + j);
        const unsigned low = narrow2(s.alpha * sums[block][at], s.alpha * sums[block][at + 1]);
        const unsigned high = narrow2(s.alpha * sums[block][at + 2], s.alpha * sums[block][at + 3]);
        // Two matrices of 8 by 8: rows 0 to 7 of the warp's 16, and the others.
        const unsigned to = TURNED ? own + (8 * j + lane % 8) * kStagingPitch + (16 * warp + lane / 8 % 2 * 8) * 2
                                   : own + lane % 16 * kStagingPitch + 16 * j;
        store_matrices<(TURNED != 0)>(to, low, high);
      }
      if constexpr (TURNED) {
        named_sync(1 + consumer, kWarpgroup);
      } else {
        __syncwarp();
      }
      constexpr int kWarps = TURNED ? 4 : 1;
      // Rows of C in this chunk, of which a warp stores four at a time, and how many elements of each are results.
      const int height = TURNED ? min(64, kOwnColumns - chunk) : 16;
      const int width = TURNED ? 64 : min(64, kOwnColumns - chunk);
      const int row0 = TURNED ? first_column + chunk : first_row + 64 * block + 16 * warp;
      const int column0 = TURNED ? first_row + 64 * block : first_column + chunk;
      if (s.is_aligned) {
        const int column = lane % 8 * 8;
        for (int row = lane / 8 + (TURNED ? 4 * warp : 0); row < height; row += 4 * kWarps) {
          if (column >= width || row0 + row >= c_rows || column0 + column >= c_columns) continue;
          const uint4 v = load_shared(own + row * kStagingPitch + column * 2);
          // Rows of C are multiples of 8 elements long, so that no vector passes its end.
          *reinterpret_cast<uint4*>(c + (row0 + row) * s.stride + column0 + column) = v;
        }
      } else {
        for (int row = TURNED ? warp : 0; row < height; row += kWarps) {
          if (row0 + row >= c_rows) break;
          for (int column = lane; column < width && column0 + column < c_columns; column += 32)
            c[(row0 + row) * s.stride + column0 + column] = load_half(own + row * kStagingPitch + column * 2);
        }
      }
      if constexpr (TURNED) {
        named_sync(1 + consumer, kWarpgroup);
      } else {
        __syncwarp();
      }
    }
  }
}

#else
// 32-bit results leave from registers: eight lanes fill 32 bytes of a row either way.
__device__ __forceinline__ void store(
    const sum_t (&sums)[kBlocks][kSums], out_t* c, const Sizes& s, unsigned, int first_row, int first_column) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      const int row = first_row + 64 * block + 16 * warp + lane / 4 + (i & 2) * 4;
      const int column = first_column + i / 4 * 8 + lane % 4 * 2 + (i & 1);
      if (row >= s.rows || column >= s.columns) continue;
      const long long at = TURNED ? column * s.stride + row : row * s.stride + column;
      c[at] = widen_sum(s.alpha, sums[block][i]);
    }
  }
}
#endif

__device__ __forceinline__ void consume(
    const Sizes& s, To c, sum_t* workspace, unsigned* counters, const Shared& shared, unsigned* last, int rank) {
  const int consumer = threadIdx.x / kWarpgroup;
  const int first_row = IN_TURNS ? 0 : consumer / kByColumns * kOwnRows;
  const int first_column = IN_TURNS ? 0 : consumer % kByColumns * kOwnColumns;
  Place place;
#if IN_TURNS
  if (consumer == 1) named_arrive(8, 2 * kWarpgroup);
#endif
  int turn = 0;
  const int units = num_units(s), clusters = gridDim.x / kCluster;
  for (int number = blockIdx.x / kCluster; number < units; number += clusters, turn ^= 1) {
    const Unit u = unit_of(s, number, rank);
    if (IN_TURNS && turn != consumer) {
      place.skip(u.end - u.begin);
      continue;
    }
    sum_t sums[kBlocks][kSums];
#if IN_TURNS
    named_sync(8 + consumer, 2 * kWarpgroup);
#endif
    multiply(sums, u, shared, place, first_row, first_column, rank);
    if (u.parts > 1 && !add_parts(sums, u, workspace, counters, consumer, last)) continue;
    store(sums, c, s, shared.staging, u.row + first_row, u.column + first_column);
  }
}

extern "C" __global__ void __launch_bounds__((CONSUMERS + 1) * 128, RESIDENT)
    gemm(const __grid_constant__ TensorMap rows_map, const __grid_constant__ TensorMap columns_map,
#if STORES_BOXES
         const __grid_constant__ OutMaps c,
#else
         out_t* c,
#endif
         sum_t* workspace, unsigned* counters, const __grid_constant__ Sizes s) {
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ unsigned last[kConsumers];
  __shared__ __align__(8) unsigned long long barriers[2 * kStages];
  Shared shared;
  shared.ring = shared_address(memory);
  shared.staging = shared.ring + kStages * kStageBytes;
  shared.full = shared_address(barriers);
  shared.empty = shared.full + 8 * kStages;
  const int rank = kCluster > 1 ? static_cast<int>(block_in_cluster()) : 0;
  if (threadIdx.x == kConsumers * kWarpgroup) {
    prefetch_map(&rows_map);
    prefetch_map(&columns_map);
#if STORES_BOXES
    prefetch_map(&c.whole);
    prefetch_map(&c.rest);
#endif
  }
  if (threadIdx.x == 0) {
    constexpr int kReaders = (kClusterRows + kClusterColumns - 1) * 4 * (IN_TURNS ? 1 : kConsumers);
    for (int i = 0; i < kStages; ++i) {
      barrier_init(shared.full + 8 * i, 1);
      barrier_init(shared.empty + 8 * i, kReaders);
    }
    fence_barrier_init();
  }
  if constexpr (kCluster > 1) {
    cluster_sync();
  } else {
    __syncthreads();
  }
  if (threadIdx.x / kWarpgroup == kConsumers) {
    fewer_registers();
    if (threadIdx.x == kConsumers * kWarpgroup) {
      produce(&rows_map, &columns_map, s, shared, rank);
    }
    __syncwarp();
  } else {
    more_registers();
    consume(s, c, workspace, counters, shared, last, rank);
#if STORES_BOXES
    if (threadIdx.x % kWarpgroup == 0) wait_stored<0>();
#endif
  }
  // Other blocks of the cluster may still arrive here.
  if constexpr (kCluster > 1) cluster_sync();
}
