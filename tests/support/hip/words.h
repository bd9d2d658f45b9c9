// Of HIP's headers what the recurrent kernels' sources use: enough to compile them for an AMD GPU with clang alone.
// Lanes of a "warp" are 32 of a wave's 64.
#pragma once
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(threads, blocks) __attribute__((amdgpu_flat_work_group_size(1, threads)))

struct uint4 {
  unsigned x, y, z, w;
};
struct float2 {
  float x, y;
};
struct float4 {
  float x, y, z, w;
};
__device__ __forceinline__ uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
__device__ __forceinline__ float2 make_float2(float x, float y) { return {x, y}; }
__device__ __forceinline__ float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

struct ThreadIndex {
  struct {
    __device__ __forceinline__ operator unsigned() const { return __builtin_amdgcn_workitem_id_x(); }
  } x;
};
struct BlockIndex {
  struct {
    __device__ __forceinline__ operator unsigned() const { return __builtin_amdgcn_workgroup_id_x(); }
  } x;
};
#define threadIdx ThreadIndex{}
#define blockIdx BlockIndex{}

__device__ __forceinline__ void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
__device__ __forceinline__ unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
__device__ __forceinline__ float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
__device__ __forceinline__ unsigned lane_of_wave() {
  return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u));
}
__device__ __forceinline__ unsigned from_lane(unsigned value, unsigned lane) {  // of the same 32 lanes
  return __builtin_amdgcn_ds_bpermute(4 * ((lane_of_wave() & 32) + lane), value);
}
__device__ __forceinline__ unsigned __shfl_xor_sync(unsigned, unsigned value, int mask) {
  return from_lane(value, (lane_of_wave() & 31) ^ mask);
}
__device__ __forceinline__ bool __any_sync(unsigned, bool condition) {
  const unsigned long long all = __builtin_amdgcn_ballot_w64(condition);
  return static_cast<unsigned>(all >> (lane_of_wave() & 32)) != 0;
}
__device__ __forceinline__ long long clock() { return __builtin_readcyclecounter(); }
__device__ __forceinline__ float fminf(float x, float y) { return __builtin_fminf(x, y); }
__device__ __forceinline__ float fmaxf(float x, float y) { return __builtin_fmaxf(x, y); }
__device__ __forceinline__ float fabsf(float x) { return __builtin_fabsf(x); }
__device__ __forceinline__ float __expf(float x) { return __builtin_amdgcn_exp2f(1.442695041f * x); }
__device__ __forceinline__ float __logf(float x) { return 0.6931471806f * __builtin_amdgcn_logf(x); }
__device__ __forceinline__ float __fdividef(float x, float y) { return x * __builtin_amdgcn_rcpf(y); }
