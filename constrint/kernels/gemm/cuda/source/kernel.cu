// C = A @ B on Hopper: one warp loads slices of both operands through the TMA unit into a ring, one to three warpgroups
// multiply them with wgmma, and blocks of a cluster load what they share once.
//
// "Rows" and "columns" are those of wgmma: 64 rows each, and columns in steps of 8. With TURNED the rows of wgmma are C's
// columns. The grid is persistent: clusters walk over units of work, which are tiles, or parts along K of the last tiles.
// With BATCHED there are several products of the same sizes, whose tiles follow each other; no tile crosses two of them.
// With GROUPED, a batch too, rows of A (rows of wgmma, or with TURNED its columns) are dealt to products one after the
// other, some to each: where those of a product end, the device alone knows.
#ifndef BATCHED
#define BATCHED 0
#endif
#ifndef GROUPED
#define GROUPED 0
#endif
#include "instructions.cuh"

#include "epilogue.cuh"

// 1 where the launch says that it may begin before the launches ahead of it in its stream have ended.
#ifndef OVERLAPS
#define OVERLAPS 0
#endif

constexpr int kRows = ROWS, kColumns = COLUMNS, kStages = STAGES, kConsumers = CONSUMERS;
constexpr int kClusterRows = CLUSTER_ROWS, kClusterColumns = CLUSTER_COLUMNS, kCluster = kClusterRows * kClusterColumns;
// Consumers share a tile, by rows or by columns, or take tiles in turns.
constexpr int kByColumns = IN_TURNS ? 1 : CONSUMERS_BY_COLUMNS, kByRows = IN_TURNS ? 1 : kConsumers / kByColumns;
constexpr int kOwnRows = kRows / kByRows, kOwnColumns = kColumns / kByColumns, kBlocks = kOwnRows / 64;
constexpr int kSums = kOwnColumns / 2;  // of a thread and a block of 64 rows
// With GATED the first half of a tile's columns is of one operand and the second half of another: of both factors of a
// result a thread has the sums. Columns of results are half as many.
constexpr int kHalves = GATED ? 2 : 1, kOutColumns = kOwnColumns / kHalves;
constexpr int kElement = ELEMENT_BYTES, kDepth = 128 / kElement;
// An operand that is contiguous along K lies in rows of 128 bytes; another in slabs 128 bytes wide.
constexpr int kSlabBytes = kDepth * 128;
constexpr int kRowsBytes = ROWS_K_MAJOR ? kRows * 128 : (kRows * kElement + 127) / 128 * kSlabBytes;
constexpr int kColumnsBytes = COLUMNS_K_MAJOR ? kColumns * 128 : (kColumns * kElement + 127) / 128 * kSlabBytes;
constexpr int kStageBytes = kRowsBytes + kColumnsBytes;
constexpr int kStagingBytes = 64 * 128;  // of a warpgroup and a buffer, where results are put in order
constexpr int kWarpgroup = 128;
// A named barrier: those of the ring are made. Consumers have 1 to 3, and 8 and 9 where they take turns.
constexpr int kMade = 7;
static_assert(kOwnRows % 64 == 0 && kOwnColumns % 8 == 0 && kOwnColumns <= 256, "what wgmma takes");
static_assert(!IN_TURNS || kConsumers == 2, "two take tiles in turns");
static_assert(!GATED || (!TURNED && kByColumns == 1 && STORES_BOXES && !BATCHED && SOURCE == 0), "pairs leave in boxes");
static_assert(!GATED || kColumns % (COLUMNS_K_MAJOR ? 16 * kClusterRows : 256 / kElement) == 0, "halves are whole boxes");
static_assert(!TRACED || (!BATCHED && !GATED), "a traced epilogue ends one product");
static_assert(!GROUPED || (BATCHED && !SPLITS && SOURCE == 0), "tiles are whole, and end where their product's rows end");
// A block counts who has read what it loaded. Of four blocks not all read from all: one that loads nothing for a
// neighbour does not keep it from running ahead, so that the neighbour would be counted twice.
constexpr bool kDealsRows = ROWS_K_MAJOR ? kRows % (8 * kClusterColumns) == 0 : kRows * kElement > 128;
constexpr bool kDealsColumns = COLUMNS_K_MAJOR ? kColumns % (8 * kClusterRows) == 0 : kColumns * kElement > 128;
static_assert(kCluster < 4 || (kDealsRows && kDealsColumns), "each of four blocks loads a part of every slice");

