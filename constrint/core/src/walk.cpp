#include "walk.hpp"

#include <algorithm>
#include <stdexcept>

namespace constrint {

namespace {

constexpr int kAny = -1, kNowhere = -2;

}  // namespace

Walker::Walker(const Model& model, const Prepared& prepared, std::vector<int> variables)
    : model_(model), prepared_(prepared), variables_(std::move(variables)), positions_(variables_.size(), -1) {
  for (const Axis& axis : prepared.axes) initial_.push_back(axis.bounds());
  open_ = initial_;
  places_.resize(prepared.axes.size());
  for (int v : variables_) {
    const std::vector<int64_t>& values = prepared.axes[v].values;
    for (size_t i = 0; i < values.size(); ++i) places_[v].emplace(values[i], static_cast<int>(i));
  }
  known_ = prepared.bounds;
  Set mine;
  for (int v : variables_) mine.set(v);
  std::vector<int> checks;
  for (size_t i = 0; i < prepared.checks.size(); ++i) {
    if ((prepared.scopes[i] & mine).any()) checks.push_back(prepared.checks[i]);
  }
  std::vector<int> nodes = nodes_below(model, checks);
  for (int v : variables_) {
    Step step;
    for (int node : nodes) {
      if (model.nodes[node].variables[v]) step.nodes.push_back(node);
    }
    for (int check : checks) {
      if (model.nodes[check].variables[v]) step.checks.push_back(check);
    }
    // Met in this order while the nodes are gone through.
    std::sort(step.checks.begin(), step.checks.end());
    step.checks.erase(std::unique(step.checks.begin(), step.checks.end()), step.checks.end());
    for (int check : step.checks) {
      if (model.nodes[check].op == Op::kEq) step.equalities.push_back(check);
    }
    step.saved.resize(step.nodes.size());
    steps_.push_back(std::move(step));
  }
}

bool Walker::assign(size_t level, int position) {
  int v = variables_[level];
  int64_t value = prepared_.axes[v].values[position];
  open_[v] = {value, value, false};
  Step& step = steps_[level];
  size_t next = 0;
  for (int node : step.nodes) {
    known_[node] = model_.bounds_of(model_.nodes[node], known_, open_);
    if (next < step.checks.size() && step.checks[next] == node) {
      if (known_[node].upper == 0) return false;
      ++next;
    }
  }
  return true;
}

// Solves an equality for a variable that is the only open one in it, as a term of a sum or a factor of a product.
bool Walker::solved(int equality, int variable, int64_t* value) const {
  const Node& check = model_.nodes[equality];
  for (int side = 0; side < 2; ++side) {
    const Node& with = model_.nodes[check.args[side]];
    const Interval& number = known_[check.args[1 - side]];
    if (!number.point() || !with.variables[variable]) continue;
    if (with.op == Op::kVar) {
      *value = number.lower;
      return true;
    }
    if (with.op != Op::kAdd && with.op != Op::kMul) continue;
    int64_t rest = number.lower;
    int sign = 0;
    bool clear = true;
    for (int arg : with.args) {
      const Node& n = model_.nodes[arg];
      bool bare = n.op == Op::kVar && n.value == variable;
      bool negative = with.op == Op::kAdd && n.op == Op::kNeg && model_.nodes[n.args[0]].op == Op::kVar &&
                      model_.nodes[n.args[0]].value == variable;
      if (bare || negative) {
        clear &= sign == 0;
        sign = bare ? 1 : -1;
      } else if (!known_[arg].point()) {
        clear = false;
      } else if (with.op == Op::kAdd) {
        rest -= known_[arg].lower;
      } else if (known_[arg].lower == 0 || rest % known_[arg].lower != 0) {
        clear = false;
      } else {
        rest /= known_[arg].lower;
      }
    }
    if (!clear || sign == 0) continue;
    *value = sign * rest;
    return true;
  }
  return false;
}

int Walker::forced(size_t level) const {
  for (int equality : steps_[level].equalities) {
    int64_t value = 0;
    if (!solved(equality, variables_[level], &value)) continue;
    auto at = places_[variables_[level]].find(value);
    return at == places_[variables_[level]].end() ? kNowhere : at->second;
  }
  return kAny;
}

void Walker::enter(size_t level) {
  Step& step = steps_[level];
  for (size_t i = 0; i < step.nodes.size(); ++i) step.saved[i] = known_[step.nodes[i]];
  step.only = forced(level);
}

void Walker::release(size_t level) {
  Step& step = steps_[level];
  open_[variables_[level]] = initial_[variables_[level]];
  for (size_t i = 0; i < step.nodes.size(); ++i) known_[step.nodes[i]] = step.saved[i];
}

bool Walker::next(Budget& budget) {
  if (broken_) throw std::logic_error("the walk has ended at a limit; begin a new one");
  if (done_) return false;
  broken_ = true;
  const bool found = moved(budget);
  broken_ = false;
  return found;
}

double Walker::progress() const {
  if (done_) return 1;
  double share = 1, behind = 0;
  for (size_t level = 0; level < variables_.size() && positions_[level] >= 0; ++level) {
    share /= static_cast<double>(prepared_.axes[variables_[level]].values.size());
    behind += share * positions_[level];
  }
  return behind;
}

bool Walker::moved(Budget& budget) {
  size_t levels = variables_.size(), level = 0;
  if (started_) {
    level = levels - 1;
  } else {
    started_ = true;
    enter(0);
  }
  for (;;) {
    int size = static_cast<int>(prepared_.axes[variables_[level]].values.size());
    int position = positions_[level] + 1;
    int only = steps_[level].only;
    if (only != kAny) {
      size = only >= position ? only + 1 : 0;
      position = std::max(position, only);
    }
    bool found = false;
    for (; position < size && !found; ++position) {
      budget.spend(1);
      budget.tick(static_cast<int64_t>(32 * steps_[level].nodes.size()));
      found = assign(level, position);
    }
    if (!found) {
      release(level);
      positions_[level] = -1;
      if (level == 0) {
        done_ = true;
        return false;
      }
      --level;
      continue;
    }
    positions_[level] = position - 1;
    if (level + 1 == levels) return true;
    enter(++level);
  }
}

}  // namespace constrint
