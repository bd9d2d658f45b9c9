// The product of a step: rows come from the exchange straight into registers, columns are the weights.
//
// What is asked for before it has been written is asked for again, behind all else that was asked for meanwhile. So with
// LAYER_PROBE only the first chunk is asked for until it is there: the others have most likely been written by then.
#pragma once
#include "exchange.cuh"

// Vectors that a thread has asked for: a ring of chunks.
using Window = uint4[kSlots][kChunk];

template <int kChunkNumber>
__device__ __forceinline__ void ask(Window& window, const Source& source, const uint4* step) {
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    uint4& v = window[kChunkNumber % kSlots][i];
    v = make_uint4(0, 0, 0, 0);
    if (source.exists) v = Source::load(step, kChunkNumber * kChunk + i);
  }
}

// Waits for a chunk. Where it has not been written yet, what else of the window had not been is asked for again as well,
// all at once; where it has, nothing else is waited for.
template <int kChunkNumber>
__device__ __forceinline__ void await(Window& window, const uint4* step) {
  // Of a window that is shorter than the depth, the chunk before is still being multiplied: its registers are not free.
  constexpr int kFull = kChunkNumber + kSlots - (kChunkNumber > 0 ? 1 : 0);
  constexpr int kWindow = kSlots == kChunks || kFull > kChunks ? kChunks : kFull;
  constexpr int kAsked = kProbes && kChunkNumber == 0 ? 1 : kWindow;
  keep_order();
  WATCHED_LOOP {
    bool waits = false;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) waits |= is_unwritten(window[kChunkNumber % kSlots][i]);
    if (!__any_sync(0xFFFFFFFFu, waits)) break;
#pragma unroll
    for (int chunk = kChunkNumber; chunk < kAsked; ++chunk) {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        uint4& v = window[chunk % kSlots][i];
        if (is_unwritten(v)) v = Source::load(step, chunk * kChunk + i);
      }
    }
  }
}

template <int kChunkNumber>
__device__ __forceinline__ void ask_first(Window& window, const Source& source, const uint4* step) {
  if constexpr (kChunkNumber < kSlots) {
    ask<kChunkNumber>(window, source, step);
    ask_first<kChunkNumber + 1>(window, source, step);
  }
}

__device__ __forceinline__ void hold(float (&sums)[kSums]) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) hold(sums[i]);
}

__device__ __forceinline__ void hold(uint4 (&chunk)[kChunk]) {
#pragma unroll
  for (int i = 0; i < kChunk; ++i) hold(chunk[i]);
}

template <int kChunkNumber = 0>
__device__ __forceinline__ void multiply(
    float (&sums)[kSums], Window& window, const Source& source, const uint4* step, unsigned long long weights) {
  if constexpr (kChunkNumber < kChunks) {
    await<kChunkNumber>(window, step);
    if constexpr (kProbes && kChunkNumber == 0) ask_first<1>(window, source, step);
    hold(window[kChunkNumber % kSlots]);
    if (kChunkNumber == 0) hold(sums);
    hold(weights);  // else the descriptors of all steps are computed once and kept in registers
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      constexpr int kFirst = kChunkNumber * kChunk;
      wgmma(sums, window[kChunkNumber % kSlots][i], weights + descriptor_offset(kFirst + i), kFirst + i > 0);
    }
    wgmma_commit();
    // The chunk before has been multiplied: its registers take a later one.
    if constexpr (kSlots < kChunks && kChunkNumber > 0) {
      wgmma_wait<1>();
      hold(window[(kChunkNumber - 1) % kSlots]);
      if constexpr (kChunkNumber - 1 + kSlots < kChunks) ask<kChunkNumber - 1 + kSlots>(window, source, step);
    }
    multiply<kChunkNumber + 1>(sums, window, source, step, weights);
  }
}

// sums = h of a step x weights of this warpgroup's part of the depth.
__device__ __forceinline__ void product(
    float (&sums)[kSums], const Source& source, int step, unsigned long long weights) {
  const uint4* from = source.first + slot_of(step) * kStepVectors;
  Window window;
  ask<0>(window, source, from);
  if constexpr (!kProbes) ask_first<1>(window, source, from);
  multiply(sums, window, source, from, weights);
  wgmma_wait<0>();
  hold(sums);
#pragma unroll
  for (int slot = 0; slot < kSlots; ++slot) hold(window[slot]);
}
