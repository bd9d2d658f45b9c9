// Operands whose rows in memory start anywhere, though the TMA unit loads rows that start at multiples of 16 bytes alone.
//
// Rows whose numbers differ by eight lie a multiple of 16 bytes apart, whatever their length in even bytes. So there are
// eight maps, one for each remainder: map r begins at the multiple of 16 bytes before row r, has every eighth row from
// there on, and is read from the element on where row r begins, since boxes may begin at any element. Nothing that is
// not of a row is read, but for the rest of the 16 bytes in which the row begins; beyond the edges the unit gives zeros.
//
// A group of 64 lines of a slice is loaded as eight boxes of eight lines. Line 8 r + j of it is line 8 j + r of the slice
// then, and warps of the producer that have nothing else to do swap the two where they lie, before consumers read them.
// Where lines of both operands are rows of K, nothing is swapped: both have K in the same order, and sums are the same.
//
// What is computed here is plain arithmetic: `tests/kernels/gemm/test_cuda_gather.py` compiles this file for the CPU.
#pragma once

constexpr int kMaps = 8, kGroupLines = 64, kLineBytes = 128, kBoxBytes = kMaps * kLineBytes;
constexpr int kGroupBytes = kGroupLines * kLineBytes;
// Threads that swap two lines: one for 16 bytes of each. In a turn a warp swaps four pairs of the 28 of a group.
constexpr int kSwapThreads = kLineBytes / 16, kTurns = 7, kSwapWarps = 2;

// Maps of an operand that is gathered, which follow each other as the kernel's parameters do, and where in its first 16
// bytes each begins: four bits for each map, in bytes.
struct GatheredMaps {
  const TensorMap* first;
  unsigned starts;
};

// The groups of lines of a slice: of rows that lie along K, or of slabs of 64 rows of K.
template <bool kIsKMajor, int kElementBytes>
__device__ constexpr int groups_of(int width) {
  return kIsKMajor ? (width + kGroupLines - 1) / kGroupLines : (width * kElementBytes + kLineBytes - 1) / kLineBytes;
}

// Where a map's box of a group begins in it: the element of its rows, and its row. `first` and `k` are where the slice
// begins, both multiples of eight; an operand of fewer than eight rows has maps without rows, of which the box beyond
// the one that a map has to have is loaded: zeros.
template <bool kIsKMajor, int kElementBytes>
__device__ __forceinline__ int box_element(int group, int map, int first, int k, unsigned starts) {
  const int start = static_cast<int>(starts >> (4 * map) & 15u) / kElementBytes;
  return start + (kIsKMajor ? k : first + group * (kLineBytes / kElementBytes));
}

template <bool kIsKMajor>
__device__ __forceinline__ int box_row(int group, int map, int first, int k, int rows) {
  return (kIsKMajor ? first / kMaps + group * kMaps : k / kMaps) + (map >= rows);
}

// This block's boxes of a slice, for all blocks that share it: maps are dealt out to them. `rows` are the operand's. The
// loop over maps is not unrolled: the producer has few registers, and all that eight maps have of their own fills them.
template <bool kIsKMajor, int kElementBytes, int kWidth, int kShares>
__device__ __forceinline__ void gather_slice(
    const GatheredMaps& maps, unsigned to, unsigned barrier, int first, int k, int rows, int share,
    unsigned short mask) {
#pragma unroll 1
  for (int map = share; map < kMaps; map += kShares) {
#pragma unroll
    for (int group = 0; group < groups_of<kIsKMajor, kElementBytes>(kWidth); ++group) {
      const int x = box_element<kIsKMajor, kElementBytes>(group, map, first, k, maps.starts);
      const int y = box_row<kIsKMajor>(group, map, first, k, rows);
      load_box<(kShares > 1)>(maps.first + map, to + group * kGroupBytes + map * kBoxBytes, barrier, x, y, mask);
    }
  }
}

// Two places of 16 bytes that a thread swaps, in bytes from where a group begins.
struct Swap {
  unsigned one, other;
};

// In turn t a thread has lines i and j of the grid of eight by eight, which differ by 1 + t / 2: all pairs once. The
// 16 bytes of number u of line l lie in place u ^ l % 8.
__device__ __forceinline__ Swap swap_of(int turn, int lane) {
  const unsigned unit = lane % kSwapThreads, i = lane / kSwapThreads + 4 * (turn & 1), j = (i + 1 + turn / 2) % kMaps;
  return {(kMaps * i + j) * kLineBytes + ((unit ^ j) << 4), (kMaps * j + i) * kLineBytes + ((unit ^ i) << 4)};
}

// Swap so many pairs of places: all are loaded before one is stored.
template <int kPairs>
__device__ __forceinline__ void swap_places(const Swap (&places)[kPairs]) {
  Words one[kPairs], other[kPairs];
#pragma unroll
  for (int i = 0; i < kPairs; ++i) one[i] = load_words(places[i].one), other[i] = load_words(places[i].other);
#pragma unroll
  for (int i = 0; i < kPairs; ++i) store_words(places[i].one, other[i]), store_words(places[i].other, one[i]);
}

// One warp's share of the swaps in a slice of each operand, of which either may have no groups to swap.
template <int kRowsGroups, int kColumnsGroups>
__device__ __forceinline__ void swap_lines(unsigned rows, unsigned columns, int warp, int lane) {
  constexpr int kTasks = kTurns * (kRowsGroups + kColumnsGroups);
  const auto places_of = [&](int task) -> Swap {
    const int group = task / kTurns;
    const unsigned from =
        group < kRowsGroups ? rows + group * kGroupBytes : columns + (group - kRowsGroups) * kGroupBytes;
    const Swap places = swap_of(task % kTurns, lane);
    return {from + places.one, from + places.other};
  };
  int task = warp;
#pragma unroll 1
  for (; task + kSwapWarps < kTasks; task += 2 * kSwapWarps) {
    const Swap places[2] = {places_of(task), places_of(task + kSwapWarps)};
    swap_places(places);
  }
  if (task < kTasks) {
    const Swap places[1] = {places_of(task)};
    swap_places(places);
  }
}
