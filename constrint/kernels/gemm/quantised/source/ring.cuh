// Barriers in shared memory, and copies to it that end at one: those of a ring of stages.
#pragma once
#include "cluster.cuh"

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void barrier_init(unsigned barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

// Other threads and the unit that copies see the barriers as they were made.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void expect(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void wait(unsigned barrier, unsigned parity) {
  unsigned done;
  do {
    asm volatile(
        "{\n.reg .pred done;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
        "selp.u32 %0, 1, 0, done;\n}\n"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (!done);
}

// How long the L2 is to keep what is read once.
__device__ __forceinline__ unsigned long long read_once_policy() {
  unsigned long long policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// Whether this is the one thread of a warp that starts bulk copies.
__device__ __forceinline__ bool is_elected() {
  unsigned elected;
  asm volatile(
      "{\n.reg .pred elected;\n"
      "elect.sync _|elected, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, elected;\n}\n"
      : "=r"(elected));
  return elected;
}

// Copies bytes, a multiple of 16 from and to addresses that are multiples of 16; the barrier counts them.
__device__ __forceinline__ void copy_once(
    unsigned to, const void* from, unsigned bytes, unsigned barrier, unsigned long long policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}

// Copies up to 16 bytes of a thread, and zeros in place of the others.
__device__ __forceinline__ void copy_vector(unsigned to, const void* from, unsigned bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

// Arrives when this thread's vectors have.
__device__ __forceinline__ void arrive_with_vectors(unsigned barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// Waits for the warps that multiply, which are `threads`.
template <int kThreads>
__device__ __forceinline__ void meet() {
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
}

// Says to a block's other warps that barriers are made, without waiting for them; and waits for that.
template <int kThreads>
__device__ __forceinline__ void announce() {
  asm volatile("bar.arrive 2, %0;" ::"n"(kThreads) : "memory");
}

template <int kThreads>
__device__ __forceinline__ void wait_for_barriers() {
  asm volatile("bar.sync 2, %0;" ::"n"(kThreads) : "memory");
}

__device__ __forceinline__ void meet_warp() { __syncwarp(); }