// The kernel's parameters, where they are: read when they are used, they take no registers beside the sums.
struct Sizes {
  const int &rows, &columns, &depth;       // of the product, as wgmma sees it
  const int &row_tiles, &column_tiles;     // in tiles of a cluster
  const int& group;                        // rows of cluster tiles that are walked together
  const int &whole, &parts;                // cluster tiles that are not split, and parts of each of the others
  const long long& stride;                 // elements from one row of C to the next
  const int& is_aligned;                   // whether vectors of 16 bytes of C can be stored
  End end;
  // How to divide by tiles of a group, by its rows, by those of the last group, and by parts; see `quotient`.
  const unsigned long long &by_group, &by_height, &by_last, &by_parts;
#if BATCHED
  const int& batch;                                // products
  const int &rows_step, &columns_step;             // 1: each product has an operand of its own; 0: all share one
  const long long &out_batch, &source_batch;       // from one product to the next: elements of C, bytes of the source
  const unsigned long long& by_product;            // how to divide by the tiles of one product
  const void* const& first_source;                 // the source of the first product
  const void*& source;                             // that of the product that is stored, to which `end` refers
#endif
#if GROUPED
  const long long& bias_batch;                     // from one product to the next: bytes of the bias
  const void* const& first_bias;                   // the bias of the first product
  const void*& bias;                               // that of the product that is stored
  int& limit;                                      // where its rows end: what else is called rows, with TURNED columns
  out_t* const& out;                               // C
#endif
};

// Where results go: to boxes of C, or to its address.
#if STORES_BOXES
typedef OutMaps To;
#else
typedef out_t* To;
#endif

struct Unit {
  int row, column, begin, end, part, parts, slot;
#if BATCHED
  int batch;  // which product
#endif
};

#if !GROUPED
__device__ __forceinline__ int num_units(const Sizes& s) {
#if BATCHED
  const int tiles = s.row_tiles * s.column_tiles * s.batch;
#else
  const int tiles = s.row_tiles * s.column_tiles;
#endif
  return SPLITS ? s.whole + (tiles - s.whole) * s.parts : tiles;
}
#endif

// A quotient by what the host knows: the upper word of a product with a rounded reciprocal, 2^(31 + bits) / divisor, is
// exact below 2^31. Dividing by 1 has none. A division that the compiler makes takes ten times as long, between tiles.
__device__ __forceinline__ int quotient(int number, unsigned long long by) {
  const unsigned reciprocal = static_cast<unsigned>(by), shift = static_cast<unsigned>(by >> 32);
  return reciprocal == 0 ? number : static_cast<int>(__umulhi(static_cast<unsigned>(number), reciprocal) >> shift);
}

