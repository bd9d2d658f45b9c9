// How the blocks of a head meet in a backward step, by partial sums: each multiplies the gradients of its own gates, which
// stay in registers, with its rows of the weights, for the units of all blocks, and gives every block its part of the sums.
// A block adds the parts that it gets. So a step moves 2 D elements of a sequence for each block, D written and D read,
// where `meeting.cuh` reads those of all gates.
//
// Parts are rounded to 16 bits, as the gradients are that are multiplied. They stand in a ring of two steps. The lowest bit
// of a vector says in which round of the ring it was written (`whole.cuh`): a reader waits for the bit of its round, and
// nobody makes words unwritten again. That the other step's vectors may be written again follows from what was read: a
// block gives its parts of step s after it has read those of step s-1 from all blocks, and each of these gave them after
// its warps of the same sequences had read all of step s-2.
//
// LAYER_TARGETS blocks whose units are the columns of one matrix instruction. LAYER_SOURCES blocks whose parts a thread asks
// for at once. LAYER_FIRST whether the part that comes last is waited for alone before the others are asked for.
// LAYER_DEPTHS warpgroups give parts to different blocks; each computes the gradients of one of a thread's two rows.
#pragma once
#include "outputs.cuh"
#include "whole.cuh"

extern __shared__ __align__(1024) unsigned char shared_memory[];

constexpr int kTargets = LAYER_TARGETS, kPartColumns = kTargets * kUnits, kPartSums = kPartColumns / 2;
constexpr int kProducts = kBlocks / kTargets, kOwnProducts = kProducts / kDepthGroups;
// The depth of a block's product, and its matrix instructions.
constexpr int kBlockDepth = GATES * kUnits, kBlockSteps = kBlockDepth / 16;

// Weights in shared memory: slices of 64 along the depth, a line of 128 bytes for each unit of the head.
constexpr int kLinesBytes = kDim * 128, kLinesOfWeights = (kBlockDepth + 63) / 64;
// Words of a row's gates that warps of the same sequences hand to each other, twice: a warp that writes a copy again has
// met the other one since that read it.
constexpr int kRowsAt = kLinesOfWeights * kLinesBytes;
constexpr int kRowsBytes = kDepthGroups > 1 ? 2 * 4 * kGiven * kThreads : 0, kPartialBytes = kRowsAt + kRowsBytes;

// A thread's part of a block's sums as words of two units, in vectors of four words or of two.
constexpr int kWords = kOwnRows * kPairs, kWhole = kWords % 4 == 0 ? 4 : 2, kWholes = kWords / kWhole;
// Vectors that a warp reads of one block, those that a block gives to another one, and those of all in a step.
constexpr int kWarpVectors = kWholes * 32, kPartVectors = kTiles * kDepthGroups * kWarpVectors;
constexpr int kMetVectors = kBlocks * kBlocks * kPartVectors;
constexpr int kAtOnce = LAYER_SOURCES, kTurns = kBlocks / kAtOnce, kWindows = kTurns > 1 ? 2 : 1;

static_assert(kPartColumns <= 256, "what wgmma takes");
static_assert(kBlocks % (kTargets * kDepthGroups) == 0, "warpgroups have whole instructions");
static_assert(kBlockDepth % 16 == 0, "the depth of a block has whole instructions");
static_assert(kWords % kWhole == 0, "a thread's part has whole vectors");
static_assert(kBlocks % kAtOnce == 0, "all turns are alike");
#ifdef PARTIAL_BYTES
static_assert(kPartialBytes == PARTIAL_BYTES, "the host predicts the shared memory of a block");
#endif

template <int kNumber>
struct WholeOf {
  using type = uint4;
};
template <>
struct WholeOf<2> {
  using type = uint2;
};
using Whole = WholeOf<kWhole>::type;

__device__ __forceinline__ unsigned last_word(const uint4& v) { return v.w; }
__device__ __forceinline__ unsigned last_word(const uint2& v) { return v.y; }
__device__ __forceinline__ void take(const uint4& v, unsigned* words) { words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w; }
__device__ __forceinline__ void take(const uint2& v, unsigned* words) { words[0] = v.x, words[1] = v.y; }

// Vectors of words, of which the last one says in which round of the ring they are written.
__device__ __forceinline__ void marked(const unsigned* words, unsigned round, uint4& v) {
  v = make_uint4(words[0], words[1], words[2], (words[3] & ~1u) | round);
}
__device__ __forceinline__ void marked(const unsigned* words, unsigned round, uint2& v) {
  v = make_uint2(words[0], (words[1] & ~1u) | round);
}

// The first round differs from the ones that the ring is filled with.
__device__ __forceinline__ unsigned round_of(int step) { return static_cast<unsigned>(step) / 2 % 2; }

// Where a unit of the head stands among the columns.
__device__ __forceinline__ int column_in_head(int unit) { return unit / kUnits * kUnits + column_of(0, unit % kUnits); }

