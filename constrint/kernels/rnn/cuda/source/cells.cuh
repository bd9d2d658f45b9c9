// What the pointwise part of a step calls, in fp32. The part itself is a text that `generated/cuda.py` writes for a cell.
#pragma once
#include "ptx.cuh"
#include "shape.cuh"

__device__ __forceinline__ float sigmoid(float x) {
  return IS_WIDE ? __fdividef(1.0f, 1.0f + __expf(-x)) : 0.5f * fast_tanh(0.5f * x) + 0.5f;
}

__device__ __forceinline__ float tanh_of(float x) {
  return IS_WIDE ? 2.0f * __fdividef(1.0f, 1.0f + __expf(-2.0f * x)) - 1.0f : fast_tanh(x);
}

__device__ __forceinline__ float log_sigmoid(float x) { return fminf(x, 0.0f) - __logf(1.0f + __expf(-fabsf(x))); }

// A quotient; in 16 bits to a rounding of fp32 more.
__device__ __forceinline__ float quotient(float x, float y) { return IS_WIDE ? x / y : __fdividef(x, y); }

// A logarithm: in fp32 exact near 1, too.
__device__ __forceinline__ float logarithm(float x) { return IS_WIDE ? logf(x) : __logf(x); }

// A value that the dtype of states has, and not above x.
__device__ __forceinline__ float rounded_down(float x) {
#if DTYPE < 2
  constexpr float UNIT = DTYPE == 1 ? 0.00394531f : 0.00049316f;
  return widen(narrow(x - UNIT * fabsf(x)));
#else
  return x;
#endif
}
