// How the blocks of a head meet in a backward step: each gives the gradients of the gates of its units to all others, and
// multiplies those of all units with its columns of the weights.
#pragma once
#include "sums.cuh"

struct Meeting {
  Source source;
  Target target;
  unsigned long long weights;
  int depth_group, tile;

  __device__ __forceinline__ Meeting(
      uint4* exchange, int group, int part, int tile, int depth_group, bool exists)
      : source(exchange + static_cast<long long>(group) * RING * kStepVectors, tile, depth_group, exists),
        target(exchange + static_cast<long long>(group) * RING * kStepVectors, part, tile, depth_group, exists),
        depth_group(depth_group), tile(tile) {}

  // Called once the weights are in shared memory.
  __device__ __forceinline__ void begin() { weights = weight_descriptor(depth_group * kOwnSteps); }

  // What flows through the weights from a step to the one before, for this thread's units.
  __device__ __forceinline__ void gather(int step, RowSums& through) const {
    float sums[kSums];
    product(sums, source, step, weights);
    share_sums(sums, through, (step + 1) % 2, depth_group, tile);
  }

  __device__ __forceinline__ void give(int step, const unsigned (&given)[kOwnRows][kGiven]) const {
    target.publish(step, given);
  }

  // What nobody waits for.
  __device__ __forceinline__ void after(int step) const {
    target.forget(step - 2);
    if (step % FENCE == 0) fence_of_grid();
  }
};
