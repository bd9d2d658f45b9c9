#include "model.hpp"

#include <algorithm>
#include <numeric>

namespace constrint {

namespace {

// Longer tables are not gone through for bounds.
constexpr size_t kScanned = 256;

using Wide = __int128;

Interval checked(Wide lower, Wide upper, bool undefined) {
  if (lower < -Wide{kMaxMagnitude} || upper > Wide{kMaxMagnitude}) throw Unsupported{};
  return {static_cast<int64_t>(lower), static_cast<int64_t>(upper), undefined};
}

Interval product(const Interval& a, const Interval& b, bool undefined) {
  if (a.lower >= 0 && b.lower >= 0) return checked(Wide{a.lower} * b.lower, Wide{a.upper} * b.upper, undefined);
  Wide corners[4] = {Wide{a.lower} * b.lower, Wide{a.lower} * b.upper, Wide{a.upper} * b.lower,
                     Wide{a.upper} * b.upper};
  auto [low, high] = std::minmax_element(corners, corners + 4);
  return checked(*low, *high, undefined);
}

// A divisor of 0 has no value; lanes compute with 1 in its place.
Interval without_zero(Interval b, bool* undefined) {
  if (b.lower <= 0 && b.upper >= 0) {
    *undefined = true;
    b.lower = std::min<int64_t>(b.lower, 1);
    b.upper = std::max<int64_t>(b.upper, 1);
  }
  return b;
}

Interval quotient(Op op, const Interval& a, Interval b, bool undefined) {
  bool never = b.lower == 0 && b.upper == 0;
  bool points = a.point() && b.point() && !never;
  b = without_zero(b, &undefined);
  Wide low = 0, high = 0;
  bool first = true;
  for (int64_t d : {b.lower, b.upper, int64_t{-1}, int64_t{1}}) {
    if (d == 0 || d < b.lower || d > b.upper) continue;
    for (int64_t n : {a.lower, a.upper}) {
      // Both fit 62 bits, so neither sign can overflow.
      int64_t q = op == Op::kCeilDiv ? -floor_quotient(-n, d) : floor_quotient(n, d);
      low = first ? q : std::min<Wide>(low, q);
      high = first ? q : std::max<Wide>(high, q);
      first = false;
    }
  }
  Interval found = checked(low, high, undefined || (op == Op::kDiv && !points));
  found.never = never;
  if (op == Op::kDiv && points && a.lower % b.lower != 0) found.undefined = found.never = true;
  return found;
}

Interval remainder(const Interval& a, Interval b, bool undefined) {
  if (b.lower == 0 && b.upper == 0) return {a.lower, a.upper, true, true};
  if (a.point() && b.point()) {
    int64_t rest = a.lower % b.lower;
    if (rest != 0 && ((rest < 0) != (b.lower < 0))) rest += b.lower;
    return {rest, rest, undefined};
  }
  b = without_zero(b, &undefined);
  if (b.lower > 0 && a.lower >= 0 && a.upper < b.lower) return {a.lower, a.upper, undefined};
  Wide low = b.lower < 0 ? Wide{b.lower} + 1 : 0;
  Wide high = b.upper > 0 ? Wide{b.upper} - 1 : 0;
  if (a.lower >= 0 && b.lower > 0) high = std::min<Wide>(high, a.upper);
  return checked(low, high, undefined);
}

Interval power(const Interval& a, Interval b, bool undefined) {
  bool never = b.upper < 0, points = a.point() && b.point() && !never;
  if (b.lower < 0) {
    undefined = true;
    b.lower = 0;
    b.upper = std::max<int64_t>(b.upper, 0);
  }
  Wide base = std::max(a.upper < 0 ? -Wide{a.upper} : Wide{a.upper}, a.lower < 0 ? -Wide{a.lower} : Wide{a.lower});
  Wide most = 1;
  if (base > 1) {
    for (int64_t i = 0; i < b.upper; ++i) {
      most *= base;
      if (most > Wide{kMaxMagnitude}) throw Unsupported{};
    }
  }
  Interval found = checked(a.lower < 0 ? -most : 0, most, undefined);
  found.never = never;
  if (points) {
    int64_t value = a.lower < 0 && b.lower % 2 != 0 ? -static_cast<int64_t>(most) : static_cast<int64_t>(most);
    if (base == 0) value = b.lower == 0 ? 1 : 0;
    found.lower = found.upper = value;
  }
  return found;
}

// Bits, without the sign, that hold the values of both sides (two's complement of unlimited width).
int64_t all_ones(const Interval& a, const Interval& b) {
  int64_t most = 0;
  for (int64_t v : {a.lower, a.upper, b.lower, b.upper}) most |= v < 0 ? ~v : v;
  for (int shift = 1; shift < 64; shift *= 2) most |= most >> shift;
  return most;
}

Interval bitwise(Op op, const Interval& a, const Interval& b, bool undefined) {
  int64_t most = all_ones(a, b);
  Wide low = a.lower >= 0 && b.lower >= 0 ? Wide{0} : -Wide{most} - 1, high = most;
  if (op == Op::kBitAnd && (a.lower >= 0 || b.lower >= 0)) {
    low = 0;
    high = std::min(a.lower >= 0 ? a.upper : most, b.lower >= 0 ? b.upper : most);
  }
  return checked(low, high, undefined);
}

Wide magnitude(const Interval& a) {
  return std::max(a.lower < 0 ? -Wide{a.lower} : Wide{a.lower}, a.upper < 0 ? -Wide{a.upper} : Wide{a.upper});
}

Interval truth(bool surely, bool possibly) { return {surely ? 1 : 0, possibly ? 1 : 0, false}; }

Interval compared(Op op, const Interval& a, const Interval& b) {
  if (a.never || b.never) return truth(false, false);
  bool undefined = a.undefined || b.undefined;
  bool surely = false, possibly = true;
  if (op == Op::kLe) {
    surely = a.upper <= b.lower;
    possibly = a.lower <= b.upper;
  } else if (op == Op::kLt) {
    surely = a.upper < b.lower;
    possibly = a.lower < b.upper;
  } else {
    bool apart = a.upper < b.lower || b.upper < a.lower;
    bool same = a.lower == a.upper && b.lower == b.upper && a.lower == b.lower;
    surely = op == Op::kEq ? same : apart;
    possibly = op == Op::kEq ? !apart : !same;
  }
  return truth(surely && !undefined, possibly);
}

Interval member(const Interval& a, const std::vector<int64_t>& sorted) {
  if (a.never) return truth(false, false);
  auto at = std::lower_bound(sorted.begin(), sorted.end(), a.lower);
  bool possibly = at != sorted.end() && *at <= a.upper;
  return truth(possibly && a.lower == a.upper && !a.undefined, possibly);
}

}  // namespace

Interval interval_of(const std::vector<int64_t>& values) {
  auto [low, high] = std::minmax_element(values.begin(), values.end());
  return {*low, *high, false};
}

int Model::variable(int index) { return node(Op::kVar, {}, index); }

int Model::constant(int64_t value) { return node(Op::kConst, {}, value); }

int Model::list(std::vector<int64_t> values) {
  uint64_t hash = values.size();
  for (int64_t v : values) hash = (hash ^ static_cast<uint64_t>(v)) * 0x100000001B3u + 0x7F4A7C15u;
  auto range = known_lists_.equal_range(hash);
  for (auto it = range.first; it != range.second; ++it) {
    if (lists[it->second] == values) return it->second;
  }
  lists.push_back(std::move(values));
  known_lists_.emplace(hash, static_cast<int>(lists.size()) - 1);
  return static_cast<int>(lists.size()) - 1;
}

RowTable::RowTable(const std::vector<int64_t>& rows, size_t width)
    : columns_(width), num_rows_(rows.size() / width), rows_(rows) {
  uint64_t total = 1;
  for (size_t c = 0; c < width; ++c) {
    std::vector<int64_t>& values = columns_[c].values;
    for (size_t at = c; at < rows.size(); at += width) values.push_back(rows[at]);
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    if (total > (uint64_t{1} << 62) / values.size()) throw Unsupported{};
    total *= values.size();
    uint64_t range = static_cast<uint64_t>(values.back()) - static_cast<uint64_t>(values.front());
    if (range < (1 << 16)) {
      columns_[c].places.assign(range + 1, -1);
      for (size_t i = 0; i < values.size(); ++i) columns_[c].places[values[i] - values.front()] = static_cast<int32_t>(i);
    }
  }
  bool dense = total <= (uint64_t{1} << 26);
  if (dense) dense_.resize(total);
  for (size_t at = 0; at < rows.size(); at += width) {
    uint64_t key = 0;
    for (size_t c = 0; c < width; ++c) key = key * size(c) + static_cast<uint64_t>(place(c, rows[at + c]));
    if (dense) dense_[key] = true;
    else keys_.push_back(key);
  }
  std::sort(keys_.begin(), keys_.end());
}

int64_t RowTable::place(size_t column, int64_t value) const {
  const Column& c = columns_[column];
  if (value < c.values.front() || value > c.values.back()) return -1;
  if (!c.places.empty()) return c.places[value - c.values.front()];
  auto at = std::lower_bound(c.values.begin(), c.values.end(), value);
  return *at == value ? at - c.values.begin() : -1;
}

bool RowTable::has(uint64_t key) const {
  return dense_.empty() ? std::binary_search(keys_.begin(), keys_.end(), key) : dense_[key];
}

bool RowTable::may_have(const std::vector<Interval>& bounds) const {
  uint64_t key = 0;
  bool one = true;
  for (size_t c = 0; c < width(); ++c) {
    const std::vector<int64_t>& values = columns_[c].values;
    auto at = std::lower_bound(values.begin(), values.end(), bounds[c].lower);
    if (at == values.end() || *at > bounds[c].upper) return false;
    one &= bounds[c].lower == bounds[c].upper;
    key = key * size(c) + static_cast<uint64_t>(at - values.begin());
  }
  std::vector<Interval> found;
  return one ? has(key) : hull(bounds, &found);
}

bool RowTable::hull(const std::vector<Interval>& bounds, std::vector<Interval>* found) const {
  found->clear();
  if (num_rows_ > kScanned) {
    for (const Column& c : columns_) found->push_back({c.values.front(), c.values.back(), false});
    return true;
  }
  for (size_t at = 0; at < rows_.size(); at += width()) {
    bool inside = true;
    for (size_t c = 0; c < width() && inside; ++c) {
      inside = rows_[at + c] >= bounds[c].lower && rows_[at + c] <= bounds[c].upper;
    }
    if (!inside) continue;
    const bool first = found->empty();
    for (size_t c = 0; c < width(); ++c) {
      const int64_t value = rows_[at + c];
      if (first) found->push_back({value, value, false});
      (*found)[c].lower = std::min((*found)[c].lower, value);
      (*found)[c].upper = std::max((*found)[c].upper, value);
    }
  }
  return !found->empty();
}

int Model::table(const std::vector<int64_t>& rows, size_t width) {
  if (width == 0 || rows.empty() || rows.size() % width != 0) throw Unsupported{};
  tables.emplace_back(rows, width);
  return static_cast<int>(tables.size()) - 1;
}

int Model::node(Op op, std::vector<int> args, int64_t value) {
  uint64_t hash = static_cast<uint64_t>(op) * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(value);
  for (int a : args) hash = (hash ^ static_cast<uint64_t>(a)) * 0x100000001B3u + 0x7F4A7C15u;
  auto range = known_.equal_range(hash);
  for (auto it = range.first; it != range.second; ++it) {
    const Node& other = nodes[it->second];
    if (other.op != op || other.value != value || other.args != args) continue;
    if (is_forgotten(it->second)) forgotten_[it->second] = false;
    return it->second;
  }
  Node made{op, value, std::move(args), {}, 1};
  if (op == Op::kVar) made.variables.set(static_cast<size_t>(value));
  for (int a : made.args) {
    made.variables |= nodes[a].variables;
    made.depth = std::max(made.depth, nodes[a].depth + 1);
  }
  if (made.depth > kMaxDepth) throw Unsupported{};
  nodes.push_back(std::move(made));
  known_.emplace(hash, static_cast<int>(nodes.size()) - 1);
  return static_cast<int>(nodes.size()) - 1;
}

bool Model::is_total(int node) const {
  const Node& n = nodes[node];
  if (n.op == Op::kTruth) return true;
  if (n.op == Op::kDiv || n.op == Op::kElement) return false;
  if (n.op == Op::kFloorDiv || n.op == Op::kCeilDiv || n.op == Op::kMod || n.op == Op::kPow) {
    const Node& right = nodes[n.args[1]];
    if (right.op != Op::kConst || (n.op == Op::kPow ? right.value < 0 : right.value == 0)) return false;
  }
  return std::all_of(n.args.begin(), n.args.end(), [&](int a) { return is_total(a); });
}

void Model::require(int condition) {
  std::vector<bool> seen(nodes.size(), false);
  require(condition, seen);
}

// A conjunction may stand in many others: its parts are required once.
void Model::require(int condition, std::vector<bool>& seen) {
  if (seen[condition]) return;
  seen[condition] = true;
  if (nodes[condition].op == Op::kAnd) {
    forget(condition);
    const std::vector<int> parts = nodes[condition].args;
    for (int part : parts) require(part, seen);
    return;
  }
  roots.push_back(divided(condition));
}

// A product compared with a number is compared with a quotient where it may be too large: a * b == n where a divides n and
// b == n / a. Factors are moved until the rest is small enough.
int Model::divided(int condition) {
  const Op op = nodes[condition].op;
  if (op != Op::kEq && op != Op::kLe && op != Op::kLt) return condition;
  for (int side = 0; side < 2; ++side) {
    const int product = nodes[condition].args[side], number = nodes[condition].args[1 - side];
    if (nodes[product].op != Op::kMul || nodes[number].op != Op::kConst || nodes[number].value == 0) continue;
    std::vector<int> factors = nodes[product].args;
    const auto range = [&](int node) { return interval_of(domains[nodes[node].value]); };
    Wide most = 1;
    for (int factor : factors) {
      if (nodes[factor].op == Op::kConst) most *= std::max<int64_t>(nodes[factor].value, 1);
      else if (nodes[factor].op != Op::kVar || range(factor).lower < 1) return condition;
      else most *= range(factor).upper;
      if (most > Wide{kMaxMagnitude} * kMaxMagnitude / (Wide{1} << 20)) return condition;
    }
    if (most <= kMaxMagnitude) return condition;
    std::vector<int> conditions;
    int rest = number;
    for (size_t i = 0; i + 2 < factors.size() && most > kMaxMagnitude;) {
      if (nodes[factors[i]].op != Op::kVar) {
        ++i;
        continue;
      }
      if (op == Op::kEq) conditions.push_back(node(Op::kDivides, {factors[i], rest}));
      // What is at most the number is at most the quotient rounded down, and so on.
      const bool down = op == Op::kEq || (op == Op::kLe) == (side == 0);
      rest = node(down ? Op::kFloorDiv : Op::kCeilDiv, {rest, factors[i]});
      most /= range(factors[i]).upper;
      factors.erase(factors.begin() + static_cast<long>(i));
    }
    const int left = node(Op::kMul, factors);
    conditions.push_back(side == 0 ? node(op, {left, rest}) : node(op, {rest, left}));
    for (size_t i = 0; i + 1 < conditions.size(); ++i) roots.push_back(conditions[i]);
    forget(condition);
    forget(product);
    return conditions.back();
  }
  return condition;
}

// A node that no other one needs has no bounds to compute.
void Model::forget(int node) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    const std::vector<int>& args = nodes[i].args;
    const bool uses = std::find(args.begin(), args.end(), node) != args.end();
    if (uses && !is_forgotten(i)) return;
  }
  forgotten_.resize(nodes.size(), false);
  forgotten_[node] = true;
}

