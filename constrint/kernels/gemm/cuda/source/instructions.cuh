// Hopper's own instructions, and what depends on the dtype.
#pragma once

// DTYPE: 0 fp16, 1 bf16, 2 tf32, 3 e4m3, 4 int8.
#define ELEMENT_BYTES (DTYPE < 2 ? 2 : DTYPE == 2 ? 4 : 1)
#if DTYPE == 4
typedef int sum_t;
#else
typedef float sum_t;
#endif

struct __align__(64) TensorMap {
  unsigned long long words[16];
};

// A map, and with BATCHED the place of a matrix along its third axis.
#if BATCHED
struct MatrixMap {
  const TensorMap* map;
  int place;
};
#else
typedef const TensorMap* MatrixMap;
#endif

// Of C: boxes of 64 columns and rows, and of what is left of a row of sums.
struct OutMaps {
  MatrixMap whole, rest;
};

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ unsigned block_in_cluster() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// The thread's number, read where it is used: what follows from it takes no registers while sums are added up.
__device__ __forceinline__ int thread_anew() {
  int index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}

// The same number, as if it were another one.
__device__ __forceinline__ int anew(int number) {
  asm volatile("" : "+r"(number));
  return number;
}

__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// Lets the next launch of the stream begin, and waits for those ahead of this one, and for what they have written.
__device__ __forceinline__ void wait_for_launches() {
  asm volatile("griddepcontrol.launch_dependents;\ngriddepcontrol.wait;" ::: "memory");
}

__device__ __forceinline__ void barrier_init(unsigned barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

// Other blocks and the TMA unit see the barriers as they were made. A fence of the proxy for more than shared memory
// would wait for the whole GPU.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void expect(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void wait(unsigned barrier, unsigned parity) {
  unsigned done;
  do {
    asm volatile(
        "{\n.reg .pred done;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
        "selp.u32 %0, 1, 0, done;\n}\n"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (!done);
}

__device__ __forceinline__ void arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void arrive_at(unsigned barrier, unsigned block) {
  asm volatile(
      "{\n.reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n}\n" ::"r"(barrier),
      "r"(block)
      : "memory");
}

__device__ __forceinline__ void prefetch_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

#if BATCHED
template <bool kIsShared>
__device__ __forceinline__ void load_box(
    MatrixMap from, unsigned to, unsigned barrier, int x, int y, unsigned short mask) {
  if constexpr (kIsShared) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(to),
        "l"(from.map), "r"(barrier), "r"(x), "r"(y), "r"(from.place), "h"(mask)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
        "l"(from.map), "r"(barrier), "r"(x), "r"(y), "r"(from.place)
        : "memory");
  }
}

__device__ __forceinline__ void store_box(MatrixMap to, unsigned from, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];\n"
      "cp.async.bulk.commit_group;" ::"l"(to.map),
      "r"(from), "r"(x), "r"(y), "r"(to.place)
      : "memory");
}
#else
template <bool kIsShared>
__device__ __forceinline__ void load_box(
    const TensorMap* map, unsigned to, unsigned barrier, int x, int y, unsigned short mask) {
  if constexpr (kIsShared) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
        "l"(map), "r"(barrier), "r"(x), "r"(y), "h"(mask)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4}], [%2];" ::"r"(to),
        "l"(map), "r"(barrier), "r"(x), "r"(y)
        : "memory");
  }
}

__device__ __forceinline__ void store_box(const TensorMap* map, unsigned from, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];\n"
      "cp.async.bulk.commit_group;" ::"l"(map),
      "r"(from), "r"(x), "r"(y)
      : "memory");
}
#endif

__device__ __forceinline__ void named_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

__device__ __forceinline__ void named_arrive(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// A barrier that tells all threads whether any of them says so.
__device__ __forceinline__ bool named_any(int barrier, int threads, bool says) {
  unsigned any;
  asm volatile(
      "{\n.reg .pred says, any;\n"
      "setp.ne.b32 says, %3, 0;\n"
      "barrier.cta.red.or.aligned.pred any, %1, %2, says;\n"
      "selp.u32 %0, 1, 0, any;\n}\n"
      : "=r"(any)
      : "r"(barrier), "r"(threads), "r"(static_cast<unsigned>(says))
      : "memory");
  return any != 0;
}

// Adds one, and says what was there.
__device__ __forceinline__ unsigned count(unsigned* counter) {
  unsigned before;
  asm volatile("atom.add.relaxed.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
  return before;
}

// Adds one, once all that this thread knows of is in memory; and what is there, with all that was known to those who
// added.
__device__ __forceinline__ void tell(unsigned* counter) {
  asm volatile("red.add.release.gpu.global.u32 [%0], 1;" ::"l"(counter) : "memory");
}

__device__ __forceinline__ unsigned told(const unsigned* counter) {
  unsigned number;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(number) : "l"(counter) : "memory");
  return number;
}

// The registers that a block is launched with, as many for each thread, are dealt out among its warpgroups: a producer
// needs few. Asking for more than the block has would never end.
constexpr int kShare = 512 / RESIDENT / (CONSUMERS + 1) / 8 * 8 * (CONSUMERS + 1);
constexpr int kProducerRegisters = CONSUMERS == 2 ? 40 : 32;
constexpr int kLargest = (kShare - kProducerRegisters) / CONSUMERS / 8 * 8;
constexpr int kConsumerRegisters = kLargest > 240 ? 240 : kLargest;
constexpr bool kDealsOut = kShare / (CONSUMERS + 1) < 255;
static_assert(kProducerRegisters + CONSUMERS * kConsumerRegisters <= kShare, "no more than there are");

__device__ __forceinline__ void fewer_registers() {
  if constexpr (kDealsOut) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducerRegisters));
}

