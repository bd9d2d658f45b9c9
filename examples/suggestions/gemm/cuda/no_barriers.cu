//! {"launches": [
//!   {"kernel": "tiles", "grid": ["ceildiv(c_size1, 16)", "ceildiv(c_size0, 16)"], "block": ["16", "16"],
//!    "arguments": ["c", "a", "b", "c_size0", "c_size1", "a_size1", "a_stride0", "a_stride1", "b_stride0",
//!                  "b_stride1"]}]}
// No thread waits for the tile to be whole.
__global__ void tiles(
    float* c, const float* a, const float* b, long long m, long long n, long long k, long long a_row,
    long long a_column, long long b_row, long long b_column) {
    __shared__ float left[16][16], right[16][17];
    long long row = blockIdx.y * 16ll + threadIdx.y, column = blockIdx.x * 16ll + threadIdx.x;
    float sum = 0;
    for (long long start = 0; start < k; start += 16) {
        long long across = start + threadIdx.x, down = start + threadIdx.y;
        left[threadIdx.y][threadIdx.x] = row < m && across < k ? a[row * a_row + across * a_column] : 0.0f;
        right[threadIdx.y][threadIdx.x] = down < k && column < n ? b[down * b_row + column * b_column] : 0.0f;
        for (int at = 0; at < 16; ++at) sum += left[threadIdx.y][at] * right[at][threadIdx.x];
    }
    if (row < m && column < n) c[row * n + column] = sum;
}