// Reads the rows of the weights of a block's gates from r (G, N, D out, D in), eight units of one row at once.
__device__ __forceinline__ void load_weights(const element* __restrict__ r, int heads, int head, int first) {
  constexpr int kVectors = kDim / 8, kAll = kBlockDepth * kVectors, kTogether = 8;
  for (int base = threadIdx.x; base < kAll; base += kTogether * kThreads) {
    uint4 vectors[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int at = base + i * kThreads, row = at / kVectors, gate = row / kUnits, unit = first + row % kUnits;
      const long long line = (static_cast<long long>(gate) * heads + head) * kDim + unit;
      if (at < kAll) vectors[i] = __ldg(reinterpret_cast<const uint4*>(r + line * kDim + at % kVectors * 8));
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int at = base + i * kThreads, row = at / kVectors, depth = depth_of_unit(row % kUnits, row / kUnits);
      const unsigned pairs[4] = {vectors[i].x, vectors[i].y, vectors[i].z, vectors[i].w};
#pragma unroll
      for (int unit = 0; unit < 8; ++unit) {
        const int column = column_in_head(at % kVectors * 8 + unit), piece = depth % 64 / 8 ^ column % 8;
        const int place = depth / 64 * kLinesBytes + column * 128 + piece * 16 + depth % 8 * 2;
        const element weight = static_cast<element>(pairs[unit / 2] >> 16 * (unit % 2));
        if (at < kAll) *reinterpret_cast<element*>(shared_memory + place) = weight;
      }
    }
  }
}

// How far a step of the depth is from the first one in the matrix unit's description of columns.
__device__ __forceinline__ constexpr unsigned depth_offset(int step) {
  return (step / 4 * kLinesBytes + step % 4 * 32) >> 4;
}

__device__ __forceinline__ void hold(float (&sums)[kPartSums]) {
#pragma unroll
  for (int i = 0; i < kPartSums; ++i) hold(sums[i]);
}

// What a thread gets of all blocks, for its own rows and units.
using RowSums = float[kOwnRows][kPairs][2];

struct Meeting {
  Whole* ring;
  unsigned long long weights;
  int part, tile, depth_group;
  bool exists;

  __device__ __forceinline__ Meeting(uint4* exchange, int group, int part, int tile, int depth_group, bool exists)
      : part(part), tile(tile), depth_group(depth_group), exists(exists) {
    ring = reinterpret_cast<Whole*>(exchange) + static_cast<long long>(group) * 2 * kMetVectors +
           (tile * kDepthGroups) * kWarpVectors + static_cast<int>(threadIdx.x) % 32;
  }

  // Called once the weights are in shared memory. Atoms of eight columns lie 1024 bytes apart.
  __device__ __forceinline__ void begin() {
    const unsigned address = shared_address(shared_memory);
    const unsigned long long leading = 1, stride = 1024 >> 4;
    weights = static_cast<unsigned long long>((address & 0x3FFFF) >> 4) | leading << 16 | stride << 32 | 1ull << 62;
  }

  // The first vector that a block gives to another one in a step.
  __device__ __forceinline__ Whole* place(int step, int to, int from) const {
    return ring + static_cast<long long>(((step % 2) * kBlocks + to) * kBlocks + from) * kPartVectors;
  }

  __device__ __forceinline__ static bool is_there(const Whole& v, unsigned round) {
    return (last_word(v) & 1u) == round;
  }

  using Window = Whole[kAtOnce][kWholes];

