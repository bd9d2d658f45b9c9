// What is done with sums: out = activation(alpha * sum + bias + beta * source), rounded once to the type of the result.
//
// OUT: 0 fp16, 1 bf16, 2 fp32, 3 int32 (the sums as they are). ACTIVATION: 0 none, 1 relu, 2 gelu, 3 silu.
// BIAS and SOURCE: 0 where there is none, else the type of its elements, numbered as in `load_added`.
#pragma once

#define IS_PLAIN (OUT < 2 && BIAS == 0 && SOURCE == 0 && ACTIVATION == 0)

#if OUT < 2
typedef unsigned short out_t;
#elif OUT == 2
typedef float out_t;
#else
typedef int out_t;
#endif

// The kernel's parameters, where they are.
struct End {
  const void* const &bias;                              // one element for each column of C
  const void* const &source;                            // a matrix like C
  const long long &source_row, &source_column;          // its strides, in elements
  const float &alpha, &beta;
};

template <int kType>
__device__ __forceinline__ float load_added(const void* from, long long at) {
  if constexpr (kType == 1) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(__ldg(static_cast<const unsigned short*>(from) + at)));
    return value;
  } else if constexpr (kType == 2) {
    return __uint_as_float(static_cast<unsigned>(__ldg(static_cast<const unsigned short*>(from) + at)) << 16);
  } else if constexpr (kType == 3) {
    return __ldg(static_cast<const float*>(from) + at);
  } else if constexpr (kType == 4) {
    return static_cast<float>(__ldg(static_cast<const double*>(from) + at));
  } else {
    static_assert(kType == 5, "types that are added");
    return static_cast<float>(__ldg(static_cast<const int*>(from) + at));
  }
}

// NaN stays NaN, as in torch.
__device__ __forceinline__ float activate(float x) {
  if constexpr (ACTIVATION == 1) return x < 0 ? 0.0f : x;
  if constexpr (ACTIVATION == 2) return 0.5f * x * (1.0f + erff(x * 0.7071067811865476f));
  if constexpr (ACTIVATION == 3) return x / (1.0f + expf(-x));
  return x;
}

// The result of a sum at (row, column) of C.
#if OUT < 3
__device__ __forceinline__ float finish(sum_t sum, const End& end, int row, int column) {
  float x = end.alpha * static_cast<float>(sum);
  if constexpr (BIAS != 0) x += load_added<BIAS>(end.bias, column);
  if constexpr (SOURCE != 0)
    x += end.beta * load_added<SOURCE>(end.source, row * end.source_row + column * end.source_column);
  return activate(x);
}
#else
__device__ __forceinline__ int finish(sum_t sum, const End&, int, int) { return sum; }
#endif

#if OUT < 2
__device__ __forceinline__ unsigned narrow2(float low, float high) {
  unsigned packed;
#if OUT == 1
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
#else
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
#endif
  return packed;
}
#endif

// Elements of C that leave together: four, or one. More have more addresses, which take registers beside sums that wait.
template <int kVector>
__device__ __forceinline__ void store_results(out_t* to, const sum_t (&sums)[kVector], const End& end, int row, int column) {
#if OUT < 2
  if constexpr (kVector == 1) {
    *to = static_cast<unsigned short>(narrow2(finish(sums[0], end, row, column), 0.0f));
  } else {
    const unsigned low = narrow2(finish(sums[0], end, row, column), finish(sums[1], end, row, column + 1));
    const unsigned high = narrow2(finish(sums[2], end, row, column + 2), finish(sums[3], end, row, column + 3));
    *reinterpret_cast<uint2*>(to) = make_uint2(low, high);
  }
#else
  out_t results[kVector];
#pragma unroll
  for (int i = 0; i < kVector; ++i) results[i] = finish(sums[i], end, row, column + i);
  if constexpr (kVector == 1) {
    *to = results[0];
  } else {
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(results);
  }
#endif
}

// Finish sums that lie in shared memory in the order of C, rows `kPitch` bytes apart: `height` rows of `width` are
// results.
template <int kVector, int kWidth, int kPitch, int kThreads>
__device__ __forceinline__ void finish_rows(
    unsigned from, out_t* c, long long stride, const End& end, int row0, int column0, int height, int width, int thread) {
  constexpr int kPerRow = kWidth / kVector;
#pragma unroll 1
  for (int item = thread; item / kPerRow < height; item += kThreads) {
    const int row = item / kPerRow, column = item % kPerRow * kVector;
    if (column >= width) continue;
    sum_t sums[kVector];
    load_sums(from + row * kPitch + column * 4, sums);
    store_results<kVector>(
        c + (row0 + row) * stride + column0 + column, sums, end, row0 + row, column0 + column);
  }
}
