// The recurrent weights of a block, which stay in registers and in shared memory for the whole sequence, and the product
// with them. What finds no place there is laid down in global memory in the order in which it is read, and read again in
// every step: the L2 has it. Its first part is asked for before the exchange is waited for.
//
// A lane has its part of a piece of the depth as neighbours: of 16-bit elements, what an instruction calls elements 2q,
// 2q+1, 2q+8, 2q+9 of a depth of 16 are neighbours 8q .. 8q+3 here, and 8q+4 .. 8q+7 belong to the next instruction.
// Weights and operand agree on that, so a lane reads its part of the operand as one vector of 16 bytes.
#pragma once
#include "ptx.cuh"
#include "shape.cuh"

// Tiles of rows of pieces in global memory: all of a warp, those of which it has asked while it works on others, and
// vectors of a block.
constexpr int STREAMED = LP * MT, ASKED = STREAMED < 3 ? STREAMED : 3;
constexpr int STREAMED_VECTORS = WARPS * LP * EIGHTS * 32;

// Pieces in global memory are spread among those on the chip, so that others are multiplied while they are on their way.
// Of the pieces before one, so many are in global memory; the first RP of the others are in registers.
__device__ constexpr int far_before(int pair) { return LP * pair / KP; }
__device__ constexpr bool is_far(int pair) { return far_before(pair + 1) > far_before(pair); }
__device__ constexpr bool is_kept(int pair) { return !is_far(pair) && pair - far_before(pair) < RP; }

// Pieces whose weights are read from the caller's tensor at once, before the first step.
constexpr int READ_TOGETHER = MT < 4 ? 4 / MT : 1;

// Whether a tile of a warp's rows has both its halves.
__device__ constexpr bool has_both(int tile) { return 2 * tile + 1 < EIGHTS; }

struct Weights {
  uint4 kept[RP > 0 ? RP : 1][EIGHTS];
  const uint4* rest;      // [pair][eight rows][lane] of this warp in shared memory
  const uint4* streamed;  // the same of pieces in global memory
  uint4 asked[ASKED > 0 ? ASKED : 1][2];

  // Asks for a tile that is in global memory.
  template <int TILE>
  __device__ __forceinline__ void ask() {
    if constexpr (TILE < STREAMED) {
      constexpr int FIRST = TILE / MT * EIGHTS + TILE % MT * 2;
      asked[TILE % ASKED][0] = load_streamed(streamed + FIRST * 32);
      asked[TILE % ASKED][1] = has_both(TILE % MT) ? load_streamed(streamed + FIRST * 32 + 32) : make_uint4(0, 0, 0, 0);
    }
  }

  template <int TILE = 0>
  __device__ __forceinline__ void ask_first() {
    if constexpr (TILE < ASKED) {
      if (TILE == 0) keep_in_loop(streamed);  // else an address of each piece is kept in registers
      ask<TILE>();
      ask_first<TILE + 1>();
    }
  }
};

// Gate and unit of a row of the block's product; rows come in groups of eight.
__device__ __forceinline__ void place_of_row(int eight, int row, int& gate, int& unit) {
  if constexpr (PAIRED) {
    gate = eight % 4, unit = eight / 4 * 8 + row;
  } else if constexpr (IS_BACKWARD) {
    gate = 0, unit = eight * 8 + row;
  } else {
    gate = eight / 2 % GATES, unit = eight / 2 / GATES * 16 + eight % 2 * 8 + row;
  }
}

// A vector of neighbours along the depth of one row, from r (G, N, D out, D in).
__device__ __forceinline__ uint4 weight_vector(
    const element* __restrict__ r, int heads, int head, int first, int eight, int row, int depth) {
  int gate, unit;
  place_of_row(eight, row, gate, unit);
  if constexpr (!IS_BACKWARD) {
    const long long at = ((static_cast<long long>(gate) * heads + head) * D + first + unit) * D + depth;
    return *reinterpret_cast<const uint4*>(r + at);
  } else {
    const long long at = ((static_cast<long long>(depth / D) * heads + head) * D + depth % D) * D + first + unit;
    unsigned words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#if DTYPE > 1
      words[i] = __float_as_uint(r[at + i * D]);
#else
      words[i] = r[at + 2 * i * D] | static_cast<unsigned>(r[at + (2 * i + 1) * D]) << 16;
#endif
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
  }
}

