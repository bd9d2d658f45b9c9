// Which units and sequences a thread has in the pointwise part, and what the product gives it for them.
#pragma once
#include "weights.cuh"

struct Place {
  int unit, row;  // of the block, of the tile
  bool exists;
};

__device__ __forceinline__ Place place_of(int item) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if constexpr (SUMS) {
    const int chunk = warp + WARPS * item;
    constexpr int ACROSS = U / CHUNK_UNITS;
    return {chunk % ACROSS * CHUNK_UNITS + lane % CHUNK_UNITS, chunk / ACROSS * 8 + lane / CHUNK_UNITS, chunk < CHUNKS};
  }
  const int column = item % COLUMNS, n = item / COLUMNS % NT, row = DOUBLED ? lane % 4 : n * 8 + lane % 4 * 2 + column;
  return {8 * (warp * UNIT_EIGHTS + item / (COLUMNS * NT)) + lane / 4, row, true};
}

// Lanes that have a unit and its neighbour differ in this bit.
constexpr int NEIGHBOUR = SUMS ? 1 : 4;

// The row of a tile that a lane reads the operand of.
__device__ __forceinline__ int operand_row(int n) {
  return DOUBLED ? static_cast<int>(threadIdx.x) % 32 / 8 : n * 8 + static_cast<int>(threadIdx.x) % 32 / 4;
}

// The sum for a gate of a unit in a warp's own tiles: the unit's group of eight, the tile of sequences, and its column.
__device__ __forceinline__ float own_sum(const float (&sums)[MT][NT][4], int eight, int n, int column, int gate) {
  if constexpr (PAIRED) return sums[2 * eight + gate / 2][n][gate % 2 * 2 + column];
  return sums[UNIT_TILES * (eight / 2) + gate][n][eight % 2 * 2 + column];
}

constexpr int SUM_PLACES = DOUBLED ? 4 : 8;  // of a unit: sequences of a tile of eight

// Where the sums of all gates of a unit and a sequence stand: eight threads that write, or read, at the same time are in
// different banks.
__device__ __forceinline__ float4* gathered_sums(float* shared, int kw, int unit, int row) {
  const int n = DOUBLED ? 0 : row / 8, r = row % 8;
  const int place = DOUBLED ? r ^ (unit / 2 % 4) : (r / 2 | r % 2 * 4) ^ (unit % 4 ^ unit % 2 * 4);
  return reinterpret_cast<float4*>(shared) + ((kw * NT + n) * U + unit) * SUM_PLACES + place;
}

__device__ __forceinline__ void write_sums(const float (&sums)[MT][NT][4], float* shared) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, mw = warp % MW, kw = warp / MW;
#pragma unroll
  for (int eight = 0; eight < UNIT_EIGHTS; ++eight) {
    const int unit = 8 * (mw * UNIT_EIGHTS + eight) + lane / 4;
#pragma unroll
    for (int n = 0; n < NT; ++n) {
      if constexpr (GATHERED) {
#pragma unroll
        for (int column = 0; column < COLUMNS; ++column) {
          float gates[4] = {};
#pragma unroll
          for (int gate = 0; gate < GATES; ++gate) gates[gate] = own_sum(sums, eight, n, column, gate);
          const int row = DOUBLED ? lane % 4 : n * 8 + lane % 4 * 2 + column;
          *gathered_sums(shared, kw, unit, row) = make_float4(gates[0], gates[1], gates[2], gates[3]);
        }
      } else {
        float* to = shared + (kw * ROWS + unit) * SUM_STRIDE + n * 8 + lane % 4 * COLUMNS;
        if constexpr (DOUBLED) {
          *to = own_sum(sums, eight, n, 0, 0);
        } else {
          *reinterpret_cast<float2*>(to) = make_float2(own_sum(sums, eight, n, 0, 0), own_sum(sums, eight, n, 1, 0));
        }
      }
    }
  }
}

// Hands the sums of warps that share the depth over to the threads of the pointwise part.
__device__ __forceinline__ void share_sums(const float (&sums)[MT][NT][4], float* shared) {
  if constexpr (SUMS) write_sums(sums, shared);
  if constexpr (SUMS || PLACEMENT == 2) __syncthreads();  // in the grid for the next step's inputs too
}

// The product for one of the thread's items: for each gate, or backward one value.
__device__ __forceinline__ void product_of(
    const float (&sums)[MT][NT][4], float* shared, int item, const Place& place, float (&product)[GATES]) {
  constexpr int VALUES = IS_BACKWARD ? 1 : GATES;
  if constexpr (!SUMS) {
    const int column = item % COLUMNS, n = item / COLUMNS % NT, eight = item / (COLUMNS * NT);
#pragma unroll
    for (int gate = 0; gate < VALUES; ++gate) product[gate] = own_sum(sums, eight, n, column, gate);
  } else {
    float parts[2][4] = {};
#pragma unroll
    for (int kw = 0; kw < KW; ++kw) {
      float(&part)[4] = parts[kw % 2];
      if constexpr (GATHERED) {
        const float4 v = *gathered_sums(shared, kw, place.unit, place.row);
        part[0] += v.x, part[1] += v.y, part[2] += v.z, part[3] += v.w;
      } else {
        part[0] += shared[(kw * ROWS + place.unit) * SUM_STRIDE + place.row];
      }
    }
#pragma unroll
    for (int gate = 0; gate < VALUES; ++gate) product[gate] = parts[0][gate] + parts[1][gate];
  }
}
