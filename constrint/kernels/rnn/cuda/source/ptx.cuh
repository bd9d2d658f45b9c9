// NVIDIA's own instructions, the only ones of this folder: a build for another vendor replaces this file.
#pragma once
#include "shape.cuh"

// A loop that waits for other blocks. With WATCH, for tests, one that never ends stops the kernel.
#ifdef WATCH
#define WATCHED_LOOP for (unsigned waited = 0;; ++waited, waited > WATCH ? __trap() : (void)0)
#else
#define WATCHED_LOOP while (true)
#endif

// c += a @ b: 16 rows by 8 columns, 16 deep, of 16-bit elements; or 8 deep, of tf32. c is fp32.
__device__ __forceinline__ void multiply_add(
    float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
#if DTYPE == 0
#define MULTIPLY_ADD "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
#elif DTYPE == 1
#define MULTIPLY_ADD "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
#else
#define MULTIPLY_ADD "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
#endif
  asm(MULTIPLY_ADD " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

#if DTYPE > 1
__device__ __forceinline__ unsigned round_to_tf32(unsigned x) {
#if DTYPE == 3
  // The same by the units for integers, which take four times as many. A NaN may become a number: what rounding leaves of
  // it is one, and that takes part in the product, too.
  return (x + 0x1000u) & 0xFFFFE000u;
#else
  unsigned rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(x)));
  return rounded;
#endif
}

__device__ __forceinline__ element narrow(float x) { return x; }
__device__ __forceinline__ float widen(element x) { return x; }
#else
// Two values rounded to 16 bits, the first one in the lower half. A NaN becomes 0x7FFF.
__device__ __forceinline__ unsigned pack(float low, float high) {
  unsigned packed;
#if DTYPE == 1
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
#else
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
#endif
  return packed;
}

__device__ __forceinline__ element narrow(float x) { return static_cast<element>(pack(x, 0.0f)); }

__device__ __forceinline__ float widen(element bits) {
#if DTYPE == 1
  return __uint_as_float(static_cast<unsigned>(bits) << 16);
#else
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
#endif
}
#endif

// tanh with a relative error of 2^-11.
__device__ __forceinline__ float fast_tanh(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Hides a value, so that what is computed of it is not computed once and kept in registers that there are not.
__device__ __forceinline__ void keep_in_loop(uint4& v) { asm volatile("" : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)); }
__device__ __forceinline__ void keep_in_loop(const uint4*& address) { asm volatile("" : "+l"(address)); }

// A vector of global memory that is read once in every step.
__device__ __forceinline__ uint4 load_streamed(const void* address) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.b32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address));
  return v;
}

// Words that other blocks of the grid write meanwhile.
__device__ __forceinline__ uint4 load_shared_by_grid(const void* address) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.b32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address)
               : "memory");
  return v;
}

__device__ __forceinline__ void store_shared_by_grid(void* address, unsigned word) {
  asm volatile("st.relaxed.gpu.global.b32 [%0], %1;" ::"l"(address), "r"(word) : "memory");
}

__device__ __forceinline__ void store_shared_by_grid(void* address, const uint4& v) {
  asm volatile("st.relaxed.gpu.global.v4.b32 [%0], {%1,%2,%3,%4};" ::"l"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}

__device__ __forceinline__ void fence_of_grid() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// Begins to copy 16 bytes from global to shared memory.
__device__ __forceinline__ void copy_ahead(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}

__device__ __forceinline__ void end_of_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most COUNT of this thread's groups of copies are under way.
template <int COUNT>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(COUNT) : "memory");
}

#if PLACEMENT == 1
__device__ __forceinline__ void barrier_init(unsigned barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_inits_visible() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Opens a phase of the barrier, which ends when that many bytes have come.
__device__ __forceinline__ void barrier_expect(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_wait(unsigned barrier, unsigned parity) {
  WATCHED_LOOP {
    unsigned done;
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%1], %2;\n"
        "selp.u32 %0, 1, 0, done;\n"
        "}\n"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
    if (done) break;
  }
}

__device__ __forceinline__ unsigned address_in(unsigned address, unsigned block) {
  unsigned mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(block));
  return mapped;
}

// Writes 16 bytes into another block's shared memory, and tells its barrier of them.
__device__ __forceinline__ void send(unsigned address, uint4 v, unsigned barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1,%2,%3,%4}, [%5];" ::"r"(address),
      "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
#endif
