#include "search.hpp"

#include <algorithm>

namespace constrint {

namespace {

// Domains with more values are halved, smaller ones are tried value by value.
constexpr int kHalved = 16;
// Bounded sums up to which each one's least cost is computed.
constexpr size_t kMostLimits = 2;

}  // namespace

DepthFirst::DepthFirst(const Model& model, const Prepared& prepared, std::vector<int> variables, Order order,
               std::vector<Goal> goals, size_t num_best, std::vector<Choice> hints)
    : model_(model), prepared_(prepared), variables_(std::move(variables)), order_(order), goals_(std::move(goals)),
      rank_(prepared.axes.size(), 0), num_best_(num_best), hints_(prepared.axes.size(), 0),
      has_hint_(prepared.axes.size(), 0), rules_(model, prepared, variables_), positions_(variables_.size(), 0),
      bound_(-kMaxMagnitude), root_bound_(-kMaxMagnitude) {
  for (const Goal& goal : goals_) goal_nodes_.push_back(nodes_below(model, {goal.expression}));
  for (const Choice& hint : hints) {
    hints_[hint.variable] = hint.value;
    has_hint_[hint.variable] = 1;
  }
  LinearSum cost;
  if (goals_.empty() || prepared.bounds.empty()) return;
  if (!linear_sum(model, prepared, goals_[0].expression, -1, &cost)) return;
  if (goals_[0].maximise) {
    cost.number = -cost.number;
    for (int64_t& c : cost.coefficients) c = -c;
  }
  // Among many bounded sums each one alone says little of the cost, and an order by all of them is no good order.
  std::vector<const LinearSum*> limits;
  for (const LinearSum& limit : rules_.at_most()) {
    bool shared = false;
    for (int v : limit.variables) shared |= std::binary_search(cost.variables.begin(), cost.variables.end(), v);
    if (shared) limits.push_back(&limit);
  }
  if (limits.size() > kMostLimits) return;
  for (const LinearSum* limit : limits) {
    relaxations_.emplace_back(cost, *limit);
    const std::vector<int>& by_ratio = relaxations_.back().order();
    for (size_t i = 0; i < by_ratio.size(); ++i) rank_[by_ratio[i]] += static_cast<double>(i + 1);
  }
}

int64_t DepthFirst::least_cost(size_t goal) {
  const Interval& value = rules_.narrowing.evaluate(goal_nodes_[goal], rules_.store.bounds());
  return goals_[goal].maximise ? -value.upper : value.lower;
}

// Narrows to values that can beat the worst of the best solutions; false where none can.
bool DepthFirst::improve() {
  if (goals_.empty()) return true;
  bound_ = least_cost(0);
  for (const Relaxation& relaxation : relaxations_) {
    if (!relaxation.least(rules_.store, &bound_)) return false;
  }
  const bool full = best_.size() >= num_best_;
  if (!full && elsewhere_.empty()) return true;
  const std::vector<int64_t>& worst = full && (elsewhere_.empty() || best_.back().costs < elsewhere_) ? best_.back().costs : elsewhere_;
  for (size_t i = 0; i < goals_.size(); ++i) {
    int64_t allowed = worst[i] - (i + 1 == goals_.size());
    int64_t least = i == 0 ? bound_ : least_cost(i);
    if (least > allowed) return false;
    bool fits = goals_[i].maximise ? rules_.narrowing.within(goal_nodes_[i], -allowed, kMaxMagnitude, rules_.store)
                                   : rules_.narrowing.within(goal_nodes_[i], -kMaxMagnitude, allowed, rules_.store);
    if (!fits) return false;
    // Only where this objective must be as good as there does the next one matter.
    if (least < worst[i]) return true;
  }
  return true;
}

bool DepthFirst::settle(Budget& budget) {
  for (;;) {
    if (!rules_.run(budget)) return false;
    size_t before = rules_.store.mark();
    for (const std::vector<int>& nodes : goal_nodes_) {
      budget.spend(static_cast<int64_t>(nodes.size() / 4));
      budget.tick(static_cast<int64_t>(8 * nodes.size()));
    }
    for (const Relaxation& relaxation : relaxations_) budget.tick(static_cast<int64_t>(8 * relaxation.order().size()));
    if (!improve()) return false;
    if (rules_.store.mark() == before) return true;
  }
}

int DepthFirst::chosen_variable() {
  const Store& store = rules_.store;
  if (order_ == Order::kDeclared) {
    for (int v : variables_) {
      if (!store.fixed(v)) return v;
    }
    return -1;
  }
  // The variables of the first objective that is not settled come first.
  for (const Goal& goal : goals_) {
    const Set& touched = model_.nodes[goal.expression].variables;
    int best = -1;
    double most = 0;
    for (int v : variables_) {
      if (!touched[v] || store.fixed(v)) continue;
      double score = relaxations_.empty() ? rules_.weight(v) / store.size(v) : rank_[v];
      if (best < 0 || score > most) best = v, most = score;
    }
    if (best >= 0) return best;
  }
  int best = -1;
  double most = 0;
  for (int v : variables_) {
    if (store.fixed(v)) continue;
    double score = rules_.weight(v) / store.size(v);
    if (best < 0 || score > most) best = v, most = score;
  }
  return best;
}

// The place of the value that is declared first.
int DepthFirst::preferred(int v) const {
  const Store& store = rules_.store;
  int best = store.first(v), last = store.last(v);
  for (int place = best; place != last;) {
    place = store.after(v, place);
    if (store.position(v, place) < store.position(v, best)) best = place;
  }
  return best;
}

// Below 0 where the first unsettled objective is better with the smallest value than with the largest, above 0 where it
// is the other way round.
int DepthFirst::direction(int v) {
  const Store& store = rules_.store;
  for (size_t goal = 0; goal < goals_.size(); ++goal) {
    if (!model_.nodes[goals_[goal].expression].variables[v]) continue;
    int64_t cost[2];
    for (int end = 0; end < 2; ++end) {
      trial_ = store.bounds();
      int64_t value = end ? trial_[v].upper : trial_[v].lower;
      trial_[v] = {value, value, false};
      const Interval& found = rules_.narrowing.evaluate(goal_nodes_[goal], trial_);
      cost[end] = goals_[goal].maximise ? -found.upper : found.lower;
    }
    if (cost[0] != cost[1]) return cost[0] < cost[1] ? -1 : 1;
  }
  return 0;
}

DepthFirst::Frame DepthFirst::decision(int v) {
  const Store& store = rules_.store;
  int size = store.size(v);
  Frame frame{store.mark(), v, 0, Frame::kEqual, bound_, share_, share_ / size};
  if (order_ == Order::kDeclared) {
    frame.place = preferred(v);
    return frame;
  }
  if (has_hint_[v] && best_.empty()) {
    int place = store.place_of(v, hints_[v]);
    if (place >= 0 && store.has(v, place)) {
      frame.place = place;
      return frame;
    }
  }
  int towards = goals_.empty() ? 0 : direction(v);
  if (size <= kHalved) {
    frame.place = towards < 0 ? store.first(v) : towards > 0 ? store.last(v) : preferred(v);
    return frame;
  }
  int64_t middle = store.value(v, store.first(v)) + (store.value(v, store.last(v)) - store.value(v, store.first(v))) / 2;
  const std::vector<int64_t>& values = store.values(v);
  frame.place = static_cast<int>(std::upper_bound(values.begin(), values.end(), middle) - values.begin()) - 1;
  frame.kind = towards > 0 ? Frame::kHigh : Frame::kLow;
  frame.left_share = share_ / 2;
  return frame;
}

bool DepthFirst::decide(const Frame& frame) {
  Store& store = rules_.store;
  int64_t value = store.value(frame.v, frame.place);
  if (frame.kind == Frame::kEqual) return store.assign(frame.v, frame.place);
  return frame.kind == Frame::kLow ? store.at_most(frame.v, value) : store.at_least(frame.v, value + 1);
}

bool DepthFirst::refute(const Frame& frame) {
  Store& store = rules_.store;
  int64_t value = store.value(frame.v, frame.place);
  if (frame.kind == Frame::kEqual) return store.remove(frame.v, frame.place);
  return frame.kind == Frame::kLow ? store.at_least(frame.v, value + 1) : store.at_most(frame.v, value);
}

// Keeps a solution among the best ones; false where an objective has no value in it.
bool DepthFirst::record() {
  Found found;
  for (size_t goal = 0; goal < goals_.size(); ++goal) {
    const Interval& value = rules_.narrowing.evaluate(goal_nodes_[goal], rules_.store.bounds());
    if (value.never || value.undefined) {
      saw_undefined_ = true;
      return false;
    }
    found.costs.push_back(goals_[goal].maximise ? -value.lower : value.lower);
  }
  if (goals_.empty() && !best_.empty()) return true;
  found.positions = positions_;
  auto worse = [](const Found& a, const Found& b) { return a.costs < b.costs; };
  best_.insert(std::upper_bound(best_.begin(), best_.end(), found, worse), std::move(found));
  if (best_.size() > num_best_) best_.pop_back();
  return true;
}

DepthFirst::Outcome DepthFirst::next(Budget& budget, int64_t max_decisions) {
  if (done_) return Outcome::kDone;
  bool open = paused_;
  if (!started_) {
    started_ = true;
    open = settle(budget);
    root_bound_ = bound_;
  }
  int64_t last_decision = max_decisions > INT64_MAX - decisions_ ? INT64_MAX : decisions_ + max_decisions;
  for (;;) {
    if (!open) {
      progress_ += share_;
      if (stack_.empty()) {
        done_ = true;
        progress_ = 1;
        return Outcome::kDone;
      }
      Frame frame = stack_.back();
      stack_.pop_back();
      rules_.store.undo(frame.mark);
      rules_.store.forget_changes();
      share_ = frame.share - frame.left_share;
      bound_ = frame.bound;
      open = refute(frame) && settle(budget);
      continue;
    }
    int v = chosen_variable();
    if (v < 0) {
      for (size_t i = 0; i < variables_.size(); ++i) {
        positions_[i] = rules_.store.position(variables_[i], rules_.store.first(variables_[i]));
      }
      paused_ = false;
      open = false;
      if (record()) {
        ++num_found_;
        return Outcome::kSolution;
      }
      continue;
    }
    if (decisions_ >= last_decision) {
      paused_ = true;
      return Outcome::kPaused;
    }
    ++decisions_;
    budget.spend(1);
    budget.tick(static_cast<int64_t>(4 * variables_.size()));
    for (const std::vector<int>& nodes : goal_nodes_) budget.tick(static_cast<int64_t>(16 * nodes.size()));
    stack_.push_back(decision(v));
    share_ = stack_.back().left_share;
    open = decide(stack_.back()) && settle(budget);
  }
}

int64_t DepthFirst::bound() const {
  if (goals_.empty()) return -kMaxMagnitude;
  if (done_ && !elsewhere_.empty()) return std::min(elsewhere_[0], best_.empty() ? elsewhere_[0] : best_.front().costs[0]);
  if (done_) return best_.empty() ? root_bound_ : best_.front().costs[0];
  int64_t least = bound_;
  for (const Frame& frame : stack_) least = std::min(least, frame.bound);
  if (!best_.empty()) least = std::min(least, best_.front().costs[0]);
  if (!elsewhere_.empty()) least = std::min(least, elsewhere_[0]);
  return std::max(least, root_bound_);
}

}  // namespace constrint