  __device__ __forceinline__ static void ask(Window& window, const Whole* from) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
      for (int v = 0; v < kWholes; ++v) load_whole(from + i * kPartVectors + v * 32, window[i][v]);
    }
  }

  // Asks for what is not there again, until all is.
  __device__ __forceinline__ static void await(Window& window, const Whole* from, unsigned round) {
    WATCHED_LOOP {
      bool waits = false;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
        for (int v = 0; v < kWholes; ++v) waits |= !is_there(window[i][v], round);
      }
      if (!__any_sync(0xFFFFFFFFu, waits)) break;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
        for (int v = 0; v < kWholes; ++v) {
          if (!is_there(window[i][v], round)) load_whole(from + i * kPartVectors + v * 32, window[i][v]);
        }
      }
    }
  }

  // The parts of all blocks of a step, added in the order of the blocks.
  __device__ __forceinline__ void gather(int step, RowSums& through) const {
    if (!exists) return;
    const unsigned round = round_of(step);
    const Whole* from = place(step, part, 0) + depth_group * kWarpVectors;
    if (LAYER_FIRST) {
      // Blocks begin with their own units' products: the one whose turn this part is last comes after all others.
      const int last = (part / kTargets + 1) % kProducts * kTargets;
      WATCHED_LOOP {
        Whole v;
        load_whole(from + last * kPartVectors, v);
        if (!__any_sync(0xFFFFFFFFu, !is_there(v, round))) break;
      }
    }
    Window windows[kWindows];
    ask(windows[0], from);
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      if (turn + 1 < kTurns) ask(windows[(turn + 1) % kWindows], from + (turn + 1) * kAtOnce * kPartVectors);
      Window& now = windows[turn % kWindows];
      await(now, from + turn * kAtOnce * kPartVectors, round);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        unsigned words[kWords];
#pragma unroll
        for (int v = 0; v < kWholes; ++v) take(now[i][v], words + v * kWhole);
#pragma unroll
        for (int word = 0; word < kWords; ++word) {
          through[word / kPairs][word % kPairs][0] += part_of(words[word], 0);
          through[word / kPairs][word % kPairs][1] += part_of(words[word], 1);
        }
      }
    }
  }

  // Both rows of a thread's gates: as the matrix unit takes them, where the other one's are handed over.
  __device__ __forceinline__ void join(int step, const unsigned (&given)[kOwnRows][kGiven], uint4 (&rows)[kBlockSteps]) const {
    unsigned both[2][kGiven];
    if constexpr (kDepthGroups == 1) {
#pragma unroll
      for (int i = 0; i < kGiven; ++i) both[0][i] = given[0][i], both[kOwnRows - 1][i] = given[kOwnRows - 1][i];
    } else {
      const int thread = static_cast<int>(threadIdx.x) % (kThreads / 2);
      unsigned* copy = reinterpret_cast<unsigned*>(shared_memory + kRowsAt) + step % 2 * (kGiven * kThreads) + thread;
#pragma unroll
      for (int i = 0; i < kGiven; ++i) copy[(depth_group * kGiven + i) * (kThreads / 2)] = given[0][i];
      named_sync(1 + tile, 64);
#pragma unroll
      for (int i = 0; i < kGiven; ++i) {
        const unsigned other = copy[((1 - depth_group) * kGiven + i) * (kThreads / 2)];
        both[0][i] = depth_group == 0 ? given[0][i] : other, both[1][i] = depth_group == 0 ? other : given[0][i];
      }
    }
#pragma unroll
    for (int k = 0; k < kBlockSteps; ++k) {
      rows[k] = make_uint4(both[0][2 * k], both[1][2 * k], both[0][2 * k + 1], both[1][2 * k + 1]);
    }
  }

  // The product of a number of this warpgroup: of its own blocks, the one that this block begins with comes first.
  __device__ __forceinline__ int product_of(int number) const {
    return (part / kTargets + depth_group * kOwnProducts + number) % kProducts;
  }

  // Gives the sums of one instruction to the blocks whose units they are.
  __device__ __forceinline__ void send(const float (&sums)[kPartSums], int step, int product) const {
    if (!exists) return;
#pragma unroll
    for (int target = 0; target < kTargets; ++target) {
      Whole* to = place(step, product * kTargets + target, part);
#pragma unroll
      for (int reader = 0; reader < kDepthGroups; ++reader) {
        unsigned words[kWords];
#pragma unroll
        for (int word = 0; word < kWords; ++word) {
          const int row = kOwnRows == 1 ? reader : word / kPairs;
          const float* two = sums + 4 * (target * kEights + word % kPairs) + 2 * row;
          words[word] = pack(two[0], two[1]);
        }
#pragma unroll
        for (int v = 0; v < kWholes; ++v) {
          Whole vector;
          marked(words + v * kWhole, round_of(step), vector);
          store_whole(to + reader * kWarpVectors + v * 32, vector);
        }
      }
    }
  }

  // While an instruction's columns are multiplied, the sums of the one before are given.
  template <int kNumber = 0>
  __device__ __forceinline__ void multiply(float (&sums)[2][kPartSums], const uint4 (&rows)[kBlockSteps], int step) const {
    if constexpr (kNumber < kOwnProducts) {
      unsigned long long columns = weights + product_of(kNumber) * (kPartColumns * 128 >> 4);
      hold(columns);  // else the descriptions of all products are computed once and kept in registers
      hold(sums[kNumber % 2]);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < kBlockSteps; ++k) {
        wgmma(sums[kNumber % 2], rows[k], columns + depth_offset(k), k > 0);
      }
      wgmma_commit();
    }
    if constexpr (kNumber > 0) {
      wgmma_wait<(kNumber < kOwnProducts ? 1 : 0)>();
      hold(sums[(kNumber - 1) % 2]);
      send(sums[(kNumber - 1) % 2], step, product_of(kNumber - 1));
    }
    if constexpr (kNumber < kOwnProducts) multiply<kNumber + 1>(sums, rows, step);
  }

  __device__ __forceinline__ void give(int step, const unsigned (&given)[kOwnRows][kGiven]) const {
    uint4 rows[kBlockSteps];
    join(step, given, rows);
#pragma unroll
    for (int k = 0; k < kBlockSteps; ++k) hold(rows[k]);
    float sums[2][kPartSums];
    multiply(sums, rows, step);
#pragma unroll
    for (int k = 0; k < kBlockSteps; ++k) hold(rows[k]);
  }

  __device__ __forceinline__ void after(int) const {}
};
