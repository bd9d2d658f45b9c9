// What each step writes to global memory: gathered in shared memory, then copied in vectors of 16 bytes while others work.
#pragma once
#include "block.cuh"

constexpr int OUTPUT_ELEMENTS = OUTPUTS * NB * STEP_STRIDE, OUTPUT_VECTORS = OUTPUTS * NB * (U / VECTOR);

__device__ __forceinline__ element* output_buffer(int parity) {
  return reinterpret_cast<element*>(shared_memory + OUTPUT_AT) + (OUTPUT_COPIES > 1 ? parity * OUTPUT_ELEMENTS : 0);
}

__device__ __forceinline__ void put_output(element* buffer, int output, const Place& place, element value) {
  buffer[(output * NB + place.row) * STEP_STRIDE + place.unit] = value;
}

// One vector that this thread copies in every step.
struct Written {
  element* to;  // of the first sequence and step; null for an output that is not asked for
  long long batch_stride, time_stride;
  int row, from;
};

struct Outputs {
  static constexpr int COPIES = (OUTPUT_VECTORS + THREADS - 1) / THREADS;
  Written written[COPIES > 0 ? COPIES : 1];
  int sequence[COPIES > 0 ? COPIES : 1];  // where there is one tile

  // `output_at(output, written)` says where an output's units begin in the first sequence and step, and its strides.
  template <class Place>
  __device__ __forceinline__ explicit Outputs(Place output_at) {
#pragma unroll
    for (int i = 0; i < COPIES; ++i) {
      const int vector = threadIdx.x + i * THREADS;
      const int piece = vector % (U / VECTOR), row = vector / (U / VECTOR) % NB, output = vector / (U / VECTOR) / NB;
      written[i] = {nullptr, 0, 0, row, (output * NB + row) * STEP_STRIDE + VECTOR * piece};
      if (vector < OUTPUT_VECTORS) output_at(output, written[i]);
      if (written[i].to) written[i].to += VECTOR * piece;
      sequence[i] = row_of(0, row).sequence;
    }
  }

  __device__ __forceinline__ void write(int parity, int tile, int t) const {
    const element* from = output_buffer(parity);
#pragma unroll
    for (int i = 0; i < COPIES; ++i) {
      const int at = TILES == 1 ? sequence[i] : row_of(tile, written[i].row).sequence;
      if (written[i].to && at >= 0) {
        element* to = written[i].to + at * written[i].batch_stride + t * written[i].time_stride;
        *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from + written[i].from);
      }
    }
  }
};

#if PLACEMENT == 1
// Sends what a step has put among its outputs for the exchange to all blocks of the cluster.
__device__ __forceinline__ void send_outputs(const element* outputs, element* buffer, void* barrier, int part) {
  constexpr int VECTORS = NB * PARTS * (U / VECTOR);
  const unsigned into = shared_address(buffer), told = shared_address(barrier);
#pragma unroll 1
  for (int i = threadIdx.x; i < VECTORS * BLOCKS; i += THREADS) {
    const int vector = i % VECTORS, block = (i / VECTORS + part) % BLOCKS;
    const int piece = vector % (U / VECTOR), row = vector / (U / VECTOR) % NB, sent = vector / (U / VECTOR) / NB;
    const int output = APART && sent == GATES - 1 ? (IS_BACKWARD ? SLOTS - 1 : 0) : sent;
    const uint4 v = *reinterpret_cast<const uint4*>(outputs + (output * NB + row) * STEP_STRIDE + VECTOR * piece);
    const int at = row * OPERAND_STRIDE + sent * D + part * U + VECTOR * piece;
    send(address_in(into + at * static_cast<int>(sizeof(element)), block), v, address_in(told, block));
  }
}
#endif
