// The rows of a block and of its threads: rows that follow each other, or, of a grid of three axes, a box of PLANES x BOX_Y
// whole lines along x, which reads fewer points of other blocks.
#pragma once

// VECTOR rows of a thread: the first one's number, its place among those of the block, and its point of a grid.
struct Spot {
  int i, place, x, y, z;
  bool exists;  // else it is the block's first row

#if STENCIL
  // The place of the row at an offset (z, y), which is on the grid.
  __device__ __forceinline__ int place_beside(int dz, int dy) const {
#if PLANES
    const int line = place / NX, from_y = line % BOX_Y + dy, from_z = line / BOX_Y + dz;
    const bool inside = (dy == 0 || static_cast<unsigned>(from_y) < static_cast<unsigned>(BOX_Y)) &&
                        (dz == 0 || static_cast<unsigned>(from_z) < static_cast<unsigned>(PLANES));
    return inside ? place + (dz * BOX_Y + dy) * NX : -(1 << 30);
#else
    return place + (dz * NY + dy) * NX;
#endif
  }
#endif
};

struct Rows {
  int begin, end;  // of the block; of a box the first row alone
  int first_y, first_z;

#if PLANES
  __device__ __forceinline__ explicit Rows(int, int)
      : first_y(static_cast<int>(blockIdx.x) % BOXES_Y * BOX_Y), first_z(static_cast<int>(blockIdx.x) / BOXES_Y * PLANES) {
    begin = (first_z * NY + first_y) * NX;
    end = begin + PLANES * BOX_Y * NX;
  }

  __device__ __forceinline__ Spot at(int step) const {
    const int place = (step * THREADS + static_cast<int>(threadIdx.x)) * VECTOR;
    const int line = place / NX, y = first_y + line % BOX_Y, z = first_z + line / BOX_Y, x = place % NX;
    const bool exists = line < PLANES * BOX_Y && y < NY && z < NZ;
    return exists ? Spot{(z * NY + y) * NX + x, place, x, y, z, true} : Spot{begin, 0, 0, first_y, first_z, false};
  }

  __device__ __forceinline__ bool is_read_by_others(const Spot& spot) const {
    const int line = spot.place / NX, y = line % BOX_Y, z = line / BOX_Y;
    return y < REACH_Y || y >= BOX_Y - REACH_Y || z < REACH_Z || z >= PLANES - REACH_Z;
  }
#else
  __device__ __forceinline__ explicit Rows(int n, int rows_per_block) {
    const long long from = static_cast<long long>(blockIdx.x) * rows_per_block, to = from + rows_per_block;
    begin = static_cast<int>(from < n ? from : n), end = static_cast<int>(to < n ? to : n);
  }

  __device__ __forceinline__ Spot of_row(int i) const {
#if STENCIL
    return Spot{i, i - begin, i % NX, i / NX % NY, i / (NX * NY), true};
#else
    return Spot{i, i - begin, 0, 0, 0, true};
#endif
  }

  __device__ __forceinline__ Spot at(int step) const {
    const int i = begin + (step * THREADS + static_cast<int>(threadIdx.x)) * VECTOR;
    Spot spot = of_row(i < end ? i : begin);
    spot.exists = i < end;
    return spot;
  }

#if STENCIL
  __device__ __forceinline__ bool is_read_by_others(const Spot& spot) const {
    return spot.place < HALO || end - VECTOR - spot.i < HALO;
  }
#endif
#endif
};