// What an instruction takes of a vector of fp32; 16-bit elements as they are.
__device__ __forceinline__ uint4 rounded(const uint4& v) {
#if DTYPE > 1
  return make_uint4(round_to_tf32(v.x), round_to_tf32(v.y), round_to_tf32(v.z), round_to_tf32(v.w));
#else
  return v;
#endif
}

// tf32 is rounded once, by whoever computes it, and not by all that take it; but what a cluster sends are its outputs.
constexpr bool ROUNDED_BEFORE = DTYPE == 2 && PLACEMENT != 1;

// What the next product takes of a value.
__device__ __forceinline__ element operand_of(element x) {
#if DTYPE == 2
  if constexpr (ROUNDED_BEFORE) return __uint_as_float(round_to_tf32(__float_as_uint(x)));
#endif
  return x;
}

#if DTYPE == 3
__device__ __forceinline__ unsigned difference(unsigned x, unsigned y) {
  return __float_as_uint(__uint_as_float(x) - __uint_as_float(y));
}

__device__ __forceinline__ uint4 difference(const uint4& x, const uint4& y) {
  return make_uint4(difference(x.x, y.x), difference(x.y, y.y), difference(x.z, y.z), difference(x.w, y.w));
}
#endif

// A piece takes two instructions, one for each half of its vectors.
__device__ __forceinline__ void multiply_halves(
    float (&first)[NT][4], float (&second)[NT][4], const uint4& low, const uint4& high, const uint4 (&operand)[NT]) {
#pragma unroll
  for (int n = 0; n < NT; ++n) multiply_add(first[n], low.x, high.x, low.y, high.y, operand[n].x, operand[n].y);
#pragma unroll
  for (int n = 0; n < NT; ++n) multiply_add(second[n], low.z, high.z, low.w, high.w, operand[n].z, operand[n].w);
}

// A block's part of the weights in global memory.
__device__ __forceinline__ uint4* block_streamed(uint4* all) { return all + blockIdx.x * static_cast<long long>(STREAMED_VECTORS); }

__device__ __forceinline__ void load_weights(
    Weights& weights, char* shared, uint4* streamed, const element* __restrict__ r, int heads, int head, int first) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, mw = warp % MW, kw = warp / MW;
  uint4* own = reinterpret_cast<uint4*>(shared) + warp * SP * EIGHTS * 32;
  uint4* far = streamed + (LP > 0 ? warp * LP * EIGHTS * 32 : 0);
  weights.rest = own + lane, weights.streamed = far + lane;
  auto vector = [&](int pair, int eight) {
    const int depth = PIECE * (kw * KP + pair) + lane % 4 * VECTOR;
    uint4 v = make_uint4(0, 0, 0, 0);
    if (EVEN || depth < DEPTH) v = weight_vector(r, heads, head, first, mw * EIGHTS + eight, lane / 4, depth);
    return DTYPE == 2 ? rounded(v) : v;
  };
#pragma unroll
  for (int pair = 0; pair < KP; ++pair) {
    if (is_kept(pair)) {
#pragma unroll
      for (int eight = 0; eight < EIGHTS; ++eight) weights.kept[pair - far_before(pair)][eight] = vector(pair, eight);
    }
  }
