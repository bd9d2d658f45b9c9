// Blocks of a cluster meet, and read each other's numbers.
#pragma once

__device__ __forceinline__ void meet_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// A number in the shared memory of a block of the cluster.
__device__ __forceinline__ float read_of(const float* own, int rank) {
  float number;
  asm volatile(
      "{\n.reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %1, %2;\n"
      "ld.shared::cluster.f32 %0, [there];\n}\n"
      : "=f"(number)
      : "r"(static_cast<unsigned>(__cvta_generic_to_shared(own))), "r"(rank)
      : "memory");
  return number;
}
