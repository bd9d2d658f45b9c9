// What is done with sums: out = activation(alpha * sum + bias + beta * source), rounded once to the type of the result.
//
// OUT: 0 fp16, 1 bf16, 2 fp32, 3 int32 (the sums as they are). ACTIVATION: numbers of `epilogue/activations.py`.
// BIAS and SOURCE: 0 where there is none, else the type of its elements, numbered as in `load_added`.
#pragma once

// 1 where results are activation(alpha * first + bias) * (alpha * second + other bias) of two sums; see `kernel.cu`.
#ifndef GATED
#define GATED 0
#endif

// 1 where results are a function `traced` of the sum and of operands, whose text stands ahead of the kernel and behind it;
// see `gemm/traced/text.py`.
#ifndef TRACED
#define TRACED 0
#endif

#define IS_PLAIN (OUT < 2 && BIAS == 0 && SOURCE == 0 && ACTIVATION == 0 && !GATED && !TRACED)

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
#if TRACED
  const Operands& operands;
#endif
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

// Instructions of the unit for special functions; results below 2^-126 are 0.
__device__ __forceinline__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// NaN stays NaN.
__device__ __forceinline__ float at_most(float x, float most) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(most));
  return y;
}

__device__ __forceinline__ float at_least_0(float x) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(0.0f));
  return y;
}

// c[0] + c[1] * x + c[2] * x^2 ...
template <int kNumber>
__device__ __forceinline__ float polynomial(const float (&c)[kNumber], float x) {
  float y = c[kNumber - 1];
#pragma unroll
  for (int i = kNumber - 2; i >= 0; --i) y = fmaf(y, x, c[i]);
  return y;
}

// Results of 16 bits take approximations, whose errors `tests/kernels/gemm/test_activations.py` proves. On an H100
// the time grew with the instructions even where another consumer multiplies meanwhile; why is not known. As in torch, NaN
// stays NaN, infinity stays infinity, and -infinity becomes NaN where x is a factor.

// x / 2 * (1 + erf(x / sqrt(2))) = x * s(x) with s(x) = 1 - s(-x), which is max(x, 0) - |x| * s(-|x|). The logarithm of
// s(-|x|) is smooth, so that a polynomial in |x| serves all x. |x| is limited where x is positive, for infinity's sake.
__device__ __forceinline__ float gelu(float x) {
#if OUT == 1
  const float c[] = {-1.0002137422561646f, -1.1479676961898804f, -0.46656537055969240f,
                     -0.04654315114021301f, 0.005356020759791136f, -0.00027522296295501292f};
  const float m = at_most(x, 6.3f);
#else
  const float c[] = {-0.99999696016311650f, -1.1512082815170288f, -0.45863792300224304f, -0.053703971207141876f,
                     0.008332228288054466f, -0.00086984626250341530f, 5.136106119607575e-05f,
                     -1.1644308415270643e-06f};
  const float m = at_most(x, 5.9f);
#endif
  return fmaf(-fabsf(m), power_of_two(polynomial(c, fabsf(m))), fmaxf(x, 0.0f));
}

// 1 / (1 + 2^exponent), the sigmoid of -exponent * ln(2).
__device__ __forceinline__ float sigmoid(float exponent) { return reciprocal(1.0f + power_of_two(exponent)); }
constexpr float kLog2E = 1.4426950408889634f;

template <int kActivation>
__device__ __forceinline__ float activate_as(float x) {
  [[maybe_unused]] constexpr bool kIsNarrow = OUT < 2;
  if constexpr (kActivation == 1) return at_least_0(x);
  if constexpr (kActivation == 2) {
    if constexpr (kIsNarrow) return gelu(x);
    return 0.5f * x * (1.0f + erff(x * 0.7071067811865476f));
  }
  if constexpr (kActivation == 3) {
    if constexpr (kIsNarrow) return x * sigmoid(-kLog2E * x);
    return x / (1.0f + expf(-x));
  }
  if constexpr (kActivation == 4) {  // gelu_tanh: x times the sigmoid of 2 * sqrt(2 / pi) * (x + 0.044715 * x^3)
    constexpr float kFirst = 1.5957691216057308f, kThird = kFirst * 0.044715f;
    if constexpr (kIsNarrow) return x * sigmoid(x * fmaf(x * x, -kThird * kLog2E, -kFirst * kLog2E));
    return 0.5f * x * (1.0f + tanhf(0.5f * x * fmaf(x * x, kThird, kFirst)));
  }
  if constexpr (kActivation == 5) {  // sigmoid
    if constexpr (kIsNarrow) return sigmoid(-kLog2E * x);
    return 1.0f / (1.0f + expf(-x));
  }
  if constexpr (kActivation == 6) {  // quick_gelu
    if constexpr (kIsNarrow) return x * sigmoid(-1.702f * kLog2E * x);
    return x / (1.0f + expf(-1.702f * x));
  }
  if constexpr (kActivation == 7) return at_least_0(x) * at_least_0(x);
  if constexpr (kActivation == 8) {
    if constexpr (OUT == 1) {
      float y;
      asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
      return y;
    }
    return tanhf(x);
  }
  return x;
}

__device__ __forceinline__ float activate(float x) { return activate_as<ACTIVATION>(x); }

// NaN stays NaN.
__device__ __forceinline__ float at_least(float x, float least) { return -at_most(-x, -least); }

#if TRACED
// The epilogue of a sum whose result is at (row, column) of C.
__device__ __forceinline__ float traced(float sum, float bias, float source, const Operands& operands, int row, int column);
#endif

// The result of a sum at (row, column) of C.
#if OUT < 3
__device__ __forceinline__ float finish(sum_t sum, const End& end, int row, int column) {
#if TRACED
  float bias = 0.0f, source = 0.0f;
  if constexpr (BIAS != 0) bias = load_added<BIAS>(end.bias, column);
  if constexpr (SOURCE != 0) source = load_added<SOURCE>(end.source, row * end.source_row + column * end.source_column);
  return traced(static_cast<float>(sum), bias, source, end.operands, row, column);
#endif
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
