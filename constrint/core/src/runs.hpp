// Short runs of values, written by stores of a fixed size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace constrint {

// Bytes of one store; buffers that are read have this many bytes of padding at their end.
constexpr size_t kStore = 16;

// Calls f with a value of the integer type of `bytes` bytes.
template <typename F>
void with_type(int bytes, F f) {
  switch (bytes) {
    case 1: f(int8_t{}); break;
    case 2: f(int16_t{}); break;
    case 4: f(int32_t{}); break;
    default: f(int64_t{}); break;
  }
}

// Writes runs one behind the other: run t is `value(t)`, `lengths[t]` times. Stores of a fixed size are quicker than short
// loops; what they write beyond a run is written again by the next one, and the last runs before `end` are written value by
// value.
template <typename T, typename Value>
T* write_equal(const uint32_t* lengths, size_t count, T* to, const T* end, Value value) {
  constexpr uint32_t kAtOnce = kStore / sizeof(T);
  size_t t = 0;
  for (; t < count && end - to >= static_cast<ptrdiff_t>(lengths[t]) + kAtOnce; ++t) {
    const T same = value(t);
    uint32_t k = 0;
    do {
      for (uint32_t i = 0; i < kAtOnce; ++i) to[k + i] = same;
      k += kAtOnce;
    } while (k < lengths[t]);
    to += lengths[t];
  }
  for (; t < count; ++t) {
    const T same = value(t);
    for (uint32_t k = 0; k < lengths[t]; ++k) *to++ = same;
  }
  return to;
}

// Repeats every value, `times` times each; `out` has room for kStore bytes more.
template <typename T>
void repeat_each(T* out, const T* from, int count, int times) {
  constexpr int kAtOnce = kStore / sizeof(T);
  for (int r = 0; r < count; ++r, out += times) {
    const T same = from[r];
    int k = 0;
    do {
      for (int i = 0; i < kAtOnce; ++i) out[k + i] = same;
      k += kAtOnce;
    } while (k < times);
  }
}

// Repeats all values, `times` times.
template <typename T>
void repeat_all(T* out, const T* from, int count, int times) {
  const size_t total = sizeof(T) * static_cast<size_t>(count) * static_cast<size_t>(times);
  char* bytes = reinterpret_cast<char*>(out);
  size_t done = sizeof(T) * static_cast<size_t>(count);
  std::memcpy(bytes, from, done);
  for (; done < total; done *= 2) std::memcpy(bytes + done, bytes, done < total - done ? done : total - done);
}

}  // namespace constrint
