// Copies without registers, and words of 16 bytes in shared memory. What `lines.cuh` is made of on a GPU.
#pragma once

struct __align__(16) Words {
  unsigned word[4];
};

// Registers of the warpgroup's threads from here on: fewer, or more once others have given theirs.
template <bool kIsMore, int kNumber>
__device__ __forceinline__ void set_registers() {
  if constexpr (kIsMore) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kNumber));
  } else {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kNumber));
  }
}

// Copies 16 bytes to shared memory, past the L1; or fewer, and zeros after them.
__device__ __forceinline__ void copy_unit(unsigned to, const unsigned char* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

__device__ __forceinline__ void copy_unit(unsigned to, const unsigned char* from, int size) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(size) : "memory");
}

__device__ __forceinline__ void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// All but so many groups of this thread's copies have arrived.
template <int kGroups>
__device__ __forceinline__ void wait_copied() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

__device__ __forceinline__ Words load_words(unsigned from) {
  Words v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "r"(from)
               : "memory");
  return v;
}

__device__ __forceinline__ void store_words(unsigned to, const Words& v) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.word[0]), "r"(v.word[1]), "r"(v.word[2]),
               "r"(v.word[3])
               : "memory");
}

__device__ __forceinline__ unsigned short load_half(unsigned from) {
  unsigned short half;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(half) : "r"(from) : "memory");
  return half;
}

// Four bytes of eight, from a bit on.
__device__ __forceinline__ unsigned upper_of(unsigned low, unsigned high, unsigned bit) {
  return __funnelshift_r(low, high, bit);
}

// What the TMA unit does with fp32 as it loads tf32: to the nearest, halves to even.
__device__ __forceinline__ Words rounded(const Words& v) {
#if DTYPE == 2
  Words out;
#pragma unroll
  for (int i = 0; i < 4; ++i) asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(out.word[i]) : "f"(__uint_as_float(v.word[i])));
  return out;
#else
  return v;
#endif
}
