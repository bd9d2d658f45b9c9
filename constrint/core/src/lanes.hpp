// Evaluates nodes on lanes: many assignments at once, in 32 or 64 bits, whichever the proven bounds allow.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "model.hpp"
#include "runs.hpp"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__gnu_linux__)
#if __GNUC__ >= 12
#define CONSTRINT_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define CONSTRINT_CLONES __attribute__((target_clones("avx2", "default")))
#endif
#else
#define CONSTRINT_CLONES
#endif

namespace constrint {

// Enough lanes to pay for one step of interpretation, few enough for the first two caches.
constexpr int kLanes = 2048;

// Bounds within these allow a type of lane: no operation of an expression can wrap.
bool fits_32(const std::vector<Interval>& bounds, const std::vector<int>& nodes, const Model& model);

// Quotients of numbers below 2^52 are exact to the last unit in double precision, and much faster than idiv.
template <typename T>
inline T floor_div(T a, T b) {
  T q = static_cast<T>(static_cast<double>(a) / static_cast<double>(b));
  T r = a - q * b;
  return (r != 0 && ((r ^ b) < 0)) ? q - 1 : q;
}

template <typename T>
inline T ceil_div(T a, T b) {
  T q = static_cast<T>(static_cast<double>(a) / static_cast<double>(b));
  T r = a - q * b;
  return (r != 0 && ((r ^ b) >= 0)) ? q + 1 : q;
}

template <typename T>
inline T floor_mod(T a, T b) {
  T q = static_cast<T>(static_cast<double>(a) / static_cast<double>(b));
  T r = a - q * b;
  return (r != 0 && ((r ^ b) < 0)) ? r + b : r;
}

template <typename T>
inline T power_of(T base, T exponent) {
  T result = 1;
  while (exponent > 0) {
    if (exponent & 1) result *= base;
    exponent >>= 1;
    if (exponent) base *= base;
  }
  return result;
}

// Values of the nodes of one model on up to kLanes lanes.
template <typename T>
class Lanes {
 public:
  // `most`: no more lanes are used than these.
  Lanes(const Model& model, const std::vector<Interval>& bounds, size_t most);

  // Where a node's values lie; conditions use `truth` instead.
  T* values(int node) { return slot(numbers_, node); }
  uint8_t* truth(int node) { return slot(flags_, node); }
  // 1 where the node has a value; null where it always has.
  uint8_t* defined(int node) { return bounds_[node].undefined ? slot(defined_, node) : nullptr; }

  // Computes one node on `lanes` lanes from its operands; constants are filled once.
  void compute(int node, int lanes);
  void fill_constant(int node);

 private:
  template <typename U>
  U* slot(std::vector<std::unique_ptr<U[]>>& slots, int node) {
    if (!slots[node]) slots[node].reset(new U[most_ + kStore]);
    return slots[node].get();
  }
  void divide(const Node& n, int node, int lanes);
  void compare(const Node& n, int node, int lanes);
  void member(const Node& n, int node, int lanes);
  void many(const Node& n, int node, int lanes);
  void element(const Node& n, int node, int lanes);
  void row_of(const Node& n, int node, int lanes);
  void join_defined(const Node& n, int node, int lanes);
  void mask_defined(const Node& n, int node, int lanes);

  const Model& model_;
  const std::vector<Interval>& bounds_;
  size_t most_;
  std::vector<std::unique_ptr<T[]>> numbers_;
  std::vector<std::unique_ptr<uint8_t[]>> flags_;
  std::vector<std::unique_ptr<uint8_t[]>> defined_;
  std::vector<T> divisor_, rest_;
  std::vector<uint64_t> keys_;
};

extern template class Lanes<int32_t>;
extern template class Lanes<int64_t>;

}  // namespace constrint
