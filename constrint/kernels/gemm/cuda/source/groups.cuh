// How rows are dealt to products, which the device alone knows. Included by kernel.cu, whose constants it needs.
//
// In shared memory there are two numbers for each product: where its rows end, and how many units it and all before it
// have. Units of a product are walked in groups of rows of tiles, as those of a single product are.
#pragma once

// Rows of a tile of a cluster that a product's own rows fill, and tiles across them, which are the same for all.
constexpr int kRagged = TURNED ? kColumns * kClusterColumns : kRows * kClusterRows;
__device__ __forceinline__ int tiles_across(const Sizes& s) { return TURNED ? s.row_tiles : s.column_tiles; }

// One warp finds both numbers of all products. An end before that of the product ahead, or beyond the last row, is taken
// for that one: no row is computed twice, and none is read or written that is not there.
__device__ __forceinline__ void find_groups(int* groups, const int* offsets, const Sizes& s, int all_rows) {
  const int lane = threadIdx.x % 32;
  int before = 0, units = 0;  // of all products of the turns before
  for (int first = 0; first < s.batch; first += 32) {
    const int product = first + lane;
    int end = product < s.batch ? min(max(offsets[product], 0), all_rows) : 0;
    end = max(end, before);
#pragma unroll
    for (int by = 1; by < 32; by *= 2) {
      const int other = __shfl_sync(~0u, end, max(lane - by, 0));
      end = max(end, other);
    }
    const int ahead = __shfl_sync(~0u, end, max(lane - 1, 0)), begin = lane == 0 ? before : ahead;
    int own = (end - begin + kRagged - 1) / kRagged * tiles_across(s);
#pragma unroll
    for (int by = 1; by < 32; by *= 2) {
      const int other = __shfl_sync(~0u, own, max(lane - by, 0));
      if (lane >= by) own += other;
    }
    if (product < s.batch) {
      groups[2 * product] = end;
      groups[2 * product + 1] = units + own;
    }
    before = __shfl_sync(~0u, end, 31);
    units += __shfl_sync(~0u, own, 31);
  }
}

// Rows behind those of the last product are zeros.
__device__ __forceinline__ void clear_rest(const int* groups, const Sizes& s, int all_rows, int columns) {
  for (int row = groups[2 * s.batch - 2] + blockIdx.x; row < all_rows; row += gridDim.x)
    for (int column = threadIdx.x; column < columns; column += (kConsumers + 1) * kWarpgroup)
      s.out[row * s.stride + column] = 0;
}

__device__ __forceinline__ int num_units(const Sizes& s, const int* groups) { return groups[2 * s.batch - 1]; }

// The product of a unit, where its rows begin and end, and its first unit. Units are walked in order.
struct Walk {
  int product = 0, begin = 0, end = 0, first = 0, next = 0;
  __device__ __forceinline__ void find(const int* groups, int number) {
    if (next == 0) end = groups[0], next = groups[1];
    while (number >= next) {
      ++product;
      begin = end, first = next;
      end = groups[2 * product], next = groups[2 * product + 1];
    }
  }
};

__device__ __forceinline__ Unit unit_of(const Sizes& s, int number, int rank, const Walk& walk) {
  Unit u;
  u.part = 0, u.parts = 1, u.slot = 0, u.begin = 0, u.end = (s.depth + kDepth - 1) / kDepth;
  u.batch = walk.product;
  const int tile = number - walk.first, ragged = (walk.end - walk.begin + kRagged - 1) / kRagged;
  const int group = quotient(tile, s.by_group), first = group * s.group, place = tile - first * tiles_across(s);
  const int height = min(s.group, ragged - first);
  const int across = height == s.group ? quotient(place, s.by_height) : place / height;
  const int along = first + place - across * height;
  const int row = TURNED ? across : along, column = TURNED ? along : across;
  u.row = (row * kClusterRows + rank / kClusterColumns) * kRows + (TURNED ? 0 : walk.begin);
  u.column = (column * kClusterColumns + rank % kClusterColumns) * kColumns + (TURNED ? walk.begin : 0);
  return u;
}
