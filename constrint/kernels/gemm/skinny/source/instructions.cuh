// Loads, matrix instructions and conversions, and what depends on the dtype. Nothing here knows how a product is dealt out.
#pragma once

#include "types.cuh"

struct __align__(16) Vector {
  unsigned word[4];
};

// What is read once does not stay in L1.
__device__ __forceinline__ Vector load_once(const unsigned char* from) {
  Vector v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "l"(from));
  return v;
}

// What this or another lane reads again stays in L1.
__device__ __forceinline__ Vector load_kept(const unsigned char* from) {
  Vector v;
  asm volatile("ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "l"(from));
  return v;
}

// sums += W @ X^T for 16 rows of W, 8 of X, and 32 bytes along K. Lane 4 g + t has the words t and t + 4 along K of W's
// rows g and g + 8 (w0 and w2, w1 and w3) and of X's row g (x0, x1); its sums are of rows g, g, g + 8, g + 8 of W and
// 2 t, 2 t + 1, 2 t, 2 t + 1 of X.
__device__ __forceinline__ void multiply_matrices(
    sum_t (&sums)[4], unsigned w0, unsigned w1, unsigned w2, unsigned w3, unsigned x0, unsigned x1) {
#if DTYPE == 0
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
#elif DTYPE == 1
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
#elif DTYPE == 3
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
#elif DTYPE == 4
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
#endif
#if DTYPE == 4
      : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
#elif DTYPE != 2
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
#endif
#if DTYPE != 2
      : "r"(w0), "r"(w1), "r"(w2), "r"(w3), "r"(x0), "r"(x1));
#endif
}

// The numbers in a vector, as sums take them.
__device__ __forceinline__ void unpack(const Vector& v, sum_t (&numbers)[16 / kElement]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#if DTYPE == 0
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.f32.f16 %0, low;\ncvt.f32.f16 %1, high;\n}"
        : "=f"(numbers[2 * i]), "=f"(numbers[2 * i + 1])
        : "r"(v.word[i]));
#elif DTYPE == 1
    numbers[2 * i] = __uint_as_float(v.word[i] << 16);
    numbers[2 * i + 1] = __uint_as_float(v.word[i] & 0xFFFF0000u);
#elif DTYPE == 2
    numbers[i] = __uint_as_float(v.word[i]);
#elif DTYPE == 3
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      asm("{\n.reg .b16 pair, low, high;\n.reg .b32 both;\ncvt.u16.u32 pair, %2;\ncvt.rn.f16x2.e4m3x2 both, pair;\n"
          "mov.b32 {low, high}, both;\ncvt.f32.f16 %0, low;\ncvt.f32.f16 %1, high;\n}"
          : "=f"(numbers[4 * i + 2 * half]), "=f"(numbers[4 * i + 2 * half + 1])
          : "r"(v.word[i] >> (16 * half)));
    }
#else
#pragma unroll
    for (int byte = 0; byte < 4; ++byte)
      numbers[4 * i + byte] = static_cast<int>(v.word[i] << (24 - 8 * byte)) >> 24;
#endif
  }
}

// Sums that blocks leave to each other bypass L1.
#if DTYPE == 4
#define SUM_CLASS "r"
#else
#define SUM_CLASS "f"
#endif
__device__ __forceinline__ void store_part(sum_t* to, const sum_t (&part)[4]) {
  asm volatile("st.global.cg.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), SUM_CLASS(part[0]), SUM_CLASS(part[1]),
               SUM_CLASS(part[2]), SUM_CLASS(part[3])
               : "memory");
}

__device__ __forceinline__ void load_part(const sum_t* from, sum_t (&part)[4]) {
  asm volatile("ld.global.cg.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=" SUM_CLASS(part[0]), "=" SUM_CLASS(part[1]), "=" SUM_CLASS(part[2]), "=" SUM_CLASS(part[3])
               : "l"(from)
               : "memory");
}
