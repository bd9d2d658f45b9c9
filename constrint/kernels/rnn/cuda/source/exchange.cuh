// How the blocks that share a head give each other what the next product takes: through shared memory of one block,
// through that of all blocks of a cluster, or through global memory.
//
// In global memory it stands in a ring of RING steps, in the order in which lanes take it: a warp reads 512 bytes beside
// each other at once, four lines of the L2 where eight rows of 64 bytes are parts of eight. What has not been written yet
// is a word of ones, two NaNs that no result has. Whoever reads waits for each word to be another: there is no barrier,
// only words that are written once. Whoever wrote a word makes it one of ones again as soon as all have read it, two
// steps later, and all threads of all blocks pass a fence every FENCE steps: between that and the word's next use in the
// ring both its writer and its reader have passed one, in that order.
#pragma once
#include "items.cuh"

constexpr unsigned UNWRITTEN = 0xFFFFFFFFu;

__device__ __forceinline__ bool is_unwritten(const uint4& v) {
  return v.x == UNWRITTEN || v.y == UNWRITTEN || v.z == UNWRITTEN || v.w == UNWRITTEN;
}

#if DTYPE > 1
// What the next product takes of a value, as a word that says that it has been written.
__device__ __forceinline__ unsigned written_word(element x) {
  const unsigned word = __float_as_uint(operand_of(x));
  return word == UNWRITTEN ? 0x7FFFFFFFu : word;
}
#endif

// A vector of elements of values in fp32.
__device__ __forceinline__ uint4 vector_of(const float* x) {
#if DTYPE > 1
  return make_uint4(written_word(x[0]), written_word(x[1]), written_word(x[2]), written_word(x[3]));
#else
  return make_uint4(pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]), pack(x[6], x[7]));
#endif
}

#if PLACEMENT == 2
constexpr int AHEAD = KP * NT <= WINDOW ? KP : (WINDOW / NT > 0 ? WINDOW / NT : 1);  // pairs that are asked for at once

// Elements of a piece of the depth of all rows of a tile, and of a step of a tile, in the ring.
constexpr int PIECE_ELEMENTS = NB * PIECE, STEP_ELEMENTS = PAIRS * PIECE_ELEMENTS;
static_assert(RING >= 2 * FENCE + 4, "a word is written again after both of its sides have passed a fence");

// Where a tile's steps stand in the ring.
__device__ __forceinline__ element* ring_of(element* exchange, int group, int tile) {
  return exchange + (static_cast<long long>(group) * TILES + tile) * (RING * static_cast<long long>(STEP_ELEMENTS));
}

// Where a unit's part of a row stands in a step.
__device__ __forceinline__ int place_in_step(int unit, int part, int row) {
  const int depth = part * D + unit;
  return depth / PIECE * PIECE_ELEMENTS + row * PIECE + depth % PIECE;
}

struct Source {
  const element* from;       // at this lane's row and place of the first piece; null in the first step
  const float* initial[NT];  // states before the first step, at this lane's sequence and place, in its place
  bool exists[NT];           // whether the row of this lane is a sequence
  uint4 window[AHEAD][NT];

  __device__ __forceinline__ static int first_pair() { return static_cast<int>(threadIdx.x) / 32 / MW * KP; }

  // Points at a step of a tile.
  __device__ __forceinline__ void point(const element* step) {
    from = !step ? nullptr : step + first_pair() * PIECE_ELEMENTS + operand_row(0) * PIECE + static_cast<int>(threadIdx.x) % 4 * VECTOR;
  }

  __device__ __forceinline__ bool inside(int pair) const { return EVEN || first_pair() + pair < PAIRS; }

  __device__ __forceinline__ uint4 load(int pair, int n) const {
    return load_shared_by_grid(from + pair * PIECE_ELEMENTS + n * 8 * PIECE);
  }

  template <int PAIR>
  __device__ __forceinline__ void ask() {
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
      if (PAIR + i < KP) {
#pragma unroll
        for (int n = 0; n < NT; ++n) {
          window[i][n] = make_uint4(0, 0, 0, 0);
          if (from && exists[n] && inside(PAIR + i)) {
            window[i][n] = load(PAIR + i, n);
          } else if (!IS_BACKWARD && initial[n] && inside(PAIR + i)) {
            window[i][n] = vector_of(initial[n] + PIECE * (first_pair() + PAIR + i));
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
              window[i][n] = load(FIRST + i, n);
              waits = true;
            }
          }
        }
      }
      if (!__any_sync(0xFFFFFFFFu, waits)) break;
    }
  }

  template <int PAIR, int END>
  __device__ __forceinline__ void add_window(float (&sums)[CHAINS][MT][NT][4], Weights& weights) {
    if constexpr (PAIR < END) {
      add_pair<PAIR>(sums, weights, window[PAIR % AHEAD]);
      add_window<PAIR + 1, END>(sums, weights);
    }
  }

  template <int FIRST = 0>
  __device__ __forceinline__ void add_all(float (&sums)[CHAINS][MT][NT][4], Weights& weights) {
    if constexpr (FIRST < KP) {
      constexpr int END = FIRST + AHEAD < KP ? FIRST + AHEAD : KP;
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

// Makes what this block wrote in a step what it was before it: forward a thread's own word, backward vectors of several
// parts, by whichever thread. Sequences that there are not stay as they are.
__device__ __forceinline__ void forget(element* to, bool exists) {
  if (exists && (sizeof(element) > 2 || !(threadIdx.x & NEIGHBOUR))) store_shared_by_grid(to, UNWRITTEN);
}

__device__ __forceinline__ void forget_step(element* step, int first) {
#pragma unroll
  for (int i = threadIdx.x; i < NB * PARTS * (U / VECTOR); i += THREADS) {
    const int row = i % NB, unit = i / NB % (U / VECTOR) * VECTOR, part = i / NB / (U / VECTOR);
    store_shared_by_grid(step + place_in_step(first + unit, part, row), make_uint4(UNWRITTEN, UNWRITTEN, UNWRITTEN, UNWRITTEN));
  }
}
#else
struct Source {
  const element* from;  // at this lane's sequence and place of the depth, in shared memory

  __device__ __forceinline__ explicit Source(const element* buffer) {
    const int lane = threadIdx.x % 32, kw = threadIdx.x / 32 / MW;
    from = buffer + operand_row(0) * OPERAND_STRIDE + lane % 4 * VECTOR + PIECE * kw * KP;
  }

  template <int PAIR = 0>
  __device__ __forceinline__ void add_all(float (&sums)[CHAINS][MT][NT][4], Weights& weights) {
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
