// How the blocks that share a head give each other what the next product takes: through shared memory of one block,
// through that of all blocks of a cluster, or through global memory.
//
// In global memory what has not been written yet is a word of ones, two NaNs that no result has. Whoever reads waits for
// each word to be another: there is no barrier and no fence, only words that are written once.
#pragma once
#include "items.cuh"

constexpr unsigned UNWRITTEN = 0xFFFFFFFFu;

__device__ __forceinline__ bool is_unwritten(const uint4& v) {
  return v.x == UNWRITTEN || v.y == UNWRITTEN || v.z == UNWRITTEN || v.w == UNWRITTEN;
}

// A value in fp32 as a word that says that it has been written.
__device__ __forceinline__ unsigned written_word(float x) {
  const unsigned word = __float_as_uint(x);
  return word == UNWRITTEN ? 0x7FFFFFFFu : word;
}

// A vector of elements of values in fp32.
__device__ __forceinline__ uint4 vector_of(const float* x) {
#if DTYPE > 1
  return make_uint4(written_word(x[0]), written_word(x[1]), written_word(x[2]), written_word(x[3]));
#else
  return make_uint4(pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]), pack(x[6], x[7]));
#endif
}

#if PLACEMENT == 2
// Cycles before the first look at what others have begun to write, and between looks: who looks all the time is in the
// way of those who write. On an H200 the pauses make 768 and 1,024 units 17 % faster; where little is looked at, or it
// was written long ago, they only cost.
constexpr unsigned FIRST_PAUSE = 300, NEXT_PAUSE = 100;

__device__ __forceinline__ void pause(unsigned cycles) {
  const unsigned start = clock();
  while (static_cast<unsigned>(clock()) - start < cycles) {
  }
}

constexpr int AHEAD = KP * NT <= WINDOW ? KP : (WINDOW / NT > 0 ? WINDOW / NT : 1);  // pairs that are asked for at once

struct Source {
  const element* from[NT];  // at this lane's sequence and place of the depth
  const float* initial[NT];  // the same of states before the first step, in their place
  int part_stride;
  bool pauses;
  uint4 window[AHEAD][NT];

  // Offset of a piece of the depth; of the parts the last one may be another slot.
  __device__ __forceinline__ int offset_of(int pair) const {
    const int depth = PIECE * (static_cast<int>(threadIdx.x) / 32 / MW * KP + pair);
    if constexpr (!IS_BACKWARD) return depth;
    const int gate = depth / D;
    return (APART && gate == GATES - 1 ? SLOTS - 1 : gate) * part_stride + depth % D;
  }

  __device__ __forceinline__ bool inside(int pair) const {
    return EVEN || PIECE * (static_cast<int>(threadIdx.x) / 32 / MW * KP + pair) < DEPTH;
  }

  template <int PAIR>
  __device__ __forceinline__ void ask() {
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
      if (PAIR + i < KP) {
#pragma unroll
        for (int n = 0; n < NT; ++n) {
          window[i][n] = make_uint4(0, 0, 0, 0);
          if (from[n] && inside(PAIR + i)) {
            window[i][n] = load_shared_by_grid(from[n] + offset_of(PAIR + i));
          } else if (!IS_BACKWARD && initial[n] && inside(PAIR + i)) {
            const float* x = initial[n] + offset_of(PAIR + i);
            window[i][n] = vector_of(x);
          }
        }
      }
    }
  }

  // Asks again for what had not been written, all of it at once, until everything is there.
  template <int FIRST>
  __device__ __forceinline__ void await() {
    WATCHED_LOOP {
      bool waits = false;
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) {
        if (FIRST + i < KP) {
#pragma unroll
          for (int n = 0; n < NT; ++n) {
            if (is_unwritten(window[i][n])) {
              window[i][n] = load_shared_by_grid(from[n] + offset_of(FIRST + i));
              waits = true;
            }
          }
        }
      }
      if (!__any_sync(0xFFFFFFFFu, waits)) break;
      if (pauses) pause(NEXT_PAUSE);
    }
  }

  template <int PAIR, int END>
  __device__ __forceinline__ void add_window(float (&sums)[CHAINS][MT][NT][4], const Weights& weights) {
    if constexpr (PAIR < END) {
      add_pair<PAIR>(sums, weights, window[PAIR % AHEAD]);
      add_window<PAIR + 1, END>(sums, weights);
    }
  }

  template <int FIRST = 0>
  __device__ __forceinline__ void add_all(float (&sums)[CHAINS][MT][NT][4], const Weights& weights) {
    if constexpr (FIRST < KP) {
      constexpr int END = FIRST + AHEAD < KP ? FIRST + AHEAD : KP;
      if (FIRST == 0 && pauses) pause(FIRST_PAUSE);
      ask<FIRST>();
      await<FIRST>();
      add_window<FIRST, END>(sums, weights);
      add_all<END>(sums, weights);
    }
  }
};

// Writes a unit's result where other blocks wait for it; all lanes of a warp do so together.
__device__ __forceinline__ void publish(element* to, element value, bool exists) {
#if DTYPE > 1
  if (exists) store_shared_by_grid(to, written_word(value));
#else
  const unsigned other = __shfl_xor_sync(0xFFFFFFFFu, static_cast<unsigned>(value), NEIGHBOUR);
  if (exists && !(threadIdx.x & NEIGHBOUR)) store_shared_by_grid(to, value | other << 16);
#endif
}
#else
struct Source {
  const element* from;  // at this lane's sequence and place of the depth, in shared memory

  __device__ __forceinline__ explicit Source(const element* buffer) {
    const int lane = threadIdx.x % 32, kw = threadIdx.x / 32 / MW;
    from = buffer + operand_row(0) * OPERAND_STRIDE + lane % 4 * VECTOR + PIECE * kw * KP;
  }

  template <int PAIR = 0>
  __device__ __forceinline__ void add_all(float (&sums)[CHAINS][MT][NT][4], const Weights& weights) {
    if constexpr (PAIR < KP) {
      const bool inside = EVEN || PIECE * (static_cast<int>(threadIdx.x) / 32 / MW * KP + PAIR) < DEPTH;
      uint4 operand[NT];
#pragma unroll
      for (int n = 0; n < NT; ++n) {
        operand[n] = make_uint4(0, 0, 0, 0);
        if (inside) operand[n] = *reinterpret_cast<const uint4*>(from + n * 8 * OPERAND_STRIDE + PIECE * PAIR);
      }
      add_pair<PAIR>(sums, weights, operand);
      add_all<PAIR + 1>(sums, weights);
    }
  }
};
#endif
