#include <algorithm>

#include "search.hpp"

namespace constrint {

namespace {

using Wide = __int128;

int64_t magnitude(int64_t a) { return a < 0 ? -a : a; }

}  // namespace

Relaxation::Relaxation(const LinearSum& cost, const LinearSum& limit) : constant_(-cost.number), number_(limit.number) {
  auto coefficient = [](const LinearSum& sum, int v) -> int64_t {
    auto at = std::lower_bound(sum.variables.begin(), sum.variables.end(), v);
    if (at == sum.variables.end() || *at != v) return 0;
    return sum.coefficients[static_cast<size_t>(at - sum.variables.begin())];
  };
  for (int v : cost.variables) terms_.push_back({v, coefficient(cost, v), coefficient(limit, v)});
  for (int v : limit.variables) {
    if (!coefficient(cost, v)) terms_.push_back({v, 0, coefficient(limit, v)});
  }
  // Room is saved first where that costs least.
  std::stable_sort(terms_.begin(), terms_.end(), [](const Term& a, const Term& b) {
    return Wide{magnitude(a.cost)} * magnitude(b.room) < Wide{magnitude(b.cost)} * magnitude(a.room);
  });
  for (const Term& t : terms_) order_.push_back(t.variable);
}

bool Relaxation::least(const Store& store, int64_t* bound) const {
  Wide cost = constant_, room = 0;
  for (const Term& t : terms_) {
    const Interval& x = store.bounds()[t.variable];
    bool low = t.cost > 0 || (t.cost == 0 && t.room > 0);
    cost += Wide{t.cost} * (low ? x.lower : x.upper);
    room += Wide{t.room} * (low ? x.lower : x.upper);
  }
  Wide over = room - number_;
  for (const Term& t : terms_) {
    if (over <= 0) break;
    // Where the cheapest end takes more room than the other one, moving there saves room.
    bool moves = (t.cost < 0 && t.room > 0) || (t.cost > 0 && t.room < 0);
    if (!moves) continue;
    const Interval& x = store.bounds()[t.variable];
    int64_t width = x.upper - x.lower, per_step = magnitude(t.room);
    Wide saved = Wide{per_step} * width;
    if (saved <= over) {
      over -= saved;
      cost += Wide{magnitude(t.cost)} * width;
    } else {
      cost += (over * magnitude(t.cost) + per_step - 1) / per_step;
      over = 0;
    }
  }
  if (over > 0) return false;
  if (cost > *bound) *bound = cost > kMaxMagnitude ? kMaxMagnitude : static_cast<int64_t>(cost);
  return true;
}

}  // namespace constrint
