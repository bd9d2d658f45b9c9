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

#if CELL_BY_HAND  // the sLSTM's backward step; else the generated text follows
// What a backward step knows before the gradients come. q: states before the step, c: after.
struct Known {
  float p0, kept, f, i, z, o, share, ratio, q1, q2, c1, c2, back;
  bool is_empty, is_least;
};

__device__ __forceinline__ Known know(const float (&p)[4], const float (&q)[4], const float (&c)[4], bool shift_free) {
  Known k;
  k.p0 = p[0], k.kept = log_sigmoid(p[1]) + q[3], k.is_empty = q[2] == 0.0f;
  k.i = __expf(p[0] - c[3]), k.f = k.is_empty ? 0.0f : __expf(k.kept - c[3]);
  k.z = tanh_of(p[2]), k.o = sigmoid(p[3]), k.back = sigmoid(-p[1]);
  k.is_least = k.f * q[2] + k.i < (shift_free ? 0.984375f : 1.0f);
  k.share = 1.0f / fmaxf(c[2], 1.0f), k.ratio = c[1] * k.share;
  k.q1 = q[1], k.q2 = q[2], k.c1 = c[1], k.c2 = c[2];
  return k;
}

__device__ __forceinline__ void step_backward(const Known& k, bool shift_free, float (&d)[STATES], float (&grads)[4]) {
  const float dc = d[1] + d[0] * k.o * k.share;
  const float dn = k.is_least ? 0.0f : d[2] - d[0] * k.o * k.ratio * k.share;
  float dm = d[3] - dc * k.c1 - dn * k.c2;
  if (shift_free && !k.is_least) dm = 0.0f;
  const bool from_input = k.is_empty || k.p0 >= k.kept;
  const float di = (dc * k.z + dn) * k.i + (from_input ? dm : 0.0f);
  const float df = (dc * k.q1 + dn * k.q2) * k.f + (from_input ? 0.0f : dm);
  grads[0] = di, grads[1] = df * k.back, grads[2] = dc * k.i * (1.0f - k.z * k.z);
  grads[3] = d[0] * k.ratio * k.o * (1.0f - k.o);
  d[0] = 0.0f, d[1] = dc * k.f, d[2] = dn * k.f, d[3] = df;
}
#endif