#if GROUPED
#include "groups.cuh"
#else
__device__ __forceinline__ Unit unit_of(const Sizes& s, int number, int rank) {
  Unit u;
  int tile = number;
  const int steps = (s.depth + kDepth - 1) / kDepth;
  u.part = 0, u.parts = 1, u.slot = 0, u.begin = 0, u.end = steps;
  if (SPLITS && number >= s.whole) {
    const int split = quotient(number - s.whole, s.by_parts), each = quotient(steps, s.by_parts);
    tile = s.whole + split;
    u.part = number - s.whole - split * s.parts, u.parts = s.parts;
    u.slot = split * kCluster + rank;
    // The first parts have a slice more where parts are not equal.
    const int more = steps - each * s.parts;
    u.begin = u.part * each + min(u.part, more), u.end = u.begin + each + (u.part < more);
  }
#if BATCHED
  u.batch = quotient(tile, s.by_product);
  tile -= u.batch * (s.row_tiles * s.column_tiles);
#endif
  const int group = quotient(tile, s.by_group), first = group * s.group, place = tile - first * s.column_tiles;
  const bool is_last = s.row_tiles - first < s.group;
  const int height = is_last ? s.row_tiles - first : s.group;
  const int column = quotient(place, is_last ? s.by_last : s.by_height);
  u.row = ((first + place - column * height) * kClusterRows + rank / kClusterColumns) * kRows;
  u.column = (column * kClusterColumns + rank % kClusterColumns) * kColumns;
  return u;
}
#endif

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
#if GROUPED
  const int* groups;  // see `groups.cuh`
#endif
  __device__ __forceinline__ unsigned rows_of(int stage) const { return ring + stage * kStageBytes; }
  __device__ __forceinline__ unsigned columns_of(int stage) const { return rows_of(stage) + kRowsBytes; }
};

// One operand's slice of a tile: this block loads its part of it, for all blocks that share the slice. Where parts would
// not be whole atoms of eight rows, blocks load the whole slice in turns, by the stage.
template <bool kIsKMajor, int kWidth, int kShares>
__device__ __forceinline__ void load_slice(
    MatrixMap map, unsigned to, unsigned barrier, int first, int k, int share, int stage, unsigned short mask) {
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
    const TensorMap* rows_map, const TensorMap* columns_map,
#if GATED
    const TensorMap* others_map,
#endif
    const Sizes& s, const Shared& shared, int rank) {
  const int row_place = rank / kClusterColumns, column_place = rank % kClusterColumns;
  // The slice of rows is the same in all blocks beside each other, that of columns in all above each other.
  const unsigned short rows_mask = ((1 << kClusterColumns) - 1) << (row_place * kClusterColumns);
  unsigned short columns_mask = 0;
  for (int i = 0; i < kClusterRows; ++i) columns_mask |= 1 << (i * kClusterColumns + column_place);
  Place place;
#if GROUPED
  Walk walk;
  const int units = num_units(s, shared.groups), clusters = gridDim.x / kCluster;
#else
  const int units = num_units(s), clusters = gridDim.x / kCluster;
#endif
  for (int number = blockIdx.x / kCluster; number < units; number += clusters) {
#if GROUPED
    walk.find(shared.groups, number);
    const Unit u = unit_of(s, number, rank, walk);
#else
    const Unit u = unit_of(s, number, rank);
#endif
#if BATCHED
    const MatrixMap rows_from = {rows_map, u.batch * s.rows_step}, columns_from = {columns_map, u.batch * s.columns_step};
#else
    const MatrixMap rows_from = rows_map, columns_from = columns_map;
#endif
    for (int step = u.begin; step < u.end; ++step, place.step()) {
      wait(shared.empty + 8 * place.stage, place.parity ^ 1);
      const unsigned full = shared.full + 8 * place.stage;
      expect(full, kStageBytes);
      const int k = step * kDepth;
      load_slice<ROWS_K_MAJOR, kRows, kClusterColumns>(
          rows_from, shared.rows_of(place.stage), full, u.row, k, column_place, place.stage, rows_mask);
#if GATED
      load_slice<COLUMNS_K_MAJOR, kColumns / 2, kClusterRows>(
          columns_from, shared.columns_of(place.stage), full, u.column / 2, k, row_place, place.stage, columns_mask);
      load_slice<COLUMNS_K_MAJOR, kColumns / 2, kClusterRows>(
          others_map, shared.columns_of(place.stage) + kColumnsBytes / 2, full, u.column / 2, k, row_place, place.stage,
          columns_mask);
#else
      load_slice<COLUMNS_K_MAJOR, kColumns, kClusterRows>(
          columns_from, shared.columns_of(place.stage), full, u.column, k, row_place, place.stage, columns_mask);
#endif
    }
  }
}

