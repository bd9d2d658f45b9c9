//! {"launches": [
//!   {"kernel": "rows<y_t, x_t, 256>", "grid": ["x_size0"], "block": ["256"],
//!    "arguments": ["y", "x", "x_size1", "x_stride0", "x_stride1"]}]}
// A block takes a row: a maximum, a sum of exponentials, and the quotients.
template <typename Combine> __device__ float over_block(float value, float* shared, Combine combine) {
    for (int distance = 16; distance > 0; distance /= 2)
        value = combine(value, __shfl_xor_sync(0xffffffffu, value, distance));
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    value = shared[0];
    for (int warp = 1; warp < blockDim.x / 32; ++warp) value = combine(value, shared[warp]);
    return value;
}

template <typename Y, typename X, int THREADS>
__global__ void __launch_bounds__(THREADS) rows(Y* y, const X* x, long long n, long long x_row, long long x_column) {
    __shared__ float shared[THREADS / 32];
    const X* row = x + blockIdx.x * x_row;
    float most = __int_as_float(0xff800000), sum = 0;
    for (long long at = threadIdx.x; at < n; at += THREADS) most = fmaxf(most, to_float(row[at * x_column]));
    most = over_block(most, shared, [](float a, float b) { return fmaxf(a, b); });
    for (long long at = threadIdx.x; at < n; at += THREADS) sum += expf(to_float(row[at * x_column]) - most);
    sum = over_block(sum, shared, [](float a, float b) { return a + b; });
    for (long long at = threadIdx.x; at < n; at += THREADS)
        y[blockIdx.x * n + at] = round_to<Y>(expf(to_float(row[at * x_column]) - most) / sum);
}
