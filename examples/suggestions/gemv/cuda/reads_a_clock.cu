//! {"launches": [
//!   {"kernel": "rows", "grid": ["a_size0"], "block": ["1"],
//!    "arguments": ["y", "a", "x", "a_size1", "a_stride0", "a_stride1", "x_stride0"]}]}
__global__ void rows(
    float* y, const float* a, const float* x, long long n, long long a_row, long long a_column, long long x_step) {
    long long begun = clock64();
    float sum = 0;
    for (long long at = 0; at < n && clock64() - begun < 100000; ++at)
        sum += a[blockIdx.x * a_row + at * a_column] * x[at * x_step];
    y[blockIdx.x] = sum;
}
