//! {"launches": [
//!   {"kernel": "add", "grid": ["ceildiv(x_size0, 256)"], "block": ["256"], "arguments": ["z", "alpha", "x", "y"]}]}
__global__ void add(float* z, const float* alpha, const float* x, const float* y) {
    long long at = blockIdx.x * 256ll + threadIdx.x;
    if (at < n) z[at] = alpha[0] * x[at] + y[at];
}