#pragma unroll 1
  for (int first = 0; first < KP; first += READ_TOGETHER) {
    uint4 read[READ_TOGETHER][EIGHTS];
#pragma unroll
    for (int i = 0; i < READ_TOGETHER; ++i) {
#pragma unroll
      for (int eight = 0; eight < EIGHTS; ++eight) {
        if (first + i < KP && !is_kept(first + i)) read[i][eight] = vector(first + i, eight);
      }
    }
#pragma unroll
    for (int i = 0; i < READ_TOGETHER; ++i) {
      const int pair = first + i, before = far_before(pair);
      uint4* to = is_far(pair) ? far + before * EIGHTS * 32 : own + (pair - before - RP) * EIGHTS * 32;
#pragma unroll
      for (int eight = 0; eight < EIGHTS; ++eight) {
        if (pair < KP && !is_kept(pair)) to[eight * 32 + lane] = read[i][eight];
      }
    }
  }
}

// What an instruction takes of the operand: of fp32 through three products also what rounding left.
struct Given {
  uint4 of[NT];
#if DTYPE == 3
  uint4 rest[NT];
#endif
};

// Adds one piece's part of the product, tile by tile of rows.
template <int PAIR, int TILE>
__device__ __forceinline__ void add_tiles(float (&sums)[CHAINS][MT][NT][4], Weights& weights, const Given& given) {
  if constexpr (TILE < MT) {
    constexpr int FAR = far_before(PAIR) * MT + TILE, NEAR = PAIR - far_before(PAIR);
    uint4 low, high = make_uint4(0, 0, 0, 0);
    if constexpr (is_kept(PAIR)) {
      low = weights.kept[NEAR][2 * TILE];
      if constexpr (has_both(TILE)) high = weights.kept[NEAR][2 * TILE + 1];
    } else if constexpr (!is_far(PAIR)) {
      const uint4* at = weights.rest + ((NEAR - RP) * EIGHTS + 2 * TILE) * 32;
      low = at[0];
      if constexpr (has_both(TILE)) high = at[32];
    } else {
      low = weights.asked[FAR % ASKED][0], high = weights.asked[FAR % ASKED][1];
    }
    float(&first)[NT][4] = sums[0][TILE];
    float(&second)[NT][4] = sums[CHAINS - 1][TILE];
#if DTYPE == 3
    keep_in_loop(low), keep_in_loop(high);
    // fp32 as the sum of two tf32: the product of the smaller parts is below fp32's rounding.
    const uint4 big_low = rounded(low), big_high = rounded(high);
    const uint4 small_low = difference(low, big_low), small_high = difference(high, big_high);
    multiply_halves(first, second, small_low, small_high, given.of);
    multiply_halves(first, second, big_low, big_high, given.rest);
    multiply_halves(first, second, big_low, big_high, given.of);
#else
    multiply_halves(first, second, low, high, given.of);
#endif
    if constexpr (is_far(PAIR)) weights.template ask<FAR + ASKED>();
    add_tiles<PAIR, TILE + 1>(sums, weights, given);
  }
}

// The same of all tiles; `operand` has the vectors of each eight sequences.
template <int PAIR>
__device__ __forceinline__ void add_pair(float (&sums)[CHAINS][MT][NT][4], Weights& weights, const uint4 (&operand)[NT]) {
  Given given;
#pragma unroll
  for (int n = 0; n < NT; ++n) given.of[n] = ROUNDED_BEFORE ? operand[n] : rounded(operand[n]);
#if DTYPE == 3
#pragma unroll
  for (int n = 0; n < NT; ++n) given.rest[n] = difference(operand[n], given.of[n]);
#endif
  add_tiles<PAIR, 0>(sums, weights, given);
}

// The product with what `source` reads.
template <class Source>
__device__ __forceinline__ void multiply(float (&sums)[MT][NT][4], Weights& weights, Source& source) {
  float parts[CHAINS][MT][NT][4] = {};
  weights.ask_first();
  source.add_all(parts, weights);
#pragma unroll
  for (int tile = 0; tile < MT; ++tile) {
#pragma unroll
    for (int n = 0; n < NT; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[tile][n][i] = CHAINS > 1 ? parts[0][tile][n][i] + parts[1][tile][n][i] : parts[0][tile][n][i];
    }
  }
}
