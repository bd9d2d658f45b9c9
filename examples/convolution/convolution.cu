// A two-dimensional filter of kFilter x kFilter over an image with a border. Each block computes a tile of the output:
// block_size_x * tile_size_x columns by block_size_y * tile_size_y rows, from a part of the image in shared memory.
constexpr int kFilter = 17;
constexpr int kBorder = kFilter - 1;
constexpr int kTileWidth = block_size_x * tile_size_x;
constexpr int kTileHeight = block_size_y * tile_size_y;
constexpr int kPartWidth = kTileWidth + kBorder;
constexpr int kPartHeight = kTileHeight + kBorder;

__constant__ float d_filter[kFilter * kFilter];

extern "C" __global__ void __launch_bounds__(block_size_x* block_size_y)
    convolution(float* output, const float* image, int width, int height) {
  __shared__ float part[kPartHeight][kPartWidth];
  const int left = blockIdx.x * kTileWidth;
  const int top = blockIdx.y * kTileHeight;
  const int image_width = width + kBorder;
  const int image_height = height + kBorder;

  for (int y = threadIdx.y; y < kPartHeight; y += block_size_y) {
    for (int x = threadIdx.x; x < kPartWidth; x += block_size_x) {
      const bool inside = top + y < image_height && left + x < image_width;
      part[y][x] = inside ? image[(top + y) * image_width + left + x] : 0.0f;
    }
  }
  __syncthreads();

  float sums[tile_size_y][tile_size_x] = {};
  for (int i = 0; i < kFilter; ++i) {
    for (int j = 0; j < kFilter; ++j) {
      const float weight = d_filter[i * kFilter + j];
#pragma unroll
      for (int y = 0; y < tile_size_y; ++y) {
#pragma unroll
        for (int x = 0; x < tile_size_x; ++x) {
          sums[y][x] += weight * part[threadIdx.y + y * block_size_y + i][threadIdx.x + x * block_size_x + j];
        }
      }
    }
  }

#pragma unroll
  for (int y = 0; y < tile_size_y; ++y) {
#pragma unroll
    for (int x = 0; x < tile_size_x; ++x) {
      const int column = left + threadIdx.x + x * block_size_x;
      const int row = top + threadIdx.y + y * block_size_y;
      if (column < width && row < height) output[row * width + column] = sums[y][x];
    }
  }
}
