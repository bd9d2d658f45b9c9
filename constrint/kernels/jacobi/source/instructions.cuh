// Types of elements and of sums, and the instructions that C++ has no words for.
#pragma once

#if KIND == 1
typedef double real;
typedef double element;
#elif KIND == 0
typedef float real;
typedef float element;
#else
typedef float real;
typedef unsigned short element;
#endif

__device__ __forceinline__ real widen(element value) {
#if KIND == 2
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value));
  return wide;
#elif KIND == 3
  return __uint_as_float(static_cast<unsigned>(value) << 16);
#else
  return value;
#endif
}

__device__ __forceinline__ element narrow(real value) {
#if KIND == 2
  element bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#elif KIND == 3
  element bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#else
  return value;
#endif
}

// Begin to copy 4, 8 or 16 bytes to shared memory; zeros where nothing is there, and nothing is read then.
template <int BYTES>
__device__ __forceinline__ void copy_async(void* to, const void* from, bool is_there) {
  const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(to));
  const int bytes = is_there ? BYTES : 0;
  if constexpr (BYTES == 16) {
#if defined(HINT) && HINT == 128
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes) : "memory");
#elif defined(HINT) && HINT == 256
    asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes) : "memory");
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes) : "memory");
#endif
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(at), "l"(from), "r"(bytes), "n"(BYTES)
                 : "memory");
  }
}

// Make one group of the copies that this thread has begun, and wait until at most LEFT groups are under way.
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}
