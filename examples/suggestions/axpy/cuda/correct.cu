//! {"launches": [
//!   {"kernel": "add", "grid": ["min(ceildiv(x_size0, 256), 65536)"], "block": ["256"],
//!    "arguments": ["z", "alpha", "x", "y", "x_size0", "x_stride0", "y_stride0"]}]}
__global__ void add(
    float* z, const float* alpha, const float* x, const float* y, long long n, long long x_step, long long y_step) {
    float factor = alpha[0];
    for (long long at = blockIdx.x * 256ll + threadIdx.x; at < n; at += gridDim.x * 256ll)
        z[at] = factor * x[at * x_step] + y[at * y_step];
}
