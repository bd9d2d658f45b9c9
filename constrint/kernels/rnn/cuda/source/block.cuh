// A block's place among the others, its sequences, and its shared memory.
#pragma once
#include "exchange.cuh"

extern __shared__ __align__(128) char shared_memory[];

struct Block {
  int part, head, first, tile, group;  // of the head's blocks; head; first unit; first tile of sequences; of groups
};

__device__ __forceinline__ Block block_of(int heads, int first_group) {
  const int part = blockIdx.x % BLOCKS, group = first_group + blockIdx.x / BLOCKS;
  return {part, group % heads, part * U, group / heads * TILES, group};
}

// A row of a tile: its sequence, -1 past the last one, and how many steps of it count.
struct Row {
  int sequence, steps;
};

__device__ __forceinline__ Row* row_table() { return reinterpret_cast<Row*>(shared_memory + TABLE_AT); }

__device__ __forceinline__ Row row_of(int tile, int row) { return row_table()[tile * NB + row]; }

__device__ __forceinline__ void make_row_table(const int* rows, const int* lengths, int batch, int time, int first_tile) {
  for (int i = threadIdx.x; i < TILES * NB; i += THREADS) {
    const int place = first_tile * NB + i;
    const int sequence = place >= batch ? -1 : rows ? rows[place] : place;
    row_table()[i] = {sequence, sequence < 0 ? 0 : lengths ? lengths[sequence] : time};
  }
  __syncthreads();
}

__device__ __forceinline__ element* operand_buffer(int tile, int copy) {
  return reinterpret_cast<element*>(shared_memory + OPERAND_AT) + (tile * OPERAND_COPIES + copy) * OPERAND_ELEMENTS;
}

__device__ __forceinline__ float* sum_buffer() { return reinterpret_cast<float*>(shared_memory + SUM_AT); }

// Counts the steps of all tiles, one tile after the other.
struct Steps {
  int step = 0, tile = 0, copy = 0, parity = 0;  // copy: of the ring of inputs

  __device__ __forceinline__ void next() {
    copy = copy + 1 == INPUT_COPIES ? 0 : copy + 1, parity ^= 1;
    if (++tile == TILES) tile = 0, ++step;
  }
};

// What a thread carries over the steps of a tile: in registers, or in shared memory where there are several tiles.
struct Carry {
  float of[ITEMS][STATES];

  __device__ __forceinline__ float* place(int tile, int item, int state) const {
    return reinterpret_cast<float*>(shared_memory + CARRY_AT) + ((tile * ITEMS + item) * STATES + state) * THREADS +
           threadIdx.x;
  }

  __device__ __forceinline__ void load(int tile) {
    if constexpr (TILES > 1) {
#pragma unroll
      for (int item = 0; item < ITEMS; ++item) {
#pragma unroll
        for (int state = 0; state < STATES; ++state) of[item][state] = *place(tile, item, state);
      }
    }
  }

  __device__ __forceinline__ void store(int tile) const {
    if constexpr (TILES > 1) {
#pragma unroll
      for (int item = 0; item < ITEMS; ++item) {
#pragma unroll
        for (int state = 0; state < STATES; ++state) *place(tile, item, state) = of[item][state];
      }
    }
  }
};

#if PLACEMENT == 1
__device__ __forceinline__ char* barrier_of(int tile, int copy) {
  return shared_memory + BARRIER_AT + (tile * 2 + copy) * 8;
}

constexpr unsigned EXCHANGED_BYTES = NB * DEPTH * sizeof(element);

__device__ __forceinline__ void open_barriers() {
  if (threadIdx.x == 0) {
    for (int tile = 0; tile < TILES; ++tile) {
      for (int copy = 0; copy < 2; ++copy) barrier_init(shared_address(barrier_of(tile, copy)));
    }
    barrier_inits_visible();
    for (int tile = 0; tile < TILES; ++tile) {
      for (int copy = 0; copy < 2; ++copy) barrier_expect(shared_address(barrier_of(tile, copy)), EXCHANGED_BYTES);
    }
  }
  __syncthreads();
  cluster_sync();
}

// Waits for what all blocks have sent in a step, and opens the phase of the step after the next.
__device__ __forceinline__ void wait_for_step(int tile, int step) {
  const unsigned barrier = shared_address(barrier_of(tile, step % 2));
  barrier_wait(barrier, step / 2 % 2);
  if (threadIdx.x == 0) barrier_expect(barrier, EXCHANGED_BYTES);
}
#endif
