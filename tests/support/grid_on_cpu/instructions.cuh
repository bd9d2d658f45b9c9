// What `rnn/wgmma/source/instructions.cuh` does, for the CPU. Matrix instructions do nothing until they are waited for: what
// they read may not have changed meanwhile.
#pragma once
#include "cell.cuh"

inline void hold(float&) {}
inline void hold(uint4&) {}
inline void hold(unsigned long long&) {}
inline void keep_order() {}
inline void store_vector(void* address, const uint4& v) { std::memcpy(address, &v, 16); }
inline void store_shared_by_grid(void* address, const uint2& v) {
  unsigned* words = static_cast<unsigned*>(address);
  store_shared_by_grid(words, v.x), store_shared_by_grid(words + 1, v.y);
}
inline void fence_for_matrix_unit() {}
inline void wgmma_fence() {}
inline void wgmma_commit() { ++fibers::self().groups; }
inline void named_sync(int barrier, int threads) { fibers::wait(fibers::own().named[barrier], threads); }

// The product by the definition of its operands: rows in registers, columns in lines of 128 bytes that a descriptor names.
template <int kNumber>
inline void run_pending(const fibers::Pending& p) {
  const fibers::Fiber& me = fibers::self();
  const int lane = me.thread % 32, warp = fibers::current - lane;
  const unsigned start = (p.columns & 0x3FFF) << 4, stride = (p.columns >> 32 & 0x3FFF) << 4;
  const size_t number = &p - me.pending.data();
  float rows[2][16];
  for (int k = 0; k < 16; ++k) {
    const fibers::Fiber& other = fibers::all[warp + lane / 4 * 4 + k % 8 / 2];
    const unsigned* words = reinterpret_cast<const unsigned*>(other.pending[number].rows) + k / 8 * 2;
    for (int i = 0; i < 2; ++i) rows[i][k] = widen(static_cast<element>(words[i] >> k % 2 * 16));
  }
  for (int j = 0; j < kNumber; ++j) {
    const int column = j / 4 * 8 + lane % 4 * 2 + j % 2;
    float sum = p.adds ? p.sums[j] : 0.0f;
    for (int k = 0; k < 16; k += 8) {
      unsigned at = start + column / 8 * stride + column % 8 * 128 + 2 * k;
      at ^= (at >> 7 & 7) << 4;
      element weights[8];
      std::memcpy(weights, shared_memory + at, 16);
      for (int i = 0; i < 8; ++i) sum += rows[j % 4 / 2][k + i] * widen(weights[i]);
    }
    p.sums[j] = sum;
  }
}

#ifdef LAYER_TARGETS
constexpr int kSumsOfThread = LAYER_TARGETS * LAYER_UNITS / 2;
#elif defined(LAYER_BACKWARD)
constexpr int kSumsOfThread = LAYER_UNITS / 2;
#else
constexpr int kSumsOfThread = GATES * LAYER_UNITS / 2;
#endif

template <int kLeft>
inline void wgmma_wait() {
  fibers::wait_for_group();
  fibers::Fiber& me = fibers::self();
  size_t done = 0;
  for (; done < me.pending.size() && me.pending[done].group < me.groups - kLeft; ++done) {
    run_pending<kSumsOfThread>(me.pending[done]);
  }
  fibers::wait_for_group();
  me.pending.erase(me.pending.begin(), me.pending.begin() + done);
  fibers::wait_for_group();
}

inline void wgmma(float (&sums)[kSumsOfThread], const uint4& rows, unsigned long long columns, int adds) {
  fibers::self().pending.push_back({&rows, sums, columns, adds, fibers::self().groups});
}