Interval Model::bounds_of(const Node& n, const std::vector<Interval>& known,
                          const std::vector<Interval>& variables) const {
  Interval found = plain_bounds_of(n, known, variables);
  if (is_condition(n.op) || n.op == Op::kTruth || n.op == Op::kElement) return found;
  for (int a : n.args) found.never |= known[a].never;
  return found;
}

// Equality of a product with a number: fixed factors must divide the number.
Interval Model::equality(const Node& n, const std::vector<Interval>& known) const {
  Interval found = compared(n.op, known[n.args[0]], known[n.args[1]]);
  if (n.op != Op::kEq || found.upper == 0) return found;
  for (int side = 0; side < 2; ++side) {
    const Node& product = nodes[n.args[side]];
    const Interval& number = known[n.args[1 - side]];
    if (product.op != Op::kMul || !number.point() || number.lower == 0) continue;
    int64_t rest = number.lower;
    for (int factor : product.args) {
      const Interval& f = known[factor];
      if (!f.point()) continue;
      if (f.lower == 0 || rest % f.lower != 0) return truth(false, false);
      rest /= f.lower;
    }
  }
  return found;
}

Interval Model::plain_bounds_of(const Node& n, const std::vector<Interval>& known,
                                const std::vector<Interval>& variables) const {
  bool undefined = false;
  for (int a : n.args) undefined |= !is_condition(n.op) && known[a].undefined;
  auto arg = [&](size_t i) -> const Interval& { return known[n.args[i]]; };
  switch (n.op) {
    case Op::kVar: return variables[n.value];
    case Op::kConst: return {n.value, n.value, false};
    case Op::kAdd: {
      Wide low = 0, high = 0;
      for (int a : n.args) low += known[a].lower, high += known[a].upper;
      return checked(low, high, undefined);
    }
    case Op::kMul: {
      Interval result = arg(0);
      for (size_t i = 1; i < n.args.size(); ++i) result = product(result, arg(i), undefined);
      return result;
    }
    case Op::kNeg: return {-arg(0).upper, -arg(0).lower, undefined};
    case Op::kAbs: {
      const Interval& a = arg(0);
      int64_t low = a.lower > 0 ? a.lower : a.upper < 0 ? -a.upper : 0;
      return {low, std::max(-a.lower, a.upper), undefined};
    }
    case Op::kFloorDiv:
    case Op::kCeilDiv:
    case Op::kDiv: return quotient(n.op, arg(0), arg(1), undefined);
    case Op::kMod: return remainder(arg(0), arg(1), undefined);
    case Op::kPow: return power(arg(0), arg(1), undefined);
    case Op::kMin:
    case Op::kMax: {
      Interval result = arg(0);
      for (size_t i = 1; i < n.args.size(); ++i) {
        bool least = n.op == Op::kMin;
        result.lower = least ? std::min(result.lower, arg(i).lower) : std::max(result.lower, arg(i).lower);
        result.upper = least ? std::min(result.upper, arg(i).upper) : std::max(result.upper, arg(i).upper);
      }
      result.undefined = undefined;
      return result;
    }
    case Op::kGcd: {
      Wide most = 0;
      bool points = true;
      int64_t divisor = 0;
      for (int a : n.args) {
        most = std::max(most, magnitude(known[a]));
        points &= known[a].point();
        divisor = std::gcd(divisor, known[a].lower);
      }
      if (points) return {divisor, divisor, false};
      return checked(0, most, undefined);
    }
    case Op::kLcm: {
      Wide most = 1;
      for (int a : n.args) most = checked(0, most * std::max<Wide>(magnitude(known[a]), 1), undefined).upper;
      bool points = true;
      int64_t multiple = 1;
      for (int a : n.args) {
        points &= known[a].point();
        multiple = multiple == 0 || known[a].lower == 0 ? 0 : std::lcm(multiple, known[a].lower);
      }
      if (points) return {multiple, multiple, false};
      return checked(0, most, undefined);
    }
    case Op::kBitAnd:
    case Op::kBitOr:
    case Op::kBitXor: {
      Interval result = arg(0);
      bool points = arg(0).lower == arg(0).upper;
      int64_t value = arg(0).lower;
      for (size_t i = 1; i < n.args.size(); ++i) {
        int64_t other = arg(i).lower;
        points &= arg(i).lower == arg(i).upper;
        value = n.op == Op::kBitAnd ? value & other : n.op == Op::kBitOr ? value | other : value ^ other;
        result = bitwise(n.op, result, arg(i), undefined);
      }
      if (points) result.lower = result.upper = value;
      result.undefined = undefined;
      return result;
    }
    case Op::kTruth: return {arg(0).lower, arg(0).upper, false};
    case Op::kElement: {
      const Interval& index = arg(0);
      int64_t last = static_cast<int64_t>(n.args.size()) - 2;
      int64_t from = std::max<int64_t>(index.lower, 0), to = std::min(index.upper, last);
      Interval result{0, 0, true, true};
      if (index.never || from > to) return result;
      bool first = true, partial = index.undefined || index.lower < 0 || index.upper > last;
      for (int64_t i = from; i <= to; ++i) {
        const Interval& item = known[n.args[static_cast<size_t>(i) + 1]];
        partial |= item.undefined;
        result.lower = first ? item.lower : std::min(result.lower, item.lower);
        result.upper = first ? item.upper : std::max(result.upper, item.upper);
        result.never &= item.never;
        first = false;
      }
      result.undefined = partial || result.never;
      return result;
    }
    case Op::kEq:
    case Op::kNe:
    case Op::kLe:
    case Op::kLt: return equality(n, known);
    case Op::kTable: {
      bool points = true;
      std::vector<Interval> bounds;
      for (int a : n.args) {
        if (known[a].never) return truth(false, false);
        points &= known[a].point();
        bounds.push_back(known[a]);
      }
      bool possibly = tables[static_cast<size_t>(n.value)].may_have(bounds);
      return truth(possibly && points, possibly);
    }
    case Op::kDivides: {
      if (arg(0).never || arg(1).never) return truth(false, false);
      Interval rest = remainder(arg(1), arg(0), arg(0).undefined || arg(1).undefined);
      bool never = arg(0).lower == 0 && arg(0).upper == 0;
      bool zero = rest.lower == 0 && rest.upper == 0;
      return truth(zero && !rest.undefined, !never && rest.lower <= 0 && rest.upper >= 0);
    }
    case Op::kInList: return member(arg(0), lists[n.value]);
    case Op::kInRange: {
      const std::vector<int64_t>& range = lists[n.value];
      const Interval& a = arg(0);
      bool inside = a.lower >= range[0] && a.upper <= range[1] && !a.undefined;
      bool hits = range[2] == 1 || (a.lower - range[0]) % range[2] == 0;
      bool one = a.lower == a.upper;
      bool possibly = !a.never && a.lower <= range[1] && a.upper >= range[0] && (!one || hits);
      return truth(inside && hits && (one || range[2] == 1), possibly);
    }
    case Op::kAnd:
    case Op::kOr: {
      bool every = n.op == Op::kAnd;
      Interval result = truth(every, every);
      for (int a : n.args) {
        result.lower = every ? std::min(result.lower, known[a].lower) : std::max(result.lower, known[a].lower);
        result.upper = every ? std::min(result.upper, known[a].upper) : std::max(result.upper, known[a].upper);
      }
      return result;
    }
    case Op::kNot: return truth(arg(0).upper == 0, arg(0).lower == 0);
    case Op::kAgain: break;
  }
  throw Unsupported{};
}

std::vector<Interval> Model::bounds(const std::vector<Interval>& variables) const {
  std::vector<Interval> known(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!is_forgotten(i)) known[i] = bounds_of(nodes[i], known, variables);
  }
  return known;
}

}  // namespace constrint
