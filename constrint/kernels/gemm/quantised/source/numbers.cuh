// Numbers of BITS bits widened to the type of X, their scales and zeros, and the matrix instruction that takes them.
#pragma once

__device__ __forceinline__ void multiply(float (&sums)[4], const unsigned (&w)[4], unsigned first, unsigned second) {
#if IS_BF16
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
#else
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
#endif
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(first), "r"(second));
}

#if BITS == 4
// Masks of four bits of each half, which the compiler does not know: it would load a constant for each use.
struct Masks {
  unsigned low, high;  // 0x000f000f, 0x00f000f0
};

#if IS_BF16
typedef unsigned less_t;
#else
struct less_t {
  unsigned less, sixteenth;  // -(1024 + zero), -(64 + zero)
};
#endif

// 128 (bf16) or 1024 (fp16) and a number of four bits, less 128 or 1024 and the zero: no bit is lost. In fp16 odd pairs
// lie four bits higher, as 1024 and sixteen times the number. With OF_SUMS nothing is subtracted.
__device__ __forceinline__ unsigned widen(unsigned word, int pair, const less_t& less, const Masks& masks) {
  unsigned made;
#if OF_SUMS
  made = (word >> 4 * pair & masks.low) | (IS_BF16 ? 0x43004300u : 0x64006400u);
#elif IS_BF16
  const unsigned high = (word >> 4 * pair & masks.low) | 0x43004300u;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(made) : "r"(high), "r"(0x3f803f80u), "r"(less));
#else
  const unsigned shifted = word >> pair / 2 * 8;
  if (pair % 2) {
    const unsigned high = (shifted & masks.high) | 0x64006400u;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(made) : "r"(high), "r"(0x2c002c00u), "r"(less.sixteenth));
  } else {
    const unsigned high = (shifted & masks.low) | 0x64006400u;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(made) : "r"(high), "r"(less.less));
  }
#endif
  return made;
}
#else
// 2^23 and a byte, less 2^23 and the zero, two of them as 16 bits.
struct Masks {};
__device__ __forceinline__ unsigned widen(unsigned word, int pair, float less, const Masks&) {
  const float first = __uint_as_float(__byte_perm(word, 0x4b000000u, pair ? 0x7652 : 0x7650)) + less;
  const float second = __uint_as_float(__byte_perm(word, 0x4b000000u, pair ? 0x7653 : 0x7651)) + less;
  unsigned made;
#if IS_BF16
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(made) : "f"(second), "f"(first));
#else
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(made) : "f"(second), "f"(first));
#endif
  return made;
}
#endif

__device__ __forceinline__ float scale_of(unsigned both) {
#if IS_BF16
  return __uint_as_float(both << 16);
#else
  float made;
  asm("cvt.f32.f16 %0, %1;" : "=f"(made) : "h"(static_cast<unsigned short>(both & 0xffffu)));
  return made;
#endif
}

// The zero as what is added to a widened number: both halves of a word, or a float.
#if BITS == 4
#if OF_SUMS
constexpr unsigned kOnes = IS_BF16 ? 0x3f803f80u : 0x3c003c00u;

__device__ __forceinline__ float less_as_float(unsigned both) { return scale_of(both >> 16); }
#endif

__device__ __forceinline__ less_t less_of(unsigned both) {
  const unsigned less = __byte_perm(both, 0, 0x3232);
#if IS_BF16
  return less;
#else
  less_t made = {less, 0};
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(made.sixteenth) : "r"(less), "r"(0x63806380u));  // 960
  return made;
#endif
}
#else
__device__ __forceinline__ float less_of(unsigned both) { return -8388608.0f - static_cast<float>(both >> 16); }
#endif

// The first of a share of `count` things, dealt evenly.
__device__ __forceinline__ int share_of(int which, int shares, int count) {
  return static_cast<int>(static_cast<long long>(which) * count / shares);
}
