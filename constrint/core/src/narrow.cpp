#include "narrow.hpp"

#include <algorithm>

namespace constrint {

namespace {

using Wide = __int128;

Wide ceil_of(Wide a, Wide b) { return -floor_quotient(-a, b); }

// The largest r with r^degree <= value, for value >= 0 and degree >= 1.
int64_t root_of(int64_t value, int64_t degree) {
  int64_t low = 0, high = value;
  while (low < high) {
    int64_t middle = low + (high - low + 1) / 2;
    Wide power = 1;
    for (int64_t i = 0; i < degree && power <= value; ++i) power *= middle;
    if (power <= value) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace

const Interval& Narrowing::evaluate(const std::vector<int>& nodes, const std::vector<Interval>& variables) {
  for (int node : nodes) known_[node] = model_.bounds_of(model_.nodes[node], known_, variables);
  return known_[nodes.back()];
}

bool Narrowing::require(const std::vector<int>& nodes, Store& store, bool* entailed) {
  const Interval& truth = evaluate(nodes, store.bounds());
  *entailed = truth.lower == 1;
  if (truth.upper == 0) return false;
  if (*entailed) return true;
  need_[nodes.back()] = kHolds;
  return descend(nodes, store);
}

bool Narrowing::within(const std::vector<int>& nodes, int64_t lower, int64_t upper, Store& store) {
  const Interval& bounds = evaluate(nodes, store.bounds());
  if (bounds.lower >= lower && bounds.upper <= upper) return true;
  if (!cut(nodes.back(), lower, upper)) return need_[nodes.back()] = kNothing, false;
  return descend(nodes, store);
}

bool Narrowing::descend(const std::vector<int>& nodes, Store& store) {
  bool fits = true;
  for (size_t i = nodes.size(); i-- > 0;) {
    int node = nodes[i];
    uint8_t need = need_[node];
    need_[node] = kNothing;
    if (need == kNothing || !fits) continue;
    const Node& n = model_.nodes[node];
    if (n.op == Op::kVar) {
      int v = static_cast<int>(n.value);
      fits = store.at_least(v, known_[node].lower) && store.at_most(v, known_[node].upper);
    } else if (is_condition(n.op)) {
      // As a number a condition is 0 or 1.
      bool is_number = need == kValue;
      if (is_number && known_[node].lower != known_[node].upper) continue;
      fits = condition(n, is_number ? known_[node].lower == 1 : need == kHolds);
    } else {
      fits = number(n, known_[node]);
    }
  }
  return fits;
}

bool Narrowing::cut(int node, Wide lower, Wide upper) {
  Interval& known = known_[node];
  if (lower > known.lower) {
    if (lower > known.upper) return false;
    known.lower = static_cast<int64_t>(lower);
  }
  if (upper < known.upper) {
    if (upper < known.lower) return false;
    known.upper = static_cast<int64_t>(upper);
  }
  want(node, kValue);
  return true;
}

bool Narrowing::compare(Op op, int a, int b) {
  const Interval x = known_[a], y = known_[b];
  switch (op) {
    case Op::kLe: return cut(a, x.lower, y.upper) && cut(b, x.lower, y.upper);
    case Op::kLt: return cut(a, x.lower, Wide{y.upper} - 1) && cut(b, Wide{x.lower} + 1, y.upper);
    case Op::kEq: return cut(a, y.lower, y.upper) && cut(b, x.lower, x.upper);
    default:
      // Different: a number at the end of the other's range is none of its values.
      if (x.lower == x.upper && !cut(b, Wide{y.lower} + (y.lower == x.lower), Wide{y.upper} - (y.upper == x.lower))) return false;
      return y.lower != y.upper || cut(a, Wide{x.lower} + (x.lower == y.lower), Wide{x.upper} - (x.upper == y.lower));
  }
}

bool Narrowing::condition(const Node& n, bool holds) {
  switch (n.op) {
    case Op::kEq:
    case Op::kNe:
    case Op::kLe:
    case Op::kLt: {
      if (holds) return compare(n.op, n.args[0], n.args[1]);
      // Where an operand may have no value the test fails for that reason too.
      if (known_[n.args[0]].undefined || known_[n.args[1]].undefined) return true;
      if (n.op == Op::kEq) return compare(Op::kNe, n.args[0], n.args[1]);
      if (n.op == Op::kNe) return compare(Op::kEq, n.args[0], n.args[1]);
      return compare(n.op == Op::kLe ? Op::kLt : Op::kLe, n.args[1], n.args[0]);
    }
    case Op::kInRange: {
      const std::vector<int64_t>& range = model_.lists[n.value];
      return !holds || cut(n.args[0], range[0], range[1]);
    }
    case Op::kInList: {
      const std::vector<int64_t>& list = model_.lists[n.value];
      if (!holds || list.empty()) return true;
      const Interval& x = known_[n.args[0]];
      auto low = std::lower_bound(list.begin(), list.end(), x.lower);
      auto high = std::upper_bound(list.begin(), list.end(), x.upper);
      if (low == list.end() || high == list.begin()) return false;
      return cut(n.args[0], *low, *(high - 1));
    }
    case Op::kTable: return !holds || row(n);
    case Op::kAnd:
    case Op::kOr: {
      bool every = (n.op == Op::kAnd) == holds;
      int open = -1, num_open = 0;
      for (int a : n.args) {
        bool settled = n.op == Op::kAnd ? known_[a].lower == 1 : known_[a].upper == 0;
        if (settled) continue;
        if (every) want(a, holds ? kHolds : kFails);
        open = a, ++num_open;
      }
      // Of an alternative only one is left: it has to be that one.
      if (!every && num_open == 1) want(open, holds ? kHolds : kFails);
      return every || num_open > 0;
    }
    case Op::kNot: want(n.args[0], holds ? kFails : kHolds); return true;
    default: return true;
  }
}

bool Narrowing::number(const Node& n, const Interval& range) {
  switch (n.op) {
    case Op::kAdd: return sum(n, range);
    case Op::kNeg: return cut(n.args[0], -Wide{range.upper}, -Wide{range.lower});
    case Op::kMul: return product(n, range);
    case Op::kAbs: {
      const Interval& x = known_[n.args[0]];
      if (x.lower >= 0) return cut(n.args[0], range.lower, range.upper);
      if (x.upper <= 0) return cut(n.args[0], -Wide{range.upper}, -Wide{range.lower});
      return cut(n.args[0], -Wide{range.upper}, range.upper);
    }
    case Op::kMin:
    case Op::kMax: return extreme(n, range);
    case Op::kFloorDiv:
    case Op::kCeilDiv:
    case Op::kDiv: return quotient(n, range);
    case Op::kPow: return power(n, range);
    case Op::kTruth:
      if (range.lower == range.upper) want(n.args[0], range.lower == 1 ? kHolds : kFails);
      return true;
    case Op::kElement: return element(n, range);
    default: return true;
  }
}

// The index selects an item that may have a value in the range; where only one is left, it has one.
bool Narrowing::element(const Node& n, const Interval& range) {
  const Interval index = known_[n.args[0]];
  const int64_t end = std::min(index.upper, static_cast<int64_t>(n.args.size()) - 2);
  int64_t first = -1, last = -1;
  for (int64_t i = std::max<int64_t>(index.lower, 0); i <= end; ++i) {
    const Interval& item = known_[n.args[static_cast<size_t>(i) + 1]];
    if (item.never || item.lower > range.upper || item.upper < range.lower) continue;
    if (first < 0) first = i;
    last = i;
  }
  if (first < 0 || !cut(n.args[0], first, last)) return false;
  return first < last || cut(n.args[static_cast<size_t>(first) + 1], range.lower, range.upper);
}

// Every operand lies between the least and the largest of its values in rows that are still possible.
bool Narrowing::row(const Node& n) {
  std::vector<Interval> bounds, hull;
  for (int a : n.args) bounds.push_back(known_[a]);
  if (!model_.tables[static_cast<size_t>(n.value)].hull(bounds, &hull)) return false;
  for (size_t c = 0; c < n.args.size(); ++c) {
    if (!cut(n.args[c], hull[c].lower, hull[c].upper)) return false;
  }
  return true;
}

bool Narrowing::sum(const Node& n, const Interval& range) {
  Wide low = 0, high = 0;
  for (int a : n.args) low += known_[a].lower, high += known_[a].upper;
  if (range.lower <= low && range.upper >= high) return true;
  for (int a : n.args) {
    Interval x = known_[a];
    if (x.lower == x.upper) continue;
    if (!cut(a, Wide{range.lower} - (high - x.upper), Wide{range.upper} - (low - x.lower))) return false;
  }
  return true;
}

// A factor, where the others together lie between two numbers of one sign.
bool Narrowing::factor(int node, Wide low, Wide high, const Interval& range) {
  Wide lower = range.lower, upper = range.upper;
  if (high < 0) {
    Wide swapped = -low;
    low = -high, high = swapped;
    swapped = -lower;
    lower = -upper, upper = swapped;
  }
  if (low <= 0) return true;
  return cut(node, lower > 0 ? ceil_of(lower, high) : ceil_of(lower, low),
             upper >= 0 ? floor_quotient(upper, low) : floor_quotient(upper, high));
}

bool Narrowing::product(const Node& n, const Interval& range) {
  for (size_t i = 0; i < n.args.size(); ++i) {
    if (known_[n.args[i]].lower == known_[n.args[i]].upper) continue;
    Wide low = 1, high = 1;
    bool small = true;
    for (size_t j = 0; j < n.args.size() && small; ++j) {
      if (j == i) continue;
      const Interval& x = known_[n.args[j]];
      Wide corners[4] = {low * x.lower, low * x.upper, high * x.lower, high * x.upper};
      low = *std::min_element(corners, corners + 4);
      high = *std::max_element(corners, corners + 4);
      small = low > -Wide{kMaxMagnitude} && high < Wide{kMaxMagnitude};
    }
    if (small && !factor(n.args[i], low, high, range)) return false;
  }
  return true;
}

bool Narrowing::extreme(const Node& n, const Interval& range) {
  bool least = n.op == Op::kMin;
  int reaching = -1, num_reaching = 0;
  for (int a : n.args) {
    if (!(least ? cut(a, range.lower, known_[a].upper) : cut(a, known_[a].lower, range.upper))) return false;
    if (least ? known_[a].lower <= range.upper : known_[a].upper >= range.lower) reaching = a, ++num_reaching;
  }
  if (num_reaching == 0) return false;
  return num_reaching > 1 || cut(reaching, range.lower, range.upper);
}

bool Narrowing::quotient(const Node& n, const Interval& range) {
  const Interval by = known_[n.args[1]];
  if (by.lower <= 0) return true;
  Wide low = range.lower, high = range.upper;
  if (n.op == Op::kFloorDiv) {
    high += 1;
    return cut(n.args[0], std::min(low * by.lower, low * by.upper), std::max(high * by.lower, high * by.upper) - 1);
  }
  if (n.op == Op::kCeilDiv) {
    low -= 1;
    return cut(n.args[0], std::min(low * by.lower, low * by.upper) + 1, std::max(high * by.lower, high * by.upper));
  }
  return cut(n.args[0], std::min(low * by.lower, low * by.upper), std::max(high * by.lower, high * by.upper));
}

bool Narrowing::power(const Node& n, const Interval& range) {
  const Interval base = known_[n.args[0]], exponent = known_[n.args[1]];
  if (base.lower < 0 || exponent.lower != exponent.upper || exponent.lower < 2 || range.upper < 0) return true;
  int64_t low = range.lower <= 0 ? 0 : root_of(range.lower - 1, exponent.lower) + 1;
  return cut(n.args[0], low, root_of(range.upper, exponent.lower));
}

}  // namespace constrint
