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

#if PLACEMENT == 2
constexpr int AHEAD = KP * NT <= WINDOW ? KP : (WINDOW / NT > 0 ? WINDOW / NT : 1);  // pairs that are asked for at once

// Strides in elements of a tensor (B, T, parts, N, D), which is exchanged.
struct Exchanged {
  const element* base;  // at this head
  long long batch_stride, time_stride;
  int part_stride;
};

struct Source {
  const element* from[NT];  // at this lane's sequence and place of the depth
  const float* initial[NT];  // the same of states before the first step, in their place
  int part_stride;
  uint4 window[AHEAD][NT];

  // Offset of a piece of the depth; of the parts the last one may be another slot.
  __device__ __forceinline__ int offset_of(int pair) const {
    const int depth = 32 * (static_cast<int>(threadIdx.x) / 32 / MW * KP + pair);
    if constexpr (!IS_BACKWARD) return depth;
    const int gate = depth / D;
    return (APART && gate == GATES - 1 ? SLOTS - 1 : gate) * part_stride + depth % D;
  }

  __device__ __forceinline__ bool inside(int pair) const {
    return EVEN || 32 * (static_cast<int>(threadIdx.x) / 32 / MW * KP + pair) < DEPTH;
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
            window[i][n] = make_uint4(pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]), pack(x[6], x[7]));
          }
        }
      }
    }
  }

  // Whether the pair is there for all lanes; if it is not, it is asked for again.
  template <int PAIR>
  __device__ __forceinline__ bool has() {
    bool waits = false;
#pragma unroll
    for (int n = 0; n < NT; ++n) {
      if (is_unwritten(window[PAIR % AHEAD][n])) {
        window[PAIR % AHEAD][n] = load_shared_by_grid(from[n] + offset_of(PAIR));
        waits = true;
      }
    }
    return !__any_sync(0xFFFFFFFFu, waits);
  }

  // Adds what is there of PAIR and those after it in their window, in any order.
  template <int PAIR, int END>
  __device__ __forceinline__ void add_those_there(unsigned& missing, float (&sums)[CHAINS][MT][NT][4], const Weights& weights) {
    if constexpr (PAIR < END) {
      if ((missing & 1u << PAIR % AHEAD) && has<PAIR>()) {
        add_pair<PAIR>(sums, weights, window[PAIR % AHEAD]);
        missing &= ~(1u << PAIR % AHEAD);
      }
      add_those_there<PAIR + 1, END>(missing, sums, weights);
    }
  }

  template <int FIRST = 0>
  __device__ __forceinline__ void add_all(float (&sums)[CHAINS][MT][NT][4], const Weights& weights) {
    if constexpr (FIRST < KP) {
      constexpr int END = FIRST + AHEAD < KP ? FIRST + AHEAD : KP;
      ask<FIRST>();
      unsigned missing = (1u << (END - FIRST)) - 1;
      WATCHED_LOOP {
        add_those_there<FIRST, END>(missing, sums, weights);
        if (!missing) break;
      }
      add_all<END>(sums, weights);
    }
  }
};
#else
struct Source {
  const element* from;  // at this lane's sequence and place of the depth, in shared memory

  __device__ __forceinline__ explicit Source(const element* buffer) {
    const int lane = threadIdx.x % 32, kw = threadIdx.x / 32 / MW;
    from = buffer + operand_row(0) * OPERAND_STRIDE + lane % 4 * 8 + 32 * kw * KP;
  }

  template <int PAIR = 0>
  __device__ __forceinline__ void add_all(float (&sums)[CHAINS][MT][NT][4], const Weights& weights) {
    if constexpr (PAIR < KP) {
      const bool inside = EVEN || 32 * (static_cast<int>(threadIdx.x) / 32 / MW * KP + PAIR) < DEPTH;
      uint4 operand[NT];
#pragma unroll
      for (int n = 0; n < NT; ++n) {
        operand[n] = make_uint4(0, 0, 0, 0);
        if (inside) operand[n] = *reinterpret_cast<const uint4*>(from + n * 8 * OPERAND_STRIDE + 32 * PAIR);
      }
      add_pair<PAIR>(sums, weights, operand);
      add_all<PAIR + 1>(sums, weights);
    }
  }
};
#endif
