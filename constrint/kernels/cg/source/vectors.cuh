// Vectors in memory, read and written VECTOR elements at a time.
#pragma once

constexpr int PACK_BYTES = VECTOR * sizeof(real) < 16 ? VECTOR * sizeof(real) : 16;
struct alignas(PACK_BYTES) Pack {
  real of[PACK_BYTES / sizeof(real)];
};
constexpr int PACKS = VECTOR * sizeof(real) / PACK_BYTES, PER_PACK = PACK_BYTES / sizeof(real);

__device__ __forceinline__ void load(const real* from, real (&to)[VECTOR]) {
  Pack packs[PACKS];
#pragma unroll
  for (int p = 0; p < PACKS; ++p) packs[p] = reinterpret_cast<const Pack*>(from)[p];
#pragma unroll
  for (int v = 0; v < VECTOR; ++v) to[v] = packs[v / PER_PACK].of[v % PER_PACK];
}

__device__ __forceinline__ void store(real* to, const real (&from)[VECTOR]) {
#pragma unroll
  for (int p = 0; p < PACKS; ++p) {
    Pack pack;
#pragma unroll
    for (int v = 0; v < PER_PACK; ++v) pack.of[v] = from[p * PER_PACK + v];
    reinterpret_cast<Pack*>(to)[p] = pack;
  }
}

// A vector in memory, in another type.
template <class Sum>
struct Plain {
  const real* from;
  __device__ __forceinline__ Sum one(int i) const { return from[i]; }
  __device__ __forceinline__ void several(int i, Sum (&to)[VECTOR]) const {
    real read[VECTOR];
    load(from + i, read);
#pragma unroll
    for (int v = 0; v < VECTOR; ++v) to[v] = read[v];
  }
};
