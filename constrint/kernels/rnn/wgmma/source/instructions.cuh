// NVIDIA's own instructions beside those of `ptx.cuh`: what waits for the matrix unit, and barriers of some warps.
#pragma once
#include "cell.cuh"

// Registers that were written are seen by the matrix instructions that follow.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// The matrix instructions since the last one are a group.
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// All groups but so many have read their operands and written their sums.
template <int kLeft>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

// Keeps the compiler from moving a register across instructions that work beside the program.
__device__ __forceinline__ void hold(float& sum) { asm volatile("" : "+f"(sum)::"memory"); }

__device__ __forceinline__ void hold(uint4& v) { asm volatile("" : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)::"memory"); }

// A branch that is never taken, since blocks have dynamic shared memory. The assembler moves nothing across it: without it,
// matrix instructions are put behind the check of what the next ones wait for (seen in the machine code of NVRTC 13.5).
__device__ __forceinline__ void keep_order() {
  asm volatile(
      "{\n.reg .pred never;\n.reg .u32 size;\n"
      "mov.u32 size, %dynamic_smem_size;\n"
      "setp.eq.u32 never, size, 0;\n"
      "@!never bra done;\ntrap;\ndone:\n}\n" ::: "memory");
}

__device__ __forceinline__ void hold(unsigned long long& v) { asm volatile("" : "+l"(v)); }

// Two words beside each other that other blocks wait for.
__device__ __forceinline__ void store_shared_by_grid(void* address, const uint2& v) {
  asm volatile("st.relaxed.gpu.global.v2.b32 [%0], {%1,%2};" ::"l"(address), "r"(v.x), "r"(v.y) : "memory");
}

// 16 bytes by one instruction, into which the compiler does not always put the words of a vector.
__device__ __forceinline__ void store_vector(void* address, const uint4& v) {
  asm volatile("st.global.v4.b32 [%0], {%1,%2,%3,%4};" ::"l"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

// What threads wrote to shared memory is seen by the matrix unit.
__device__ __forceinline__ void fence_for_matrix_unit() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ void named_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

