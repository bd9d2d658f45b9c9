// What each step reads from global memory besides the exchange: copied into a ring of shared memory, steps ahead.
#pragma once
#include "block.cuh"

constexpr int INPUT_ELEMENTS = INPUTS * NB * STEP_STRIDE, INPUT_VECTORS = INPUTS * NB * (U / VECTOR);

__device__ __forceinline__ element* input_buffer(int copy) {
  return reinterpret_cast<element*>(shared_memory + INPUT_AT) + copy * INPUT_ELEMENTS;
}

// One vector of 16 bytes that this thread copies in every step: where it comes from and goes to.
struct Copied {
  const element* from;  // of the first sequence and step; null for an input that is not given
  long long batch_stride, time_stride;
  int row, into;
  bool is_before;  // a state before the step, which the first step does not have
};

constexpr int COPIES = (INPUT_VECTORS + THREADS - 1) / THREADS;

// `input_at(input, copied)` says where an input's units begin in the first sequence and step, and its strides.
struct Inputs {
  Copied copied[COPIES];
  int sequence[COPIES];  // where there is one tile

  template <class Place>
  __device__ __forceinline__ explicit Inputs(Place input_at) {
#pragma unroll
    for (int i = 0; i < COPIES; ++i) {
      const int vector = threadIdx.x + i * THREADS;
      const int piece = vector % (U / VECTOR), row = vector / (U / VECTOR) % NB, input = vector / (U / VECTOR) / NB;
      copied[i] = {nullptr, 0, 0, row, (input * NB + row) * STEP_STRIDE + VECTOR * piece, false};
      if (vector < INPUT_VECTORS) input_at(input, copied[i]);
      if (copied[i].from) copied[i].from += VECTOR * piece;
      sequence[i] = row_of(0, row).sequence;
    }
  }

  // Begins to copy a step's inputs into one of the ring's copies.
  __device__ __forceinline__ void fetch(int copy, int tile, int t, bool exists) {
    element* into = input_buffer(copy);
#pragma unroll
    for (int i = 0; i < COPIES; ++i) {
      const int from = TILES == 1 ? sequence[i] : row_of(tile, copied[i].row).sequence;
      if (exists && copied[i].from && from >= 0 && (t > 0 || !copied[i].is_before)) {
        copy_ahead(into + copied[i].into, copied[i].from + from * copied[i].batch_stride + t * copied[i].time_stride);
      }
    }
    end_of_copies();
  }
};

__device__ __forceinline__ float input_of(const element* buffer, int input, const Place& place) {
  return widen(buffer[(input * NB + place.row) * STEP_STRIDE + place.unit]);
}
