// Instructions that C++ has no words for: conversions, loads that pass the L1 by, copies, barriers and shuffles.
#pragma once

#if VALUE == 0
typedef double Value;
typedef double Sum;
#elif VALUE == 1
typedef float Value;
typedef float Sum;
#else
typedef unsigned short Value;
typedef float Sum;
#endif

__device__ __forceinline__ Sum widened(Value value) {
#if VALUE < 2
  return value;
#elif VALUE == 2
  return __uint_as_float((unsigned)value << 16);
#else
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value));
  return wide;
#endif
}

__device__ __forceinline__ Value rounded(Sum sum) {
#if VALUE < 2
  return sum;
#elif VALUE == 2
  Value value;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(value) : "f"(sum));
  return value;
#else
  Value value;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(value) : "f"(sum));
  return value;
#endif
}

__device__ __forceinline__ unsigned load_once(const unsigned* from) {
  unsigned word;
  asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(word) : "l"(from));
  return word;
}
__device__ __forceinline__ uint2 load_once(const uint2* from) {
  uint2 word;
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(word.x), "=r"(word.y) : "l"(from));
  return word;
}
__device__ __forceinline__ uint4 load_once(const uint4* from) {
  uint4 word;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
               : "l"(from));
  return word;
}

// Begins to bring a line to the L2.
__device__ __forceinline__ void bring_to_l2(const void* from) { asm volatile("prefetch.global.L2 [%0];" ::"l"(from)); }

__device__ __forceinline__ void meet() { __syncthreads(); }

// Copies a word to shared memory while the thread goes on.
__device__ __forceinline__ void copy_word(int* to, const int* from) {
  const unsigned address = (unsigned)__cvta_generic_to_shared(to);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(address), "l"(from) : "memory");
}
// Copies 16 bytes.
__device__ __forceinline__ void copy_vector(void* to, const void* from) {
  const unsigned address = (unsigned)__cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int NUMBER>
__device__ __forceinline__ void wait_for_all_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(NUMBER) : "memory");
}
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

__device__ __forceinline__ Sum of_other_lane(Sum sum, int step) { return __shfl_xor_sync(0xffffffffu, sum, step); }

// Exchanges among the lanes of a warp.
__device__ __forceinline__ int of_lane(int word, int from) { return __shfl_sync(0xffffffffu, word, from); }
__device__ __forceinline__ Sum of_lane_before(Sum sum, int step, int lane) { return __shfl_up_sync(0xffffffffu, sum, step); }
__device__ __forceinline__ void wait_for_lanes() { __syncwarp(); }
// The sum of the counts of the lanes before.
__device__ __forceinline__ int scan_counts(int count, int lane) {
  int sum = count;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = of_lane(sum, lane >= step ? lane - step : lane);
    if (lane >= step) sum += other;
  }
  return sum - count;
}
