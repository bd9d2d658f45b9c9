//! {"launches": [
//!   {"kernel": "rows", "grid": ["ceildiv(y_size0, 4)"], "block": ["32", "4"],
//!    "arguments": ["y", "starts", "columns", "values", "x", "y_size0", "starts_stride0", "columns_stride0",
//!                  "values_stride0", "x_stride0"]}]}
// A warp takes a row.
__global__ void rows(
    float* y, const long long* starts, const long long* columns, const float* values, const float* x, long long m,
    long long s_step, long long c_step, long long v_step, long long x_step) {
    long long row = blockIdx.x * 4ll + threadIdx.y;
    if (row >= m) return;
    long long last = starts[(row + 1) * s_step];
    float sum = 0;
    for (long long at = starts[row * s_step] + threadIdx.x; at < last; at += 32)
        sum += values[at * v_step] * x[columns[at * c_step] * x_step];
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (threadIdx.x == 0) y[row] = sum;
}
