//! {"launches": [
//!   {"kernel": "solve", "grid": ["x_size0"], "block": ["128"],
//!    "arguments": ["x", "a", "b", "x_size1", "a_stride0", "a_stride1", "a_stride2", "b_stride0", "b_stride1"]}]}
// A block solves a system, a thread has an unknown.
__device__ float guess;

__device__ float sum_of_block(float value, float* parts) {
    for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

__global__ void __launch_bounds__(128) solve(
    float* x, const float* a, const float* b, long long n, long long a_system, long long a_row, long long a_column,
    long long b_system, long long b_row) {
    static __shared__ float direction[128], parts[4];
    bool is_inside = threadIdx.x < n;
    const float* row = a + blockIdx.x * a_system + threadIdx.x * a_row;
    float solution = guess, r = is_inside ? b[blockIdx.x * b_system + threadIdx.x * b_row] : 0.0f, p = r;
    float rr = sum_of_block(r * r, parts);
    for (int turn = 0; turn < 10; ++turn) {
        direction[threadIdx.x] = p;
        __syncthreads();
        float q = 0;
        for (long long at = 0; is_inside && at < n; ++at) q += row[at * a_column] * direction[at];
        float curvature = sum_of_block(p * q, parts);
        float step = curvature > 0 ? rr / curvature : 0.0f;
        solution += step * p;
        r -= step * q;
        float next = sum_of_block(r * r, parts);
        p = r + (rr > 0 ? next / rr : 0.0f) * p;
        rr = next;
    }
    if (is_inside) x[blockIdx.x * n + threadIdx.x] = solution;
}
