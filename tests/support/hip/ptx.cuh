// What stands in for NVIDIA's instructions in a build for AMD GPUs: products by words passed between lanes, plain copies.
// It is there to show that the other files hold nothing that such a build could not take; it was run on no GPU.
#pragma once
#include "shape.cuh"

#define WATCHED_LOOP while (true)

// Hides a value, so that what is computed of it is computed again.
__device__ __forceinline__ void keep_in_loop(uint4& v) {
  asm volatile("" : "+v"(v.x), "+v"(v.y), "+v"(v.z), "+v"(v.w));
}
__device__ __forceinline__ void keep_in_loop(const uint4*& address) { asm volatile("" : "+v"(address)); }

#if DTYPE > 1
__device__ __forceinline__ unsigned round_to_tf32(unsigned x) { return (x + 0x1000u) & 0xFFFFE000u; }
__device__ __forceinline__ element narrow(float x) { return x; }
__device__ __forceinline__ float widen(element x) { return x; }
#else
__device__ __forceinline__ float widen(element bits) {
#if DTYPE == 1
  return __uint_as_float(static_cast<unsigned>(bits) << 16);
#else
  return static_cast<float>(__builtin_bit_cast(_Float16, bits));
#endif
}

__device__ __forceinline__ element narrow(float x) {
#if DTYPE == 1
  const unsigned word = __float_as_uint(x);
  return x != x ? 0x7FFF : static_cast<element>((word + 0x7FFFu + (word >> 16 & 1u)) >> 16);
#else
  return x != x ? 0x7FFF : __builtin_bit_cast(element, static_cast<_Float16>(x));
#endif
}

__device__ __forceinline__ unsigned pack(float low, float high) {
  return narrow(low) | static_cast<unsigned>(narrow(high)) << 16;
}
#endif

// The elements of a word, one or two, as they are multiplied.
constexpr int OF_WORD = 4 / sizeof(element);
__device__ __forceinline__ float element_of(unsigned word, int place) {
#if DTYPE > 1
  return __uint_as_float(word);
#else
  return widen(static_cast<element>(word >> 16 * place));
#endif
}

// As `mma.sync` deals its operands to lanes: A's word q of a row is with lane 4 * row + q, B's with lane 4 * column + q.
__device__ __forceinline__ void multiply_add(
    float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
  const unsigned lane = lane_of_wave() & 31, row = lane / 4, column = lane % 4 * 2;
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    const unsigned upper[2] = {from_lane(a0, 4 * row + q), from_lane(a2, 4 * row + q)};
    const unsigned lower[2] = {from_lane(a1, 4 * row + q), from_lane(a3, 4 * row + q)};
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const unsigned right[2] = {from_lane(b0, 4 * (column + j) + q), from_lane(b1, 4 * (column + j) + q)};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int i = 0; i < OF_WORD; ++i) {
          c[j] += element_of(upper[half], i) * element_of(right[half], i);
          c[2 + j] += element_of(lower[half], i) * element_of(right[half], i);
        }
      }
    }
  }
}

__device__ __forceinline__ float fast_tanh(float x) { return 2.0f * __fdividef(1.0f, 1.0f + __expf(-2.0f * x)) - 1.0f; }

// A vector of global memory that is read once in every step.
__device__ __forceinline__ uint4 load_streamed(const void* address) { return *static_cast<const uint4*>(address); }

// Words that other blocks of the grid write meanwhile: four words, each of which is whole.
__device__ __forceinline__ uint4 load_shared_by_grid(const void* address) {
  const unsigned* words = static_cast<const unsigned*>(address);
  unsigned v[4];
  for (int i = 0; i < 4; ++i) {
    v[i] = __hip_atomic_load(words + i, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  }
  return {v[0], v[1], v[2], v[3]};
}

__device__ __forceinline__ void store_shared_by_grid(void* address, unsigned word) {
  __hip_atomic_store(static_cast<unsigned*>(address), word, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

__device__ __forceinline__ void store_shared_by_grid(void* address, const uint4& v) {
  unsigned* words = static_cast<unsigned*>(address);
  const unsigned every[4] = {v.x, v.y, v.z, v.w};
  for (int i = 0; i < 4; ++i) store_shared_by_grid(words + i, every[i]);
}

__device__ __forceinline__ void fence_of_grid() { __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "agent"); }

__device__ __forceinline__ void copy_ahead(void* to, const void* from) {
  *static_cast<uint4*>(to) = *static_cast<const uint4*>(from);
}
__device__ __forceinline__ void end_of_copies() {}
template <int COUNT>
__device__ __forceinline__ void wait_for_copies() {}
