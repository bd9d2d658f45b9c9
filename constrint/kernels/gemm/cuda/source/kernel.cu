// C = A @ B on Hopper: one warp loads slices of both operands through the TMA unit into a ring, one to three warpgroups
// multiply them with wgmma, and blocks of a cluster load what they share once.
//
// "Rows" and "columns" are those of wgmma: 64 rows each, and columns in steps of 8. With TURNED the rows of wgmma are C's
// columns. The grid is persistent: clusters walk over units of work, which are tiles, or parts along K of the last tiles.
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
};

// Where results go: to boxes of C, or to its address.
#if STORES_BOXES
typedef OutMaps To;
#else
typedef out_t* To;
#endif

struct Unit {
  int row, column, begin, end, part, parts, slot;
};

__device__ __forceinline__ int num_units(const Sizes& s) {
  const int tiles = s.row_tiles * s.column_tiles;
  return SPLITS ? s.whole + (tiles - s.whole) * s.parts : tiles;
}

// A quotient by what the host knows: the upper word of a product with a rounded reciprocal, 2^(31 + bits) / divisor, is
// exact below 2^31. Dividing by 1 has none. A division that the compiler makes takes ten times as long, between tiles.
__device__ __forceinline__ int quotient(int number, unsigned long long by) {
  const unsigned reciprocal = static_cast<unsigned>(by), shift = static_cast<unsigned>(by >> 32);
  return reciprocal == 0 ? number : static_cast<int>(__umulhi(static_cast<unsigned>(number), reciprocal) >> shift);
}

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
  const int group = quotient(tile, s.by_group), first = group * s.group, place = tile - first * s.column_tiles;
  const bool is_last = s.row_tiles - first < s.group;
  const int height = is_last ? s.row_tiles - first : s.group;
  const int column = quotient(place, is_last ? s.by_last : s.by_height);
  u.row = ((first + place - column * height) * kClusterRows + rank / kClusterColumns) * kRows;
  u.column = (column * kClusterColumns + rank % kClusterColumns) * kColumns;
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

// Adds some of a part's sums, from a number on, which are loaded together. Four of a thread lie next to each other.
template <int kNumber>
__device__ __forceinline__ void add_stored(sum_t (&sums)[kBlocks][kSums], const sum_t* stored, int first) {
  constexpr int kAll = kBlocks * kSums;
#pragma unroll
  for (int i = first; i < kAll && i < first + kNumber; i += 4) {
    sum_t four[4];
    load_partials(stored + i * kWarpgroup, four);
#pragma unroll
    for (int j = 0; j < 4; ++j) sums[i / kSums][i % kSums + j] += four[j];
  }
}

// Two counters of whoever computes parts of the same sums: how many have begun, and how many have left theirs in memory.
__device__ __forceinline__ unsigned* counters_of(const Unit& u, unsigned* counters, int consumer) {
  return counters + 2 * (u.slot * kByRows * kByColumns + (IN_TURNS ? 0 : consumer));
}

