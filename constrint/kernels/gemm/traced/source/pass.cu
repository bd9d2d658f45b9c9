// A user's epilogue on a product in memory, one pass: a thread finishes `VECTOR` elements of a row.
//
// Ahead of this file stand PASS_PARAMETERS, PASS_LOADS and PASS_ARGUMENTS, the operands, and the declaration of `traced`;
// see `text.py`. OUT and Z: types of C and of the product, numbered as in `epilogue.cuh`.
#pragma once
typedef float sum_t;
#include "epilogue.cuh"

constexpr int kVector = VECTOR, kThreads = 256;

template <int kBytes>
__device__ __forceinline__ void load_words(const void* from, unsigned (&words)[kBytes / 4]) {
  if constexpr (kBytes % 16 == 0) {
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i) {
      const uint4 four = __ldg(static_cast<const uint4*>(from) + i);
      words[4 * i] = four.x, words[4 * i + 1] = four.y, words[4 * i + 2] = four.z, words[4 * i + 3] = four.w;
    }
  } else if constexpr (kBytes == 8) {
    const uint2 two = __ldg(static_cast<const uint2*>(from));
    words[0] = two.x, words[1] = two.y;
  } else {
    words[0] = __ldg(static_cast<const unsigned*>(from));
  }
}

// Elements next to each other, the first of which lies at a multiple of their bytes, or of 16.
template <int kType, int kNumber>
__device__ __forceinline__ void load_vector(const void* from, long long at, float (&x)[kNumber]) {
  if constexpr (kNumber > 1 && (kType == 1 || kType == 2)) {
    unsigned words[kNumber / 2];
    load_words<kNumber * 2>(static_cast<const unsigned short*>(from) + at, words);
#pragma unroll
    for (int i = 0; i < kNumber; ++i) {
      const unsigned short element = static_cast<unsigned short>(words[i / 2] >> (i % 2 * 16));
      if constexpr (kType == 2) {
        x[i] = __uint_as_float(static_cast<unsigned>(element) << 16);
      } else {
        asm("cvt.f32.f16 %0, %1;" : "=f"(x[i]) : "h"(element));
      }
    }
  } else if constexpr (kNumber > 1 && kType == 3) {
    unsigned words[kNumber];
    load_words<kNumber * 4>(static_cast<const float*>(from) + at, words);
#pragma unroll
    for (int i = 0; i < kNumber; ++i) x[i] = __uint_as_float(words[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kNumber; ++i) x[i] = load_added<kType>(from, at + i);
  }
}

template <int kNumber>
__device__ __forceinline__ void store_vector(out_t* to, const float (&y)[kNumber]) {
#if OUT < 2
  if constexpr (kNumber == 1) {
    *to = static_cast<unsigned short>(narrow2(y[0], 0.0f));
  } else {
    unsigned words[kNumber / 2];
#pragma unroll
    for (int i = 0; i < kNumber / 2; ++i) words[i] = narrow2(y[2 * i], y[2 * i + 1]);
    if constexpr (kNumber == 8) {
      *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
    } else if constexpr (kNumber == 4) {
      *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
    } else {
      *reinterpret_cast<unsigned*>(to) = words[0];
    }
  }
#else
  if constexpr (kNumber % 4 == 0) {
#pragma unroll
    for (int i = 0; i < kNumber / 4; ++i)
      reinterpret_cast<float4*>(to)[i] = make_float4(y[4 * i], y[4 * i + 1], y[4 * i + 2], y[4 * i + 3]);
  } else {
#pragma unroll
    for (int i = 0; i < kNumber; ++i) to[i] = y[i];
  }
#endif
}

extern "C" __global__ void __launch_bounds__(kThreads)
    epilogue_pass(const void* __restrict__ product, out_t* __restrict__ out, int items, int per_row PASS_PARAMETERS) {
  const int item = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (item >= items) return;
  const long long row = item / per_row, column = (item - row * per_row) * kVector;
  const long long at = (row * per_row) * kVector + column;
  float acc[kVector], y[kVector];
  load_vector<Z>(product, at, acc);
  PASS_LOADS
#pragma unroll
  for (int i = 0; i < kVector; ++i) y[i] = traced(acc[i] PASS_ARGUMENTS);
  store_vector(out + at, y);
}
