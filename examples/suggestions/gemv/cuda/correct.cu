//! {"launches": [
//!   {"kernel": "rows", "grid": ["a_size0"], "block": ["128"],
//!    "arguments": ["y", "a", "x", "a_size1", "a_stride0", "a_stride1", "x_stride0"]}]}
__global__ void rows(
    float* y, const float* a, const float* x, long long n, long long a_row, long long a_column, long long x_step) {
    __shared__ float parts[4];
    const float* row = a + blockIdx.x * a_row;
    float sum = 0;
    for (long long at = threadIdx.x; at < n; at += 128) sum += row[at * a_column] * x[at * x_step];
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) y[blockIdx.x] = (parts[0] + parts[1]) + (parts[2] + parts[3]);
}
