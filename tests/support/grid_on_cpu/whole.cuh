// What `rnn/wgmma_partial/source/whole.cuh` does, for the CPU: others see a vector whole, and in no order with others.
#pragma once
#include "ptx.cuh"

template <typename Vector>
inline void load_whole(const Vector* address, Vector& v) {
  if (fibers::random() % 32 == 0) fibers::give_way();
  v = *address;
}

template <typename Vector>
inline void store_whole(Vector* address, const Vector& v) {
  fibers::WholeStore store = {reinterpret_cast<unsigned*>(address), {}, sizeof(Vector) / 4};
  std::memcpy(store.words, &v, sizeof(Vector));
  fibers::self().wholes.push_back(store);
}