// Tells all blocks that load into this one's ring that a warp has read a stage.
__device__ __forceinline__ void release(const Shared& shared, int stage, int rank) {
  const unsigned barrier = shared.empty + 8 * stage;
  const int lane = threadIdx.x % 32;
  if (lane == 0) arrive(barrier);
  if constexpr (kCluster > 1) {
    // After its own: whoever is told goes on to load, and may come to the barrier above once more.
    __syncwarp();
    const int row_place = rank / kClusterColumns, column_place = rank % kClusterColumns;
    const int above = lane - kClusterColumns;
    if (lane < kClusterColumns && lane != column_place) {
      arrive_at(barrier, row_place * kClusterColumns + lane);
    } else if (lane >= kClusterColumns && above < kClusterRows && above != row_place) {
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

#if PROMOTES
// The matrix units add products of 8-bit floats in too few bits: sums of every slice, 128 products, are added in fp32.
__device__ __forceinline__ void multiply_promoted(
    sum_t (&sums)[kBlocks][kSums], const Unit& u, const Shared& shared, Place& place, int first_row, int first_column,
    int rank) {
#pragma unroll
  for (int i = 0; i < kBlocks * kSums; ++i) sums[i / kSums][i % kSums] = 0;
  for (int step = u.begin; step < u.end; ++step) {
    sum_t products[kBlocks][kSums];
    wait(shared.full + 8 * place.stage, place.parity);
    fence_sums(products);
    wgmma_fence();
#pragma unroll
    for (int atom = 0; atom < 4; ++atom) {
      const auto columns = slice_descriptor<COLUMNS_K_MAJOR>(shared.columns_of(place.stage), first_column, atom);
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        const auto rows = slice_descriptor<ROWS_K_MAJOR>(shared.rows_of(place.stage), first_row + 64 * block, atom);
        wgmma(products[block], rows, columns, atom > 0);
      }
    }
    wgmma_commit();
    wgmma_wait<0>();
    fence_sums(products);
    release(shared, place.stage, rank);
    place.step();
#pragma unroll
    for (int i = 0; i < kBlocks * kSums; ++i) sums[i / kSums][i % kSums] += products[i / kSums][i % kSums];
  }
#if IN_TURNS
  named_arrive(8 + (1 - threadIdx.x / kWarpgroup), 2 * kWarpgroup);
#endif
}
#endif

__device__ __forceinline__ void multiply(
    sum_t (&sums)[kBlocks][kSums], const Unit& u, const Shared& shared, Place& place, int first_row, int first_column,
    int rank) {
#if PROMOTES
  multiply_promoted(sums, u, shared, place, first_row, first_column, rank);
#else
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
#endif
}

#include "parts.cuh"
#include "store.cuh"

__device__ __forceinline__ void consume(
    const Sizes& s, To c, sum_t* workspace, unsigned* counters, const Shared& shared, int rank) {
  const int consumer = threadIdx.x / kWarpgroup;
  const int first_row = IN_TURNS ? 0 : consumer / kByColumns * kOwnRows;
  const int first_column = IN_TURNS ? 0 : consumer % kByColumns * kOwnColumns;
  Place place;
#if IN_TURNS
  if (consumer == 1) named_arrive(8, 2 * kWarpgroup);
#endif
  int turn = 0;
#if GROUPED
  Walk walk;
  const int units = num_units(s, shared.groups), clusters = gridDim.x / kCluster;
#else
  const int units = num_units(s), clusters = gridDim.x / kCluster;
#endif
  for (int number = blockIdx.x / kCluster; number < units; number += clusters, turn ^= 1) {
#if GROUPED
    walk.find(shared.groups, number);
    const Unit u = unit_of(s, number, rank, walk);
#else
    const Unit u = unit_of(s, number, rank);
#endif
    if (IN_TURNS && turn != consumer) {
      place.skip(u.end - u.begin);
      continue;
    }
    sum_t sums[kBlocks][kSums];
#if IN_TURNS
    named_sync(8 + consumer, 2 * kWarpgroup);
#endif
    unsigned begun = 0;
    if (SPLITS && number >= s.whole && threadIdx.x % kWarpgroup == 0) begun = count(counters_of(u, counters, consumer));
#if STORES_BOXES && !IS_PLAIN
#if BATCHED && SOURCE
    s.source = static_cast<const unsigned char*>(s.first_source) + u.batch * s.source_batch;
#endif
    prefetch_addends(s, u.row + first_row, (u.column + first_column) / kHalves);
#endif
    multiply(sums, u, shared, place, first_row, first_column, rank);
    if constexpr (kCluster > 1) {
      // It arrives at no other block any more: those need not wait until its results are stored.
      if (number + clusters * (IN_TURNS ? 2 : 1) >= units) cluster_arrive();
    }
#if !GROUPED
    if (SPLITS && number >= s.whole) {
      // Which part this is takes registers beside all sums, unless it is found anew.
      if (!add_parts(sums, unit_of(s, anew(number), rank), workspace, counters, begun, consumer)) continue;
    }
#endif
#if GROUPED
    s.limit = walk.end;
    if constexpr (BIAS != 0) s.bias = static_cast<const unsigned char*>(s.first_bias) + walk.product * s.bias_batch;
#if STORES_BOXES
    const bool is_whole = (TURNED ? u.column + first_column + kOwnColumns : u.row + first_row + kOwnRows) <= walk.end;
    if (!is_whole) {
      // A box would reach into rows of the next product. Its threads store where boxes wait to be stored.
      if (threadIdx.x % kWarpgroup == 0) wait_stored<0>();
      named_sync(1 + consumer, kWarpgroup);
      store(sums, s.out, s, shared.staging, u.row + first_row, u.column + first_column);
      named_sync(1 + consumer, kWarpgroup);
      continue;
    }
#endif
    const To to = c;
#elif BATCHED
    // Found anew, too: it takes no registers beside all sums.
    const int batch = unit_of(s, anew(number), rank).batch;
#if STORES_BOXES
    const To to = {{c.whole.map, batch}, {c.rest.map, batch}};
#else
    const To to = c + batch * s.out_batch;
    if constexpr (SOURCE != 0) s.source = static_cast<const unsigned char*>(s.first_source) + batch * s.source_batch;
#endif
#else
    const To to = c;
#endif
    store(sums, to, s, shared.staging, u.row + first_row, (u.column + first_column) / kHalves);
  }
  if constexpr (kCluster > 1) {
    // Whoever had no unit has not arrived yet.
    if (blockIdx.x / kCluster + (IN_TURNS ? consumer * clusters : 0) >= units) cluster_arrive();
  }
}

extern "C" __global__ void __launch_bounds__((CONSUMERS + 1) * 128, RESIDENT)
    gemm(const __grid_constant__ TensorMap rows_map, const __grid_constant__ TensorMap columns_map,
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
         const __grid_constant__ unsigned long long by_parts
#if BATCHED
         ,
         const __grid_constant__ int batch, const __grid_constant__ int rows_step,
         const __grid_constant__ int columns_step, const __grid_constant__ long long out_batch,
         const __grid_constant__ long long source_batch, const __grid_constant__ unsigned long long by_product
#endif
#if GROUPED
         ,
         const int* const __grid_constant__ offsets, const __grid_constant__ long long bias_batch,
         out_t* const __grid_constant__ out
#endif
#if GATED
         ,
         const __grid_constant__ TensorMap others_map
#endif
#if TRACED
         TRACED_PARAMETERS
#endif
  ) {
#if GROUPED
  // What every unit finds for itself, in place of parameters.
  const void* own_bias = bias;
  int limit = 0;
  const int &c_rows = TURNED ? rows : limit, &c_columns = TURNED ? limit : columns;
#else
  const void* const& own_bias = bias;
  const int &c_rows = rows, &c_columns = columns;
#endif
#if BATCHED
  const void* own_source = source;
#else
  const void* const& own_source = source;
#endif
#if TRACED
  const Operands operands = TRACED_VALUES;
#endif
  const Sizes s = {c_rows, c_columns, depth, row_tiles, column_tiles,
                   group, whole,   parts,  stride,     is_aligned,
                   {own_bias, own_source,  source_row, source_column, alpha, beta
#if TRACED
                    ,
                    operands
#endif
                   },
                   by_group, by_height, by_last, by_parts
#if BATCHED
                   ,
                   batch, rows_step, columns_step, out_batch, source_batch, by_product, source, own_source
#endif
#if GROUPED
                   ,
                   bias_batch, bias, own_bias, limit, out
#endif
  };
#if STORES_BOXES && BATCHED
  const To c = {{&whole_map, 0}, {&rest_map, 0}};
#elif STORES_BOXES
  const To c = {&whole_map, &rest_map};
#endif
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ __align__(8) unsigned long long barriers[2 * kStages];
  Shared shared;
  shared.ring = shared_address(memory);
  shared.staging = shared.ring + kStages * kStageBytes;
  shared.full = shared_address(barriers);
  shared.empty = shared.full + 8 * kStages;
  const int rank = kCluster > 1 ? static_cast<int>(block_in_cluster()) : 0;
  if (threadIdx.x / 32 == kConsumers * kWarpgroup / 32) {
    constexpr int kReaders = (kClusterRows + kClusterColumns - 1) * 4 * (IN_TURNS ? 1 : kConsumers);
    // By one thread: the compiler would have many do it one after the other, with a fence for each.
    if (threadIdx.x % 32 == 0) {
      prefetch_map(&rows_map);
      prefetch_map(&columns_map);
#if GATED
      prefetch_map(&others_map);
#endif
#pragma unroll
      for (int i = 0; i < kStages; ++i) {
        barrier_init(shared.full + 8 * i, 1);
        barrier_init(shared.empty + 8 * i, kReaders);
      }
      fence_barrier_init();
#if STORES_BOXES
      prefetch_map(&whole_map);
      prefetch_map(&rest_map);
#endif
    }
    __syncwarp();
  }
  // The warp that loads made the barriers itself: it waits for other blocks of its cluster, but not for its own.
  if constexpr (kCluster > 1) {
    cluster_arrive();
    cluster_wait();
  } else if (threadIdx.x / 32 == kConsumers * kWarpgroup / 32) {
    named_arrive(kMade, kConsumers * kWarpgroup + 32);
  } else if (threadIdx.x / kWarpgroup < kConsumers) {
    named_sync(kMade, kConsumers * kWarpgroup + 32);
  }
#if OVERLAPS
  wait_for_launches();
#endif
#if GROUPED
  int* const groups = reinterpret_cast<int*>(memory + kStages * kStageBytes + kConsumers * kStagingBytes * BUFFERS);
  shared.groups = groups;
  if (threadIdx.x / 32 == 0) find_groups(groups, offsets, s, TURNED ? columns : rows);
  __syncthreads();
  clear_rest(groups, s, TURNED ? columns : rows, TURNED ? rows : columns);
#endif
  if (threadIdx.x / kWarpgroup == kConsumers) {
    fewer_registers();
    if (threadIdx.x == kConsumers * kWarpgroup) {
#if GATED
      produce(&rows_map, &columns_map, &others_map, s, shared, rank);
#else
      produce(&rows_map, &columns_map, s, shared, rank);
#endif
    }
    __syncwarp();
    if constexpr (kCluster > 1) cluster_arrive();
  } else {
    more_registers();
    consume(s, c, workspace, counters, shared, rank);
#if STORES_BOXES
    if (threadIdx.x % kWarpgroup == 0) wait_stored<0>();
#endif
  }
  // Other blocks of the cluster may still arrive here.
  if constexpr (kCluster > 1) cluster_wait();
}
