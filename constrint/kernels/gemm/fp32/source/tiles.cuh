// How blocks walk over tiles and parts of tiles along K, and how the last one that comes to a tile adds its parts.
#pragma once

struct Work {
  int tile, row, column, first, last, part;  // slices from `first` up to `last`
};

struct Grid {
  int row_tiles, column_tiles, parts, slices;
};

// The tiles of eight rows of tiles follow each other, so that they share what the L2 holds.
__device__ __forceinline__ Work work_of(const Grid& grid, int unit) {
  Work work;
  const int tile = unit / grid.parts;
  work.part = unit % grid.parts, work.tile = tile;
  const int of_group = 8 * grid.column_tiles, group = tile / of_group;
  const int height = min(8, grid.row_tiles - 8 * group), within = tile % of_group;
  work.row = 8 * group + within % height, work.column = within / height;
  work.first = static_cast<long long>(work.part) * grid.slices / grid.parts;
  work.last = static_cast<long long>(work.part + 1) * grid.slices / grid.parts;
  return work;
}

// A stage of the ring, and whether it was filled an odd number of times.
template <int kStages>
struct RingPlace {
  int stage = 0;
  unsigned parity = 0;
  __device__ __forceinline__ void next() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

// Readies a ring for one warp that fills it and the warps of all consumers, which empty it; called by all threads.
template <int kStages, int kConsumers>
__device__ __forceinline__ void begin_ring(unsigned full, unsigned empty) {
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      barrier_init(full + 8 * stage, 1);
      barrier_init(empty + 8 * stage, 4 * kConsumers);
    }
    fence_barrier_init();
  }
  __syncthreads();
}

// Adds one, and says what was there: what this thread knows of is in memory before, and what others told is seen after.
__device__ __forceinline__ unsigned count_in_order(unsigned* counter) {
  unsigned before;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
  return before;
}

// Hands a part's sums over, and adds those of all parts, in order, where this consumer is the last one of its tile.
template <int kSums, int kConsumers>
__device__ __forceinline__ bool add_parts(
    float (&sums)[kSums], const Work& work, const Grid& grid, float* partials, unsigned* counters, unsigned* is_last,
    int group, int thread) {
  constexpr int kThreads = 128;
  const long long pitch = static_cast<long long>(kConsumers) * kSums * kThreads;
  float* const own =
      partials + (static_cast<long long>(work.tile) * grid.parts * kConsumers + group) * (kSums * kThreads) + thread;
#pragma unroll
  for (int i = 0; i < kSums; ++i) __stcg(own + work.part * pitch + i * kThreads, sums[i]);
  // One thread speaks for all that it has synchronised with.
  named_sync(1 + group, kThreads);
  if (thread == 0) {
    unsigned* const counter = counters + work.tile * kConsumers + group;
    const bool last = count_in_order(counter) == static_cast<unsigned>(grid.parts - 1);
    if (last) *counter = 0;
    is_last[group] = last;
  }
  named_sync(1 + group, kThreads);
  if (!is_last[group]) return false;
#pragma unroll
  for (int i = 0; i < kSums; ++i) sums[i] = __ldcg(own + i * kThreads);
#pragma unroll 1
  for (int part = 1; part < grid.parts; ++part) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i] += __ldcg(own + part * pitch + i * kThreads);
  }
  return true;
}