// Parts along K leave their sums in memory. Whoever began last waits for the others and adds all, in order, so that
// results do not depend on who it is; of two it adds the other's to its own. Says whether this one did. Whoever is waited
// for has begun, and waits for none but units with smaller numbers: this ends however many blocks are resident.
__device__ __forceinline__ bool add_parts(
    sum_t (&sums)[kBlocks][kSums], const Unit& u, sum_t* workspace, unsigned* counters, unsigned begun,
    int consumer) {
  // Registers that are left beside all sums hold what is under way: of one part, or of two at a time.
  constexpr int kAll = kBlocks * kSums, kFree = kConsumerRegisters - kAll - (IS_PLAIN ? 48 : 64);
  constexpr bool kKeeps = kFree >= 48;  // its own of two parts
  constexpr int kBatch = kFree < 32 ? 8 : kFree > 128 ? 64 : kFree / 16 * 8;
  const int thread = thread_anew() % kWarpgroup, user = u.slot * kByRows * kByColumns + (IN_TURNS ? 0 : consumer);
  sum_t* const all = workspace + static_cast<long long>(user) * u.parts * kAll * kWarpgroup + thread * 4;
  const bool is_last = named_any(1 + consumer, kWarpgroup, thread == 0 && begun == u.parts - 1);
  if (!is_last || !kKeeps || u.parts > 2) {
#pragma unroll
    for (int i = 0; i < kAll; i += 4) {
      const int block = i / kSums, at = i % kSums;
      const sum_t four[4] = {sums[block][at], sums[block][at + 1], sums[block][at + 2], sums[block][at + 3]};
      store_partials(all + (u.part * kAll + i) * kWarpgroup, four);
    }
  }
  if (!is_last) {
    // One thread speaks for all that it has synchronised with.
    named_sync(1 + consumer, kWarpgroup);
    if (thread == 0) tell(counters_of(u, counters, consumer) + 1);
    return false;
  }
  if (thread == 0) {
    unsigned* const mine = counters_of(u, counters, consumer);
    while (told(mine + 1) != u.parts - 1) {
    }
    mine[0] = mine[1] = 0;
  }
  named_sync(1 + consumer, kWarpgroup);
  if (kKeeps && u.parts == 2) {
    const sum_t* const other = all + (1 - u.part) * kAll * kWarpgroup;
#pragma unroll
    for (int first = 0; first < kAll; first += 48) add_stored<48>(sums, other, first);
    return true;
  }
#pragma unroll
  for (int first = 0; first < kAll; first += kBatch) {
#pragma unroll
    for (int i = first; i < kAll && i < first + kBatch; ++i) sums[i / kSums][i % kSums] = 0;
#pragma unroll 2
    for (int part = 0; part < u.parts; ++part) add_stored<kBatch>(sums, all + part * kAll * kWarpgroup, first);
  }
  return true;
}

#if STORES_BOXES
static_assert(IS_PLAIN, "boxes take sums as they are");
// 16-bit results go through shared memory to the TMA unit, in boxes of 64 rows and 64 columns of wgmma; what is left of a
// row of sums is a box of its own. Rows of a box are 128 bytes, swizzled; those of a narrower one are not. Boxes of each
// warp's own 16 rows, which wait for no other warp, took longer.
__device__ __forceinline__ void store(
    const sum_t (&sums)[kBlocks][kSums], const OutMaps& maps, const Sizes& s, unsigned staging, int first_row,
    int first_column) {
  const int index = thread_anew(), lane = index % 32, warp = index / 32 % 4, consumer = index / kWarpgroup;
  const bool is_first = index % kWarpgroup == 0;
  const unsigned own = staging + consumer * kStagingBytes * BUFFERS;
  constexpr int kRest = kOwnColumns % 64;
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
    for (int chunk = 0; chunk < kOwnColumns; chunk += 64) {
      constexpr int kChunks = (kOwnColumns + 63) / 64;
      // Buffers are taken in turns; a unit of an odd number of boxes ends with the one that the next begins with.
      constexpr int kUnread = kBlocks * kChunks % 2 ? 0 : BUFFERS - 1;
      const int number = block * kChunks + chunk / 64, width = min(64, kOwnColumns - chunk);
      const bool is_narrow = !TURNED && width < 64;
      const unsigned to = own + number % BUFFERS * kStagingBytes;
      // Whoever asked the unit to store what lay here knows when it was read.
      if (is_first) {
        if (number == 0) {
          wait_stored<kUnread>();
        } else {
          wait_stored<BUFFERS - 1>();
        }
      }
      named_sync(1 + consumer, kWarpgroup);
#pragma unroll
      for (int j = 0; j < 8 && chunk + 8 * j < kOwnColumns; j += 2) {
        const int at = 4 * (chunk / 8 + j);
        const bool is_pair = chunk + 8 * j + 8 < kOwnColumns;
        unsigned words[4] = {};
#pragma unroll
        for (int i = 0; i < 4 && at + 2 * i < kSums; ++i)
          words[i] = narrow2(s.end.alpha * sums[block][at + 2 * i], s.end.alpha * sums[block][at + 2 * i + 1]);
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
        store_box(width < 64 ? maps.rest : maps.whole, to, x, y);
      }
    }
  }
}

