// Blocks of a grid write a step together, wait for each other, and then each reads all of it: the time of the reading.
//
// STEP_BYTES of a step; WAY by which it is read (`WAYS` of exchange.py); CLUSTER blocks of a cluster; COPY_BYTES of a copy.
#define ROWS 0       // loads of 16 bytes, a warp's in eight rows of 64 bytes: rows of 16 sequences as a tensor has them
#define PIECES 1     // loads of 16 bytes, a warp's beside each other: 512 bytes
#define COPIES 2     // cp.async.bulk into shared memory
#define MULTICAST 3  // the same, each block of a cluster copying its part into the shared memory of all
constexpr int WARPS = 8, THREADS = 32 * WARPS, BUFFERED = 64, SEQUENCES = 16;
// Loads of a thread in a step, all of them under way at once.
constexpr int LOADS = STEP_BYTES / 16 / THREADS;
// Where what is copied begins in shared memory, behind the barrier.
constexpr int COPIED_AT = 1024;
using bytes = unsigned char;

extern __shared__ __align__(1024) bytes shared[];

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ uint4 load(const bytes* address) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.b32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address)
               : "memory");
  return v;
}

// This block's share of a step, in words.
__device__ __forceinline__ void write_share(bytes* step, unsigned value) {
  const int share = (STEP_BYTES / 32 + gridDim.x - 1) / gridDim.x * 32, first = blockIdx.x * share;
  for (int at = first + threadIdx.x * 4; at < first + share && at < STEP_BYTES; at += 4 * THREADS) {
    asm volatile("st.relaxed.gpu.global.b32 [%0], %1;" ::"l"(step + at), "r"(value + at) : "memory");
  }
}

// Ends when as many blocks have come as `expected` says; only the first thread waits.
__device__ __forceinline__ void wait_for_grid(unsigned* counter, unsigned expected) {
  unsigned seen;
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
  } while (seen < expected);
}

#if WAY < COPIES
// Where a load of this thread begins in a step.
__device__ __forceinline__ int place(int number) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#if WAY == ROWS
  const int column = warp * (LOADS / 2) + number / 2, row = lane / 4 + 8 * (number % 2);
  return row * (STEP_BYTES / SEQUENCES) + column * 64 + lane % 4 * 16;
#else
  return (warp * LOADS + number) * 512 + lane * 16;
#endif
}

__device__ __forceinline__ unsigned read(const bytes* step) {
  unsigned sum = 0;
  uint4 v[LOADS];
#pragma unroll
  for (int i = 0; i < LOADS; ++i) v[i] = load(step + place(i));
#pragma unroll
  for (int i = 0; i < LOADS; ++i) sum += v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
  return sum;
}
#else
__device__ __forceinline__ void barrier_init(unsigned barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_expect(unsigned barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(STEP_BYTES) : "memory");
}

__device__ __forceinline__ void barrier_wait(unsigned barrier, unsigned parity) {
  unsigned done;
  do {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%1], %2;\n"
        "selp.u32 %0, 1, 0, done;\n"
        "}\n"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (!done);
}

__device__ __forceinline__ void cluster_sync() {
#if WAY == MULTICAST
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
#endif
}

__device__ __forceinline__ void copy(const bytes* step, int at, unsigned barrier) {
  const unsigned to = shared_address(shared + COPIED_AT + at);
#if WAY == MULTICAST
  const unsigned short everyone = (1 << CLUSTER) - 1;
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(step + at), "r"(COPY_BYTES), "r"(barrier), "h"(everyone)
      : "memory");
#else
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(step + at), "r"(COPY_BYTES), "r"(barrier)
               : "memory");
#endif
}

// One lane of each warp copies; all wait for everything.
__device__ __forceinline__ void read(const bytes* step, unsigned barrier, unsigned parity) {
  unsigned rank = 0;
#if WAY == MULTICAST
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
  constexpr int OWN = STEP_BYTES / CLUSTER;
  if (threadIdx.x % 32 == 0) {
    for (int at = threadIdx.x / 32 * COPY_BYTES; at < OWN; at += WARPS * COPY_BYTES) copy(step, rank * OWN + at, barrier);
  }
  barrier_wait(barrier, parity);
}
#endif

// `ring` has BUFFERED steps, `counter` is zero; `clocks` gets what the reading took each block, over all steps.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    exchange(bytes* ring, unsigned* counter, long long* clocks, int steps) {
  long long total = 0;
  unsigned sum = 0;
#if WAY >= COPIES
  const unsigned barrier = shared_address(shared);
  if (threadIdx.x == 0) barrier_init(barrier);
  __syncthreads();
  cluster_sync();
#endif
  for (int s = 0; s < steps; ++s) {
    bytes* step = ring + s % BUFFERED * static_cast<long long>(STEP_BYTES);
    write_share(step, s);
#if WAY >= COPIES
    if (threadIdx.x == 0) barrier_expect(barrier);
#endif
    __syncthreads();
    if (threadIdx.x == 0) {
      wait_for_grid(counter, (s + 1) * gridDim.x);
#if WAY >= COPIES
      asm volatile("fence.proxy.async;" ::: "memory");
#endif
    }
    __syncthreads();
    const long long start = clock64();
#if WAY >= COPIES
    read(step, barrier, s & 1);
#else
    sum += read(step);
#endif
    __syncthreads();
    total += clock64() - start;
#if WAY >= COPIES
    sum += *reinterpret_cast<const unsigned*>(shared + COPIED_AT + threadIdx.x * 16);
#endif
  }
  if (threadIdx.x == 0) clocks[blockIdx.x] = total;
  if (sum == 0x12345678u) clocks[0] = sum;  // so that what was read is needed
#if WAY >= COPIES
  cluster_sync();
#endif
}
