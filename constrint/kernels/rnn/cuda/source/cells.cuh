// The pointwise part of one step of each cell, forward and backward, in fp32.
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

#if CELL < 5  // else the generated text follows
// p: i f z o; or r z, the input's part of n and the recurrent part of n; or g. s: h, then c, n and m.
__device__ __forceinline__ void step_forward(const float (&p)[4], float (&s)[STATES]) {
#if CELL == 0
  s[1] = sigmoid(p[1]) * s[1] + sigmoid(p[0]) * tanh_of(p[2]);
  s[0] = sigmoid(p[3]) * tanh_of(s[1]);
#elif CELL == 1
  const float candidate = tanh_of(p[2] + sigmoid(p[0]) * p[3]);
  s[0] = candidate + sigmoid(p[1]) * (s[0] - candidate);
#elif CELL == 2
  // m is stored rounded down, and used as it is stored: it is a common scale of c and n.
  const float kept = log_sigmoid(p[1]) + s[3];
  const bool is_empty = s[2] == 0.0f;
  float m = is_empty ? p[0] : fmaxf(p[0], kept);
#if DTYPE < 2
  constexpr float UNIT = DTYPE == 1 ? 0.00394531f : 0.00049316f;
  m = widen(narrow(m - UNIT * fabsf(m)));
#endif
  const float i = __expf(p[0] - m), f = is_empty ? 0.0f : __expf(kept - m);
  s[1] = f * s[1] + i * tanh_of(p[2]);
  s[2] = fmaxf(f * s[2] + i, 1.0f);
  s[0] = sigmoid(p[3]) * s[1] / s[2];
  s[3] = m;
#elif CELL == 3
  s[0] = tanh_of(p[0]);
#else
  s[0] = fmaxf(p[0], 0.0f);
#endif
}

// What a backward step knows before the gradients come. q: states before the step (with h for the GRU alone), c: after.
struct Known {
#if CELL == 0
  float of_h, i, f_in, f, z, o;
#elif CELL == 1
  float of_h, r_in, z_in, r, z;
#elif CELL == 2
  float p0, kept, f, i, z, o, below, share, ratio, q1, q2, c1, c2, back;
  bool is_empty, is_least;
#else
  float of_h;
#endif
};

__device__ __forceinline__ Known know(const float (&p)[4], const float (&q)[4], const float (&c)[4], bool shift_free) {
  Known k;
#if CELL == 0
  const float i = sigmoid(p[0]), f = sigmoid(p[1]), z = tanh_of(p[2]), o = sigmoid(p[3]), t = tanh_of(c[1]);
  k.of_h = o * (1.0f - t * t);
  k.i = z * i * (1.0f - i), k.z = i * (1.0f - z * z), k.o = t * o * (1.0f - o);
  k.f_in = q[1] * f * (1.0f - f), k.f = f;
#elif CELL == 1
  const float r = sigmoid(p[0]), z = sigmoid(p[1]), n = tanh_of(p[2] + r * p[3]);
  k.of_h = (1.0f - z) * (1.0f - n * n);
  k.r_in = p[3] * r * (1.0f - r), k.z_in = (q[0] - n) * z * (1.0f - z), k.r = r, k.z = z;
#elif CELL == 2
  k.p0 = p[0], k.kept = log_sigmoid(p[1]) + q[3], k.is_empty = q[2] == 0.0f;
  k.i = __expf(p[0] - c[3]), k.f = k.is_empty ? 0.0f : __expf(k.kept - c[3]);
  k.z = tanh_of(p[2]), k.o = sigmoid(p[3]), k.back = sigmoid(-p[1]);
  k.is_least = k.f * q[2] + k.i < (shift_free ? 0.984375f : 1.0f);
  k.share = 1.0f / fmaxf(c[2], 1.0f), k.ratio = c[1] * k.share;
  k.q1 = q[1], k.q2 = q[2], k.c1 = c[1], k.c2 = c[2], k.below = 0.0f;
#elif CELL == 3
  const float h = tanh_of(p[0]);
  k.of_h = 1.0f - h * h;
#else
  k.of_h = p[0] > 0.0f ? 1.0f : 0.0f;
#endif
  return k;
}

// Gradients of the pre-activations from those of the states after the step, which become those before it, without what
// flows through the weights.
__device__ __forceinline__ void step_backward(const Known& k, bool shift_free, float (&d)[STATES], float (&grads)[4]) {
#if CELL == 0
  const float dc = d[1] + d[0] * k.of_h;
  grads[0] = dc * k.i, grads[1] = dc * k.f_in, grads[2] = dc * k.z, grads[3] = d[0] * k.o;
  d[0] = 0.0f, d[1] = dc * k.f;
#elif CELL == 1
  const float dn = d[0] * k.of_h;
  grads[0] = dn * k.r_in, grads[1] = d[0] * k.z_in, grads[2] = dn, grads[3] = dn * k.r;
  d[0] *= k.z;
#elif CELL == 2
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
#else
  grads[0] = d[0] * k.of_h;
  d[0] = 0.0f;
#endif
}
#endif
