// NVIDIA's own instructions, the only ones of this folder: a build for another machine replaces this file.
#pragma once

__device__ __forceinline__ void fence_of_grid() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// A word that other blocks wait for.
__device__ __forceinline__ void publish(unsigned long long* to, unsigned long long word) {
  asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}

__device__ __forceinline__ unsigned long long look(const unsigned long long* from) {
  unsigned long long word;
  asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
  return word;
}

template <class T>
__device__ __forceinline__ T of_next_lanes(T x, int distance) {
  return __shfl_xor_sync(0xFFFFFFFFu, x, distance);
}

template <class T>
__device__ __forceinline__ T of_lane(T x, int lane) {
  return __shfl_sync(0xFFFFFFFFu, x, lane);
}

__device__ __forceinline__ void sync_warp() { __syncwarp(); }

__device__ __forceinline__ unsigned high_word(double x) { return static_cast<unsigned>(__double2hiint(x)); }
__device__ __forceinline__ unsigned low_word(double x) { return static_cast<unsigned>(__double2loint(x)); }
__device__ __forceinline__ double of_words(unsigned high, unsigned low) {
  return __hiloint2double(static_cast<int>(high), static_cast<int>(low));
}

__device__ __forceinline__ unsigned char* shared_memory_of_block() {
  extern __shared__ __align__(16) unsigned char bytes[];
  return bytes;
}

// Hides a value, so that what follows from it is computed where it is used, not kept in registers meanwhile.
__device__ __forceinline__ void hide(int& value) { asm volatile("" : "+r"(value)); }
