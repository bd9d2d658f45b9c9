// Short runs of values, written by stores of a fixed size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace constrint {

// Bytes of one store; buffers that are read have this many bytes of padding at their end.
constexpr size_t kStore = 16;

// Writes runs one behind the other: run t has `lengths[t]` values. Stores of a fixed size are quicker than short loops;
// what they write beyond a run is written again by the next one, and the last runs before `end` are written value by
// value. `store(t, k, out)` writes the values from the k-th on, as many as one store takes; `value(t, k)` is the k-th.
template <typename T, typename Store, typename Value>
T* write_runs(const uint32_t* lengths, size_t count, T* to, const T* end, Store store, Value value) {
  constexpr uint32_t kAtOnce = kStore / sizeof(T);
  size_t t = 0;
  for (; t < count; ++t) {
    const uint32_t length = lengths[t];
    if (end - to < static_cast<ptrdiff_t>(length) + kAtOnce) break;
    uint32_t k = 0;
    do {
      store(t, k, to + k);
      k += kAtOnce;
    } while (k < length);
    to += length;
  }
  for (; t < count; ++t) {
    for (uint32_t k = 0; k < lengths[t]; ++k) *to++ = value(t, k);
  }
  return to;
}

// Runs of one value each, `value(t)`.
template <typename T, typename Value>
T* write_equal(const uint32_t* lengths, size_t count, T* to, const T* end, Value value) {
  return write_runs(
      lengths, count, to, end,
      [=](size_t t, uint32_t, T* out) {
        const T same = value(t);
        for (size_t i = 0; i < kStore / sizeof(T); ++i) out[i] = same;
      },
      [=](size_t t, uint32_t) { return value(t); });
}

// Runs of values that follow each other from a start on.
template <typename T>
T* write_ranges(const T* values, const uint32_t* starts, const uint32_t* lengths, size_t count, T* to, const T* end) {
  return write_runs(
      lengths, count, to, end,
      [=](size_t t, uint32_t k, T* out) { std::memcpy(out, values + starts[t] + k, kStore); },
      [=](size_t t, uint32_t k) { return values[starts[t] + k]; });
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
