#include "lanes.hpp"

#include <cstring>

namespace constrint {

namespace {

template <typename T, typename F>
inline void each(T* __restrict out, const T* a, const T* b, int n, F f) {
  for (int i = 0; i < n; ++i) out[i] = f(a[i], b[i]);
}

#define CONSTRINT_KERNEL(name, type, expression)                                                    \
  CONSTRINT_CLONES void name(type* __restrict out, const type* a, const type* b, int n) {           \
    for (int i = 0; i < n; ++i) out[i] = (expression);                                              \
  }

CONSTRINT_KERNEL(add_lanes, int32_t, a[i] + b[i])
CONSTRINT_KERNEL(add_lanes, int64_t, a[i] + b[i])
CONSTRINT_KERNEL(mul_lanes, int32_t, a[i] * b[i])
CONSTRINT_KERNEL(mul_lanes, int64_t, a[i] * b[i])
CONSTRINT_KERNEL(mod_lanes, int32_t, floor_mod<int32_t>(a[i], b[i]))
CONSTRINT_KERNEL(mod_lanes, int64_t, floor_mod<int64_t>(a[i], b[i]))
CONSTRINT_KERNEL(div_lanes, int32_t, floor_div<int32_t>(a[i], b[i]))
CONSTRINT_KERNEL(div_lanes, int64_t, floor_div<int64_t>(a[i], b[i]))
CONSTRINT_KERNEL(ceil_lanes, int32_t, ceil_div<int32_t>(a[i], b[i]))
CONSTRINT_KERNEL(ceil_lanes, int64_t, ceil_div<int64_t>(a[i], b[i]))
CONSTRINT_KERNEL(min_lanes, int32_t, std::min(a[i], b[i]))
CONSTRINT_KERNEL(min_lanes, int64_t, std::min(a[i], b[i]))
CONSTRINT_KERNEL(max_lanes, int32_t, std::max(a[i], b[i]))
CONSTRINT_KERNEL(max_lanes, int64_t, std::max(a[i], b[i]))
#undef CONSTRINT_KERNEL

#define CONSTRINT_TEST(name, type, expression)                                                      \
  CONSTRINT_CLONES void name(uint8_t* __restrict out, const type* a, const type* b, int n) {        \
    for (int i = 0; i < n; ++i) out[i] = (expression);                                              \
  }

CONSTRINT_TEST(eq_lanes, int32_t, a[i] == b[i])
CONSTRINT_TEST(eq_lanes, int64_t, a[i] == b[i])
CONSTRINT_TEST(ne_lanes, int32_t, a[i] != b[i])
CONSTRINT_TEST(ne_lanes, int64_t, a[i] != b[i])
CONSTRINT_TEST(le_lanes, int32_t, a[i] <= b[i])
CONSTRINT_TEST(le_lanes, int64_t, a[i] <= b[i])
CONSTRINT_TEST(lt_lanes, int32_t, a[i] < b[i])
CONSTRINT_TEST(lt_lanes, int64_t, a[i] < b[i])
#undef CONSTRINT_TEST

bool within(const Interval& a, int64_t limit) { return a.lower > -limit && a.upper < limit; }

}  // namespace

bool fits_32(const std::vector<Interval>& bounds, const std::vector<int>& nodes, const Model& model) {
  constexpr int64_t limit = int64_t{1} << 31;
  for (int i : nodes) {
    if (!within(bounds[i], limit)) return false;
    // Powers multiply past their result; lists may hold wide numbers.
    Op op = model.nodes[i].op;
    if (op == Op::kPow || op == Op::kInList || op == Op::kInRange || op == Op::kLcm ||
        op == Op::kTable) {
      return false;
    }
  }
  return true;
}

template <typename T>
Lanes<T>::Lanes(const Model& model, const std::vector<Interval>& bounds, size_t most)
    : model_(model), bounds_(bounds), most_(std::min<size_t>(most, kLanes)), numbers_(model.nodes.size()), flags_(model.nodes.size()),
      defined_(model.nodes.size()) {}

template <typename T>
void Lanes<T>::fill_constant(int node) {
  const Node& n = model_.nodes[node];
  if (n.op == Op::kConst) std::fill_n(values(node), most_, static_cast<T>(n.value));
}

template <typename T>
void Lanes<T>::join_defined(const Node& n, int node, int lanes) {
  uint8_t* out = defined(node);
  if (!out) return;
  std::memset(out, 1, lanes);
  for (int a : n.args) {
    if (const uint8_t* d = defined(a)) {
      for (int i = 0; i < lanes; ++i) out[i] &= d[i];
    }
  }
}

template <typename T>
void Lanes<T>::mask_defined(const Node& n, int node, int lanes) {
  uint8_t* out = truth(node);
  for (int a : n.args) {
    if (const uint8_t* d = defined(a)) {
      for (int i = 0; i < lanes; ++i) out[i] &= d[i];
    }
  }
}

// Quotients and remainders; `node` may be a divisibility condition, whose operands stand the other way round.
template <typename T>
void Lanes<T>::divide(const Node& n, int node, int lanes) {
  bool condition = n.op == Op::kDivides;
  int number = n.args[condition ? 1 : 0], by = n.args[condition ? 0 : 1];
  const T* a = values(number);
  const T* b = values(by);
  const Interval& range = bounds_[by];
  // Where there is no value, any number may stand.
  bool zero = range.undefined || (range.lower <= 0 && range.upper >= 0);
  if (zero) {
    divisor_.resize(most_);
    for (int i = 0; i < lanes; ++i) divisor_[i] = b[i] == 0 ? 1 : b[i];
  }
  const T* safe = zero ? divisor_.data() : b;
  T* out = nullptr;
  if (condition) {
    rest_.resize(most_);
    out = rest_.data();
  } else {
    out = values(node);
  }
  bool exact = within(bounds_[number], int64_t{1} << 52) && within(range, int64_t{1} << 52);
  bool rest = condition || n.op == Op::kMod;
  if (exact && rest) {
    mod_lanes(out, a, safe, lanes);
  } else if (exact) {
    n.op == Op::kCeilDiv ? ceil_lanes(out, a, safe, lanes) : div_lanes(out, a, safe, lanes);
  } else if (rest) {
    each(out, a, safe, lanes, [](T x, T y) { return static_cast<T>(x - floor_quotient<int64_t>(x, y) * y); });
  } else if (n.op == Op::kCeilDiv) {
    each(out, a, safe, lanes, [](T x, T y) { return static_cast<T>(-floor_quotient<int64_t>(-int64_t{x}, y)); });
  } else {
    each(out, a, safe, lanes, [](T x, T y) { return static_cast<T>(floor_quotient<int64_t>(x, y)); });
  }
  uint8_t* flag = condition ? truth(node) : defined(node);
  if (condition) {
    for (int i = 0; i < lanes; ++i) flag[i] = out[i] == 0;
    mask_defined(n, node, lanes);
  } else {
    join_defined(n, node, lanes);
  }
  if (zero && flag) {
    for (int i = 0; i < lanes; ++i) flag[i] &= b[i] != 0;
  }
  if (n.op == Op::kDiv && flag) {
    for (int i = 0; i < lanes; ++i) flag[i] &= out[i] * safe[i] == a[i];
  }
}

template <typename T>
void Lanes<T>::compare(const Node& n, int node, int lanes) {
  const T* a = values(n.args[0]);
  const T* b = values(n.args[1]);
  uint8_t* out = truth(node);
  switch (n.op) {
    case Op::kEq: eq_lanes(out, a, b, lanes); break;
    case Op::kNe: ne_lanes(out, a, b, lanes); break;
    case Op::kLe: le_lanes(out, a, b, lanes); break;
    default: lt_lanes(out, a, b, lanes); break;
  }
  mask_defined(n, node, lanes);
}

template <typename T>
void Lanes<T>::member(const Node& n, int node, int lanes) {
  const T* a = values(n.args[0]);
  uint8_t* out = truth(node);
  const std::vector<int64_t>& list = model_.lists[n.value];
  if (n.op == Op::kInList) {
    for (int i = 0; i < lanes; ++i) out[i] = std::binary_search(list.begin(), list.end(), int64_t{a[i]});
  } else {
    int64_t lower = list[0], upper = list[1], step = list[2];
    for (int i = 0; i < lanes; ++i) out[i] = a[i] >= lower && a[i] <= upper && (a[i] - lower) % step == 0;
  }
  mask_defined(n, node, lanes);
}

template <typename T>
void Lanes<T>::many(const Node& n, int node, int lanes) {
  uint8_t* out = truth(node);
  bool every = n.op == Op::kAnd;
  std::memset(out, every, lanes);
  for (int arg : n.args) {
    const uint8_t* a = truth(arg);
    if (every) {
      for (int i = 0; i < lanes; ++i) out[i] &= a[i];
    } else {
      for (int i = 0; i < lanes; ++i) out[i] |= a[i];
    }
  }
}

template <typename T>
void Lanes<T>::element(const Node& n, int node, int lanes) {
  T* out = values(node);
  const T* index = values(n.args[0]);
  uint8_t* flag = defined(node);
  const uint8_t* known = defined(n.args[0]);
  T items = static_cast<T>(n.args.size() - 1);
  for (int i = 0; i < lanes; ++i) {
    bool inside = index[i] >= 0 && index[i] < items && (!known || known[i]);
    out[i] = 0;
    if (flag) flag[i] = inside;
    if (!inside) continue;
    int item = n.args[static_cast<size_t>(index[i]) + 1];
    out[i] = values(item)[i];
    const uint8_t* there = defined(item);
    if (flag && there) flag[i] = there[i];
  }
}

template <typename T>
void Lanes<T>::row_of(const Node& n, int node, int lanes) {
  const RowTable& table = model_.tables[static_cast<size_t>(n.value)];
  uint8_t* out = truth(node);
  std::memset(out, 1, lanes);
  keys_.assign(most_, 0);
  for (size_t c = 0; c < n.args.size(); ++c) {
    const T* a = values(n.args[c]);
    for (int i = 0; i < lanes; ++i) {
      int64_t place = table.place(c, a[i]);
      out[i] &= place >= 0;
      keys_[i] = keys_[i] * table.size(c) + static_cast<uint64_t>(place < 0 ? 0 : place);
    }
  }
  for (int i = 0; i < lanes; ++i) out[i] = out[i] && table.has(keys_[i]);
  mask_defined(n, node, lanes);
}

template <typename T>
void Lanes<T>::compute(int node, int lanes) {
  const Node& n = model_.nodes[node];
  auto fold = [&](auto f) {
    T* out = values(node);
    const T* first = values(n.args[0]);
    if (n.args.size() == 1) std::copy_n(first, lanes, out);
    for (size_t k = 1; k < n.args.size(); ++k) {
      each(out, k == 1 ? first : out, values(n.args[k]), lanes, f);
    }
    join_defined(n, node, lanes);
  };
  auto fast = [&](auto kernel) {
    T* out = values(node);
    const T* first = values(n.args[0]);
    if (n.args.size() == 1) std::copy_n(first, lanes, out);
    for (size_t k = 1; k < n.args.size(); ++k) kernel(out, k == 1 ? first : out, values(n.args[k]), lanes);
    join_defined(n, node, lanes);
  };
  switch (n.op) {
    case Op::kVar:
    case Op::kConst:
    case Op::kAgain: break;
    case Op::kAdd: fast([](T* o, const T* a, const T* b, int m) { add_lanes(o, a, b, m); }); break;
    case Op::kMul: fast([](T* o, const T* a, const T* b, int m) { mul_lanes(o, a, b, m); }); break;
    case Op::kNeg:
    case Op::kAbs: {
      T* out = values(node);
      const T* a = values(n.args[0]);
      bool negate = n.op == Op::kNeg;
      for (int i = 0; i < lanes; ++i) out[i] = (negate || a[i] < 0) ? -a[i] : a[i];
      join_defined(n, node, lanes);
      break;
    }
    case Op::kMin: fast([](T* o, const T* a, const T* b, int m) { min_lanes(o, a, b, m); }); break;
    case Op::kMax: fast([](T* o, const T* a, const T* b, int m) { max_lanes(o, a, b, m); }); break;
    case Op::kGcd: {
      fold([](T a, T b) { return static_cast<T>(std::gcd(int64_t{a}, int64_t{b})); });
      T* out = values(node);
      for (int i = 0; i < lanes; ++i) out[i] = out[i] < 0 ? -out[i] : out[i];
      break;
    }
    case Op::kLcm: {
      fold([](T a, T b) { return a == 0 || b == 0 ? T{0} : static_cast<T>(std::lcm(int64_t{a}, int64_t{b})); });
      T* out = values(node);
      for (int i = 0; i < lanes; ++i) out[i] = out[i] < 0 ? -out[i] : out[i];
      break;
    }
    case Op::kPow: {
      T* out = values(node);
      const T* a = values(n.args[0]);
      const T* b = values(n.args[1]);
      join_defined(n, node, lanes);
      uint8_t* flag = defined(node);
      for (int i = 0; i < lanes; ++i) {
        bool usable = b[i] >= 0 && (!flag || flag[i]);
        out[i] = usable ? power_of<T>(a[i], b[i]) : T{0};
        if (flag) flag[i] &= b[i] >= 0;
      }
      break;
    }
    case Op::kFloorDiv:
    case Op::kCeilDiv:
    case Op::kDiv:
    case Op::kMod:
    case Op::kDivides: divide(n, node, lanes); break;
    case Op::kBitAnd: fold([](T a, T b) { return static_cast<T>(a & b); }); break;
    case Op::kBitOr: fold([](T a, T b) { return static_cast<T>(a | b); }); break;
    case Op::kBitXor: fold([](T a, T b) { return static_cast<T>(a ^ b); }); break;
    case Op::kTruth: {
      T* out = values(node);
      const uint8_t* a = truth(n.args[0]);
      for (int i = 0; i < lanes; ++i) out[i] = a[i];
      break;
    }
    case Op::kElement: element(n, node, lanes); break;
    case Op::kTable: row_of(n, node, lanes); break;
    case Op::kEq:
    case Op::kNe:
    case Op::kLe:
    case Op::kLt: compare(n, node, lanes); break;
    case Op::kInList:
    case Op::kInRange: member(n, node, lanes); break;
    case Op::kAnd:
    case Op::kOr: many(n, node, lanes); break;
    case Op::kNot: {
      uint8_t* out = truth(node);
      const uint8_t* a = truth(n.args[0]);
      for (int i = 0; i < lanes; ++i) out[i] = !a[i];
      break;
    }
  }
}

template class Lanes<int32_t>;
template class Lanes<int64_t>;

}  // namespace constrint