#else
// Sums go through shared memory, 24 columns of wgmma at a time, and are finished in the order of C: a loop that is not
// unrolled takes few registers beside the sums that wait, and reads and writes rows of C.
__device__ __forceinline__ void store(
    const sum_t (&sums)[kBlocks][kSums], out_t* c, const Sizes& s, unsigned staging, int first_row, int first_column) {
  constexpr int kChunk = 24, kWidth = TURNED ? 64 : kChunk, kPitch = kWidth * 4 + 16;
  constexpr int kThreads = TURNED ? kWarpgroup : 32;
  static_assert((TURNED ? kChunk : 64) * kPitch <= kStagingBytes, "a chunk fits");
  const int index = thread_anew(), lane = index % 32, warp = index / 32 % 4, consumer = index / kWarpgroup;
  const unsigned own = staging + consumer * kStagingBytes * BUFFERS + (TURNED ? 0 : warp * 16 * kPitch);
  const int c_rows = TURNED ? s.columns : s.rows, c_columns = TURNED ? s.rows : s.columns;
  const int thread = TURNED ? index % kWarpgroup : lane;
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
    for (int chunk = 0; chunk < kOwnColumns; chunk += kChunk) {
#pragma unroll
      for (int i = chunk / 2; i < kSums && i < (chunk + kChunk) / 2; i += 2) {
        const int row = lane / 4 + (i & 2) * 4, column = i / 4 * 8 - chunk + lane % 4 * 2;
        if constexpr (TURNED) {
          store_shared(own + column * kPitch + (16 * warp + row) * 4, sums[block][i]);
          store_shared(own + (column + 1) * kPitch + (16 * warp + row) * 4, sums[block][i + 1]);
        } else {
          store_shared(own + row * kPitch + column * 4, sums[block][i], sums[block][i + 1]);
        }
      }
      if constexpr (TURNED) {
        named_sync(1 + consumer, kWarpgroup);
      } else {
        __syncwarp();
      }
      const int left = min(kChunk, kOwnColumns - chunk);
      const int row0 = TURNED ? first_column + chunk : first_row + 64 * block + 16 * warp;
      const int column0 = TURNED ? first_row + 64 * block : first_column + chunk;
      const int height = min(TURNED ? left : 16, c_rows - row0), width = min(TURNED ? 64 : left, c_columns - column0);
      if (s.is_aligned) {
        // Rows of C are whole vectors of 16 bytes, so that none passes its end.
        finish_rows<4, kWidth, kPitch, kThreads>(
            own, c, s.stride, s.end, row0, column0, height, width, thread);
      } else {
        finish_rows<1, kWidth, kPitch, kThreads>(own, c, s.stride, s.end, row0, column0, height, width, thread);
      }
      if constexpr (TURNED) {
        named_sync(1 + consumer, kWarpgroup);
      } else {
        __syncwarp();
      }
    }
  }
}
#endif

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
    unsigned begun = 0;
    if (SPLITS && number >= s.whole && threadIdx.x % kWarpgroup == 0) begun = count(counters_of(u, counters, consumer));
    multiply(sums, u, shared, place, first_row, first_column, rank);
    if constexpr (kCluster > 1) {
      // It arrives at no other block any more: those need not wait until its results are stored.
      if (number + clusters * (IN_TURNS ? 2 : 1) >= units) cluster_arrive();
    }
    if (SPLITS && number >= s.whole) {
      // Which part this is takes registers beside all sums, unless it is found anew.
      if (!add_parts(sums, unit_of(s, anew(number), rank), workspace, counters, begun, consumer)) continue;
    }
    store(sums, c, s, shared.staging, u.row + first_row, u.column + first_column);
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
         const __grid_constant__ unsigned long long by_parts) {
  const Sizes s = {rows,  columns, depth,  row_tiles,  column_tiles,
                   group, whole,   parts,  stride,     is_aligned,
                   {bias, source,  source_row, source_column, alpha, beta},
                   by_group, by_height, by_last, by_parts};
#if STORES_BOXES
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
  if (threadIdx.x / kWarpgroup == kConsumers) {
    fewer_registers();
    if (threadIdx.x == kConsumers * kWarpgroup) {
      produce(&rows_map, &columns_map, s, shared, rank);
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
