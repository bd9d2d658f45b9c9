// How the blocks that share a head give each other h: through a ring of steps in global memory, without a barrier.
//
// The matrix unit leaves a thread's sums, and takes a thread's rows, in the same order: of 16 units of 16 sequences, a lane
// has two units of an eight in two rows, and the same of the next eight. So what a lane computes is what a lane of the same
// number takes as its four registers, and that is a vector of 16 bytes of the ring: no lane hands anything to another,
// nothing passes through shared memory, and a warp reads 512 bytes beside each other.
//
// A word that has not been written is one of ones, two NaNs that no result has, and whoever reads waits for each word to be
// another one. Rows that are no sequences are zeros, where the warp has others; a warp without any exchanges nothing.
//
// When a word may be written again. A warp (with two depth groups the two warps of the same rows, which meet in every step)
// gives its words of step t only after it has read all words of step t-1 of its rows. So whoever has read all words of step
// t-1 knows that all words of step t-2 were read, and makes those of its block again. All threads pass a fence every FENCE
// steps: between that and the word's next use in the ring both its writer and its reader have passed one, in that order.
#pragma once
#include "weights.cuh"

constexpr unsigned kUnwritten = 0xFFFFFFFFu;

__device__ __forceinline__ bool is_unwritten(const uint4& v) {
  return v.x == kUnwritten || v.y == kUnwritten || v.z == kUnwritten || v.w == kUnwritten;
}

// Where a step stands in the ring; the states before the first step are those of step -1.
__device__ __forceinline__ int slot_of(int step) { return (step + RING) % RING; }

// What a thread takes of a step: its vectors of all instructions of its warpgroup.
struct Source {
  const uint4* first;  // of the ring's first step
  bool exists;         // whether this warp has sequences

  __device__ __forceinline__ Source(const uint4* ring, int tile, int depth_group, bool exists) : exists(exists) {
    first = ring + (depth_group * kOwnSteps * kTiles + tile) * 32 + static_cast<int>(threadIdx.x) % 32;
  }

  __device__ __forceinline__ static uint4 load(const uint4* step, int number) {
    return load_shared_by_grid(step + number * kTiles * 32);
  }
};

// Where a thread gives its words of a step. Registers of a vector are: first and second row of an eight, then of the next
// one. Whoever computes both rows stores words that are neighbours together: fewer sectors of the L2 are written.
struct Target {
  unsigned* first;  // of the first eight
  int half;         // whether that is the second one of a vector; of an even number of eights it is the first one
  int depth_group;
  bool exists;

  __device__ __forceinline__ Target(uint4* ring, int part, int tile, int depth_group, bool exists)
      : half(kGiven % 2 == 0 ? 0 : part * kGiven % 2), depth_group(depth_group), exists(exists) {
    uint4* vector = ring + (part * kGiven / 2 * kTiles + tile) * 32 + static_cast<int>(threadIdx.x) % 32;
    first = reinterpret_cast<unsigned*>(vector);
  }

  __device__ __forceinline__ unsigned* place(int step, int eight) const {
    const int number = half + eight;
    return first + (slot_of(step) * kStepVectors + number / 2 * kTiles * 32) * 4 + number % 2 * 2;
  }

  __device__ __forceinline__ void publish(int step, const unsigned (&words)[kOwnRows][kGiven]) const {
    if (!exists) return;
#pragma unroll
    for (int eight = 0; eight < kGiven; ++eight) {
      if constexpr (kOwnRows == 1) {
        store_shared_by_grid(place(step, eight) + depth_group, words[0][eight]);
      } else if constexpr (kGiven % 2 == 1) {
        store_shared_by_grid(place(step, eight), make_uint2(words[0][eight], words[1][eight]));
      } else if (eight % 2 == 0) {
        const uint4 v = make_uint4(words[0][eight], words[1][eight], words[0][eight + 1], words[1][eight + 1]);
        store_shared_by_grid(place(step, eight), v);
      }
    }
  }

  // Two depth groups make each other's words what they were before, too: their warps have met in this step, and do again
  // before the words are used again.
  __device__ __forceinline__ void forget(int step) const {
    if (!exists) return;
    constexpr int kTogether = 2 - kGiven % 2;
#pragma unroll
    for (int eight = 0; eight < kGiven; eight += kTogether) {
      if (kDepthGroups > 1 && eight / kTogether % 2 != depth_group) continue;
      if constexpr (kTogether == 1) {
        store_shared_by_grid(place(step, eight), make_uint2(kUnwritten, kUnwritten));
      } else {
        store_shared_by_grid(place(step, eight), make_uint4(kUnwritten, kUnwritten, kUnwritten, kUnwritten));
      }
    }
  }
};
