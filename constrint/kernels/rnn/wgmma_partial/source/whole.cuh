// Vectors that other blocks see whole or not at all, so that one bit of a vector says whether all of it has been written.
#pragma once
#include "ptx.cuh"

__device__ __forceinline__ void load_whole(const uint4* address, uint4& v) {
  asm volatile(
      "{\n.reg .b128 all;\n.reg .b64 low, high;\n"
      "ld.relaxed.gpu.global.b128 all, [%4];\n"
      "mov.b128 {low, high}, all;\nmov.b64 {%0,%1}, low;\nmov.b64 {%2,%3}, high;\n}\n"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "l"(address)
      : "memory");
}

__device__ __forceinline__ void load_whole(const uint2* address, uint2& v) {
  asm volatile("{\n.reg .b64 all;\nld.relaxed.gpu.global.b64 all, [%2];\nmov.b64 {%0,%1}, all;\n}\n"
               : "=r"(v.x), "=r"(v.y)
               : "l"(address)
               : "memory");
}

__device__ __forceinline__ void store_whole(uint4* address, const uint4& v) {
  asm volatile(
      "{\n.reg .b128 all;\n.reg .b64 low, high;\n"
      "mov.b64 low, {%1,%2};\nmov.b64 high, {%3,%4};\nmov.b128 all, {low, high};\n"
      "st.relaxed.gpu.global.b128 [%0], all;\n}\n" ::"l"(address),
      "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
      : "memory");
}

__device__ __forceinline__ void store_whole(uint2* address, const uint2& v) {
  asm volatile("{\n.reg .b64 all;\nmov.b64 all, {%1,%2};\nst.relaxed.gpu.global.b64 [%0], all;\n}\n" ::"l"(address),
               "r"(v.x), "r"(v.y)
               : "memory");
}