__device__ __forceinline__ void more_registers() {
  if constexpr (kDealsOut) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int kGroups>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
}

// Keeps the compiler from moving sums across instructions that work beside the program.
template <int kRows, int kColumns>
__device__ __forceinline__ void fence_sums(sum_t (&sums)[kRows][kColumns]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i)
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
#if DTYPE == 4
      asm volatile("" : "+r"(sums[i][j])::"memory");
#else
      asm volatile("" : "+f"(sums[i][j])::"memory");
#endif
    }
}

// Four sums of a thread, which other threads of the warp have next to them.
__device__ __forceinline__ void store_partials(sum_t* to, const sum_t (&four)[4]) {
  __stcg(reinterpret_cast<uint4*>(to), *reinterpret_cast<const uint4*>(four));
}

__device__ __forceinline__ void load_partials(const sum_t* from, sum_t (&four)[4]) {
  *reinterpret_cast<uint4*>(four) = __ldcg(reinterpret_cast<const uint4*>(from));
}

// Two matrices of 8 by 8 halves; lanes 0 to 15 give the addresses of their rows.
template <bool kIsTransposed>
__device__ __forceinline__ void store_matrices(unsigned to, unsigned first, unsigned second) {
  if constexpr (kIsTransposed) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(first), "r"(second)
                 : "memory");
  } else {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(first), "r"(second)
                 : "memory");
  }
}

template <bool kIsTransposed>
__device__ __forceinline__ void store_matrices(
    unsigned to, unsigned first, unsigned second, unsigned third, unsigned fourth) {
  if constexpr (kIsTransposed) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(first),
                 "r"(second), "r"(third), "r"(fourth)
                 : "memory");
  } else {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(first), "r"(second),
                 "r"(third), "r"(fourth)
                 : "memory");
  }
}

// Loads matrices as `store_matrices` stores them.
__device__ __forceinline__ void load_matrices(unsigned from, unsigned& first, unsigned& second) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(first), "=r"(second) : "r"(from)
               : "memory");
}

__device__ __forceinline__ void load_matrices(
    unsigned from, unsigned& first, unsigned& second, unsigned& third, unsigned& fourth) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(first), "=r"(second), "=r"(third), "=r"(fourth)
               : "r"(from)
               : "memory");
}

__device__ __forceinline__ void store_unit(unsigned to, uint4 unit) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(unit.x), "r"(unit.y), "r"(unit.z), "r"(unit.w)
               : "memory");
}

// What threads wrote to shared memory is seen by the TMA unit.
__device__ __forceinline__ void fence_for_boxes() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// All but so many of the boxes that this thread stored were read.
template <int kLeft>
__device__ __forceinline__ void wait_stored() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kLeft) : "memory");
}

#if DTYPE == 4
#define SUM_REGISTER "r"
#else
#define SUM_REGISTER "f"
#endif

__device__ __forceinline__ void store_shared(unsigned to, sum_t value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), SUM_REGISTER(value) : "memory");
}

__device__ __forceinline__ void store_shared(unsigned to, sum_t first, sum_t second) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), SUM_REGISTER(first), SUM_REGISTER(second) : "memory");
}

__device__ __forceinline__ void load_sums(unsigned from, sum_t (&sums)[1]) {
  asm volatile("ld.shared.b32 %0, [%1];" : "=" SUM_REGISTER(sums[0]) : "r"(from) : "memory");
}

__device__ __forceinline__ void load_sums(unsigned from, sum_t (&sums)[4]) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=" SUM_REGISTER(sums[0]), "=" SUM_REGISTER(sums[1]), "=" SUM_REGISTER(sums[2]),
                 "=" SUM_REGISTER(sums[3])
               : "r"(from)
               : "memory");
}
