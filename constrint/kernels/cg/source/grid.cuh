// The barrier of the grid, which adds sums of all blocks on the way: each block publishes its sums and the number of the
// barrier in words of 64 bits, and waits for those of all others. There is no atomic counter and no second trip to memory
// for the sums. Every block adds them in the same order, so that all hold the same bits, in every run.
#pragma once
#include "ptx.cuh"

typedef unsigned long long Word;
constexpr int WARP = 32, WARPS = THREADS / WARP;
constexpr int MOST_SUMS = 3;
// Words of a block: two for each sum; a block's words lie in sectors of their own.
constexpr int BLOCK_WORDS = 8;

struct Sums {
  double of[MOST_SUMS];
};

// Shared memory of the barrier.
struct alignas(16) Meeting {
  double warps[MOST_SUMS][WARPS];
  double blocks[MOST_SUMS][MOST_BLOCKS];
};

__device__ __forceinline__ double sum_of_warp(double x) {
#pragma unroll
  for (int distance = WARP / 2; distance > 0; distance /= 2) x += of_next_lanes(x, distance);
  return x;
}

// Adds NUM sums of all threads of the grid, and makes what they wrote visible to all. `number` counts barriers from 1.
template <int NUM>
__device__ __forceinline__ void meet(Sums& sums, Meeting& meeting, Word* slots, unsigned number) {
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, blocks = gridDim.x;
  // Blocks are at most one barrier apart, so two sets of slots do.
  Word* const set = slots + (number & 1u) * static_cast<long long>(blocks) * BLOCK_WORDS;
#pragma unroll
  for (int s = 0; s < NUM; ++s) {
    const double own = sum_of_warp(sums.of[s]);
    if (lane == 0) meeting.warps[s][warp] = own;
  }
  __syncthreads();
  if (warp == 0) {
    double own[NUM];
#pragma unroll
    for (int s = 0; s < NUM; ++s) own[s] = sum_of_warp(lane < WARPS ? meeting.warps[s][lane] : 0.0);
    if (lane == 0) {
      fence_of_grid();
#pragma unroll
      for (int s = 0; s < NUM; ++s) {
        publish(set + blockIdx.x * BLOCK_WORDS + 2 * s, static_cast<Word>(number) << 32 | high_word(own[s]));
        publish(set + blockIdx.x * BLOCK_WORDS + 2 * s + 1, static_cast<Word>(number) << 32 | low_word(own[s]));
      }
    }
  }
  for (int block = threadIdx.x; block < blocks; block += THREADS) {
    const Word* const from = set + block * BLOCK_WORDS;
    Word words[2 * NUM];
    bool waits = true;
    while (waits) {
      waits = false;
#pragma unroll
      for (int w = 0; w < 2 * NUM; ++w) words[w] = look(from + w);
#pragma unroll
      for (int w = 0; w < 2 * NUM; ++w) waits = waits || static_cast<unsigned>(words[w] >> 32) != number;
    }
#pragma unroll
    for (int s = 0; s < NUM; ++s) {
      meeting.blocks[s][block] = of_words(static_cast<unsigned>(words[2 * s]), static_cast<unsigned>(words[2 * s + 1]));
    }
    fence_of_grid();
  }
  __syncthreads();
#pragma unroll
  for (int s = 0; s < NUM; ++s) {
    double all = 0.0;
    for (int block = lane; block < blocks; block += WARP) all += meeting.blocks[s][block];
    sums.of[s] = sum_of_warp(all);
  }
}
