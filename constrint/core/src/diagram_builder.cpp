#include "diagram_rules.hpp"

#include <algorithm>
#include <memory>

namespace constrint {

namespace {

// Numbers and places of a list of choices.
constexpr double kMostChoices = 1 << 25;

// About how long one choice takes to follow, where its state is new.
constexpr int64_t kNanosecondsOfChoice = 32;

// Places of a level's variable by the number that an equality asks of them.
struct Choices {
  // None where no rule has such a list.
  const FunctionRule* rule = nullptr;
  // The nodes of that number: one less another, -1 where nothing is taken away; then less, or divided by, what is
  // gathered so far, where that is not -1.
  int whole = -1, rest = -1, gathered = -1;
  int64_t least = 0, bytes = 0;
  std::vector<uint32_t> starts;
  std::vector<uint16_t> places;
};

// States as rows of equally many words, each once and numbered in the order in which they came. Memory is counted before
// it is allocated, also what exists twice while it grows.
class States {
 public:
  // States of one word that lies in a range, or is settled, are found by their place in it.
  States(size_t width, Held& held, int64_t least = 0, int64_t span = 0) : width_(width), least_(least), span_(span), held_(held) {
    find_slots(span ? static_cast<size_t>(span) + 1 : 64);
  }
  States(const States&) = delete;
  States& operator=(const States&) = delete;
  ~States() { held_.give(bytes_of(room_) + slot_bytes()); }
  size_t size() const { return size_; }
  const int64_t* operator[](size_t state) const { return words_.data() + state * width_; }
  uint32_t number(const int64_t* words) {
    if (span_) {
      uint32_t& slot = slots_[static_cast<size_t>(words[0] == kSettled ? span_ : words[0] - least_)];
      if (slot == kFree) {
        if (size_ == room_) make_room();
        slot = static_cast<uint32_t>(size_++);
        words_.push_back(words[0]);
      }
      return slot;
    }
    uint64_t hash = 0x9E3779B97F4A7C15u;
    for (size_t i = 0; i < width_; ++i) hash = (hash ^ static_cast<uint64_t>(words[i])) * 0xD6E8FEB86659FD93u, hash ^= hash >> 32;
    for (size_t at = hash & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at] == kFree) {
        if (size_ == room_) make_room();
        slots_[at] = static_cast<uint32_t>(size_);
        for (size_t i = 0; i < width_; ++i) words_.push_back(words[i]);
        hashes_.push_back(hash);
        if (2 * ++size_ > slots_.size()) find_slots(4 * slots_.size());
        return static_cast<uint32_t>(size_ - 1);
      }
      if (same(words, (*this)[slots_[at]])) return slots_[at];
    }
  }

 private:
  static constexpr uint32_t kFree = UINT32_MAX;
  // Most states have one word or two: a call of memcmp would take longer than they do.
  bool same(const int64_t* a, const int64_t* b) const {
    size_t i = 0;
    while (i < width_ && a[i] == b[i]) ++i;
    return i == width_;
  }
  int64_t bytes_of(size_t states) const { return static_cast<int64_t>(states * (width_ * sizeof(int64_t) + sizeof(uint64_t))); }
  int64_t slot_bytes() const { return static_cast<int64_t>(slots_.size() * sizeof(uint32_t)); }
  void make_room() {
    const size_t room = room_ ? 2 * room_ : 32;
    held_.take(bytes_of(room));
    words_.reserve(room * width_);
    hashes_.reserve(room);
    held_.give(bytes_of(room_));
    room_ = room;
  }
  void find_slots(size_t number) {
    const int64_t before = slot_bytes();
    held_.take(static_cast<int64_t>(number * sizeof(uint32_t)));
    slots_.assign(number, kFree);
    held_.give(before);
    for (size_t state = 0; state < size_; ++state) {
      size_t at = hashes_[state] & (slots_.size() - 1);
      while (slots_[at] != kFree) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = static_cast<uint32_t>(state);
    }
  }
  size_t width_, size_ = 0, room_ = 0;
  int64_t least_, span_;
  Held& held_;
  SlabVector<int64_t> words_;
  SlabVector<uint64_t> hashes_;
  SlabVector<uint32_t> slots_;
};

// Room for more arcs of a layer, whose memory is counted as that of states.
void make_room(Layer& layer, size_t room, Held& held) {
  const int64_t before = static_cast<int64_t>(layer.from.capacity()) * kArcBytes;
  held.take(static_cast<int64_t>(room) * kArcBytes);
  layer.from.reserve(room), layer.to.reserve(room), layer.places.reserve(room);
  held.give(before);
}

// Gives back the room that a layer has beyond its arcs.
void fit(Layer& layer, Held& held) {
  const int64_t before = static_cast<int64_t>(layer.from.capacity()) * kArcBytes, after = static_cast<int64_t>(layer.from.size()) * kArcBytes;
  held.take(after);
  layer.from.shrink_to_fit(), layer.to.shrink_to_fit(), layer.places.shrink_to_fit();
  held.give(before);
}

class DiagramBuilder : DiagramRules {
 public:
  using DiagramRules::DiagramRules;

  bool run(size_t max_arcs, int64_t tries, Budget& budget, Diagram* diagram) {
    if (!whole_) throw Unsupported{};
    budget.return_blocks();
    Held held(budget, variables_);
    auto states = std::make_unique<States>(0, held);
    const int64_t nothing = 0;
    states->number(&nothing);
    size_t num_arcs = 0;
    const bool holds = constants_hold();
    for (size_t level = 0; level < variables_.size(); ++level) {
      Layer layer;
      layer.variable = variables_[level];
      layer.num_states = static_cast<uint32_t>(states->size());
      const auto [least, span] = window(level + 1);
      auto reached = std::make_unique<States>(active_[level + 1].size(), held, least, span);
      std::vector<int64_t> key(active_[level + 1].size());
      const int all = static_cast<int>(prepared_.axes[layer.variable].values.size());
      list_choices(level, states->size(), budget, held);
      for (size_t s = 0; s < states->size(); ++s) {
        for (size_t i = 0; i < active_[level].size(); ++i) before_[active_[level][i]] = (*states)[s][i];
        int first = 0, end = holds ? all : 0;
        if (holds) forced(level, &first, &end);
        const uint16_t* few = end - first > 1 ? listed(level, &first, &end) : nullptr;
        budget.spend(1 + (end - first));
        budget.tick(kNanosecondsOfChoice * (end - first));
        tries -= end - first;
        for (int at = first; at < end; ++at) {
          const int place = few ? few[at] : at;
          if (!follow(level, place)) continue;
          for (size_t i = 0; i < key.size(); ++i) key[i] = after_[active_[level + 1][i]];
          if (layer.from.size() == layer.from.capacity()) make_room(layer, std::max<size_t>(16, 2 * layer.from.size()), held);
          layer.from.push_back(static_cast<uint32_t>(s));
          layer.places.push_back(static_cast<uint16_t>(place));
          layer.to.push_back(reached->number(key.data()));
        }
        if (num_arcs + layer.from.size() > max_arcs || tries < 0 || vague_) return false;
      }
      num_arcs += layer.from.size();
      forget_choices(held);
      fit(layer, held);
      diagram->layers.push_back(std::move(layer));
      states = std::move(reached);
    }
    states.reset();
    prune(diagram, held);
    return true;
  }

 private:
  // Follows a chained rule one value further: 0 where it fails, 1 where it may hold. Sets its words.
  bool follow_chain(const FunctionRule& rule, size_t level) {
    int64_t* words = after_.data() + rule.first_word;
    const size_t last = rule.known.size() - 1;
    if (words[last] == 1) return true;
    kept_.clear();
    for (size_t i = 0; i <= last; ++i) {
      const FunctionRule::Known& here = rule.known[i];
      Interval found;
      if (words[i] == kNever) {
        found.undefined = found.never = true;
      } else if (words[i] != kOpen) {
        found = {words[i], words[i], false};
      } else if (here.gathered < 0) {
        found = model_.bounds_of(model_.nodes[here.node], known_, known_);
      } else {
        const Gathered& of = gathered_[static_cast<size_t>(here.gathered)];
        const int64_t word = after_[sums_.size() + static_cast<size_t>(here.gathered)];
        if (here.first_level == static_cast<int>(level)) found = {word, word, false};
        else if (of.modulus) found = {0, of.modulus - 1, false};
        else found = joined(of.op, Interval{of.start, of.start, false}, of.later[0]);
      }
      kept_.push_back(known_[here.node]);
      known_[here.node] = found;
    }
    const Interval truth = known_[rule.known[last].node];
    const bool over = rule.last_level == static_cast<int>(level);
    const bool holds = truth.upper != 0 && (!over || truth.lower == 1);
    if (holds) keep_chain(rule, level, truth.lower == 1, words);
    for (size_t i = 0; i <= last; ++i) known_[rule.known[i].node] = kept_[i];
    return holds;
  }

  // Keeps the nodes that are known and that others which are not known look at.
  void keep_chain(const FunctionRule& rule, size_t level, bool settled, int64_t* words) {
    const size_t last = rule.known.size() - 1;
    auto is_known = [&](int node) { return known_[node].point() || known_[node].never; };
    wanted_.assign(rule.known.size(), 0);
    wanted_[last] = 1;
    for (size_t i = last + 1; i-- > 0 && !settled;) {
      const FunctionRule::Known& here = rule.known[i];
      if (!wanted_[i] || here.gathered >= 0 || is_known(here.node)) continue;
      for (int a : model_.nodes[here.node].args) {
        for (size_t j = 0; j < i; ++j) {
          if (rule.known[j].node == a) wanted_[j] = 1;
        }
      }
    }
    for (size_t i = 0; i <= last; ++i) {
      const FunctionRule::Known& here = rule.known[i];
      words[i] = kOpen;
      if (!wanted_[i] || !is_kept(here, level + 1)) continue;
      if (known_[here.node].never) words[i] = kNever;
      else if (known_[here.node].point()) words[i] = known_[here.node].lower;
      else if (here.last_level <= static_cast<int>(level)) vague_ = true;
    }
  }

  // Where an equality leaves one place for the level's variable at most, the range of places becomes that one or none.
  void forced(size_t level, int* first, int* end) {
    auto only = [&](const std::vector<std::pair<int64_t, int>>& places, int64_t value) {
      const auto at = std::lower_bound(places.begin(), places.end(), std::pair<int64_t, int>{value, -1});
      if (at == places.end() || at->first != value) *first = *end = 0;
      else if (at + 1 == places.end() || (at + 1)->first != value) *first = at->second, *end = at->second + 1;
    };
    for (size_t r : sums_at_[level]) {
      const SumRule& rule = sums_[r];
      if (rule.op != Op::kEq || rule.last_level != static_cast<int>(level) || before_[r] == kSettled) continue;
      const int64_t c = rule.coefficient[level];
      if (before_[r] % c != 0) *first = *end = 0;
      else only(value_places_[level], before_[r] / c);
      return;
    }
    for (size_t f : functions_at_[level]) {
      const FunctionRule& rule = functions_[f];
      const Node& check = model_.nodes[rule.nodes.back()];
      if (rule.chained || check.op != Op::kEq || rule.last_level != static_cast<int>(level)) continue;
      for (int side = 0; side < 2; ++side) {
        const int g = gathered_of_[check.args[side]], other = check.args[1 - side];
        if (g < 0 || gathered_[g].modulus || gathered_[g].parts[level].empty()) continue;
        if (model_.nodes[other].variables[variables_[level]] || before_[sums_.size() + g] == kSettled) continue;
        const int64_t part = before_[sums_.size() + g];
        if (!evaluate(rule, before_, level) || !bounds_of(other).point()) continue;
        const int64_t whole = bounds_of(other).lower;
        if (gathered_[g].op == Op::kAdd) return only(places_of_[g], whole - part);
        if (gathered_[g].op != Op::kMul || part == 0) continue;
        if (whole % part != 0) *first = *end = 0;
        else only(places_of_[g], whole / part);
        return;
      }
    }
  }

  // The places of the level's variable that an equality leaves, and their range in the list; nullptr where all may do.
  const uint16_t* listed(size_t level, int* first, int* end) {
    int64_t key = 0;
    if (!choices_.rule || !evaluate(*choices_.rule, before_, level) || !asked(&key)) return nullptr;
    const bool none = key < choices_.least || key - choices_.least + 1 >= static_cast<int64_t>(choices_.starts.size());
    *first = none ? 0 : static_cast<int>(choices_.starts[static_cast<size_t>(key - choices_.least)]);
    *end = none ? 0 : static_cast<int>(choices_.starts[static_cast<size_t>(key - choices_.least) + 1]);
    return choices_.places.data();
  }

  // The number by which places are listed; false where it is not known or every place has it.
  bool asked(int64_t* key) const {
    const Interval& whole = bounds_of(choices_.whole);
    if (!whole.point()) return false;
    *key = whole.lower;
    if (choices_.rest >= 0) {
      const Interval& rest = bounds_of(choices_.rest);
      if (!rest.point()) return false;
      *key -= rest.lower;
    }
    if (choices_.gathered < 0) {
      *key = std::abs(*key);
      return *key != 0;
    }
    const int64_t part = before_[sums_.size() + static_cast<size_t>(choices_.gathered)];
    if (gathered_[static_cast<size_t>(choices_.gathered)].op == Op::kAdd) {
      *key -= part;
      return true;
    }
    if (part == 0) return false;
    // Out of the list's range where it is no whole number.
    *key = *key % part == 0 ? *key / part : choices_.least - 1;
    return true;
  }

  // Lists a level's places where that is less work than to try all of them for each of its states.
  void list_choices(size_t level, size_t num_states, Budget& budget, Held& held) {
    for (size_t f : functions_at_[level]) {
      const FunctionRule& rule = functions_[f];
      if (rule.chained || choices_.rule) continue;
      const Node& check = model_.nodes[rule.nodes.back()];
      const double most = static_cast<double>(num_states) * static_cast<double>(prepared_.axes[variables_[level]].values.size());
      if (check.op == Op::kDivides) list_divisors(rule, check.args[1], check.args[0], -1, level, most, budget, held);
      for (int side = 0; side < 2 && check.op == Op::kEq; ++side) {
        const Node& node = model_.nodes[check.args[side]];
        const int other = check.args[1 - side];
        if (!is_known_before(other, level)) continue;
        list_pairs(rule, gathered_of_[check.args[side]], other, level, most, budget, held);
        if (node.op == Op::kMod) list_divisors(rule, node.args[0], node.args[1], other, level, most, budget, held);
      }
    }
  }

  // Whether the variables of a node all stand before a level.
  bool is_known_before(int node, size_t level) const {
    const Set open = model_.nodes[node].variables & ~prepared_.fixed;
    for (size_t later = level; later < variables_.size(); ++later) {
      if (open[variables_[later]]) return false;
    }
    return true;
  }

  // Places by the sum or product of their part with any part of the last variable.
  void list_pairs(const FunctionRule& rule, int g, int whole, size_t level, double most, Budget& budget, Held& held) {
    if (choices_.rule || g < 0) return;
    const Gathered& of = gathered_[static_cast<size_t>(g)];
    if (of.modulus || (of.op != Op::kAdd && of.op != Op::kMul) || of.last_level <= static_cast<int>(level)) return;
    for (int later = static_cast<int>(level) + 1; later < of.last_level; ++later) {
      if (!of.parts[static_cast<size_t>(later)].empty()) return;
    }
    const std::vector<int64_t>& here = of.parts[level];
    std::vector<int64_t> last = of.parts[static_cast<size_t>(of.last_level)];
    std::sort(last.begin(), last.end());
    last.erase(std::unique(last.begin(), last.end()), last.end());
    const Interval range = joined(of.op, interval_of(here), interval_of(last));
    const double pairs = static_cast<double>(here.size()) * static_cast<double>(last.size());
    if (pairs + static_cast<double>(range.upper - range.lower) > std::min(most, kMostChoices)) return;
    list_by(range.lower, range.upper, pairs, budget, held, [&](auto add) {
      for (size_t place = 0; place < here.size(); ++place) {
        // Zero times anything is one number.
        const size_t number = of.op == Op::kMul && here[place] == 0 ? 1 : last.size();
        for (size_t i = 0; i < number; ++i) add(joined(of.op, here[place], last[i]), place);
      }
    });
    choices_.rule = &rule, choices_.gathered = g, choices_.whole = whole;
  }

  // Places whose value divides a number, by that number: `whole` less `rest`.
  void list_divisors(const FunctionRule& rule, int whole, int by, int rest, size_t level, double most, Budget& budget, Held& held) {
    const int g = gathered_of_[by];
    if (choices_.rule || g < 0 || !is_known_before(whole, level)) return;
    const Gathered& of = gathered_[static_cast<size_t>(g)];
    if (of.modulus || of.parts[level].empty() || of.first_level != of.last_level) return;
    const std::vector<int64_t>& here = of.parts[level];
    const Interval& range = prepared_.bounds[whole];
    const Interval less = rest < 0 ? Interval{0, 0, false} : prepared_.bounds[rest];
    if (range.undefined || less.undefined || interval_of(here).lower < 1) return;
    const int64_t largest = std::max(std::abs(range.upper - less.lower), std::abs(range.lower - less.upper));
    double multiples = 0;
    for (int64_t value : here) multiples += static_cast<double>(largest / value);
    if (multiples + static_cast<double>(largest) > std::min(most, kMostChoices)) return;
    list_by(0, largest, multiples, budget, held, [&](auto add) {
      for (size_t place = 0; place < here.size(); ++place) {
        for (int64_t key = here[place]; key <= largest; key += here[place]) add(key, place);
      }
    });
    choices_.rule = &rule, choices_.gathered = -1, choices_.whole = whole, choices_.rest = rest;
  }

  // Sorts places by keys; `each` calls what it is given with every key and place, twice.
  template <typename F>
  void list_by(int64_t least, int64_t most, double number, Budget& budget, Held& held, F each) {
    budget.spend(static_cast<int64_t>(number));
    const size_t keys = static_cast<size_t>(most - least) + 1;
    choices_.bytes = static_cast<int64_t>((keys + 2) * sizeof(uint32_t)) + static_cast<int64_t>(number) * static_cast<int64_t>(sizeof(uint16_t));
    held.take(choices_.bytes);
    choices_.least = least;
    // Counts stand two further on, so that after the second walk every key's places begin at its start.
    choices_.starts.assign(keys + 2, 0);
    each([&](int64_t key, size_t) { ++choices_.starts[static_cast<size_t>(key - least) + 2]; });
    for (size_t at = 2; at < keys + 2; ++at) choices_.starts[at] += choices_.starts[at - 1];
    choices_.places.resize(choices_.starts.back());
    each([&](int64_t key, size_t place) {
      choices_.places[choices_.starts[static_cast<size_t>(key - least) + 1]++] = static_cast<uint16_t>(place);
    });
    choices_.starts.pop_back();
  }

  void forget_choices(Held& held) {
    held.give(choices_.bytes);
    choices_ = Choices();
  }

  // The bounds of a rule's nodes where the numbers are gathered up to a level; false where the rule is settled.
  bool evaluate(const FunctionRule& rule, const std::vector<int64_t>& words, size_t level) {
    for (int g : rule.gathered) {
      const Gathered& of = gathered_[g];
      const int64_t word = words[sums_.size() + static_cast<size_t>(g)];
      if (word == kSettled) return false;
      Interval& range = ranges_[static_cast<size_t>(g)];
      if (of.last_level < static_cast<int>(level)) range = {word, word, false};
      else if (of.modulus) range = {0, of.modulus - 1, false};
      else range = joined(of.op, Interval{word, word, false}, of.later[level]);
    }
    // What stands below a gathered number is not looked at as long as that has its bounds here, and none afterwards.
    for (int g : rule.gathered) std::swap(known_[gathered_[g].node], ranges_[static_cast<size_t>(g)]);
    for (int node : rule.nodes) known_[node] = model_.bounds_of(model_.nodes[node], known_, known_);
    for (int g : rule.gathered) std::swap(known_[gathered_[g].node], ranges_[static_cast<size_t>(g)]);
    return true;
  }

  const Interval& bounds_of(int node) const {
    return gathered_of_[node] < 0 ? known_[node] : ranges_[static_cast<size_t>(gathered_of_[node])];
  }

  // Whether a product of which a part is known can still be the number on the other side.
  bool may_divide(const FunctionRule& rule, size_t level) const {
    const Node& check = model_.nodes[rule.nodes.back()];
    if (check.op != Op::kEq) return true;
    for (int side = 0; side < 2; ++side) {
      const int g = gathered_of_[check.args[side]];
      const Interval& whole = bounds_of(check.args[1 - side]);
      if (g < 0 || gathered_[g].op != Op::kMul || gathered_[g].modulus || !whole.point() || whole.lower == 0) continue;
      if (gathered_[g].last_level < static_cast<int>(level)) continue;
      const int64_t part = after_[sums_.size() + static_cast<size_t>(g)];
      if (part == 0 || whole.lower % part != 0) return false;
    }
    return true;
  }

  // Whether rules without a variable, after all that cancels out, hold.
  bool constants_hold() {
    for (const SumRule& rule : sums_) {
      const int64_t number = rule.sum.number;
      if (rule.last_level < 0 && (rule.op == Op::kLe ? number < 0 : (rule.op == Op::kEq) == (number != 0))) return false;
    }
    for (const FunctionRule& rule : functions_) {
      if (rule.last_level >= 0 || !evaluate(rule, before_, 0)) continue;
      if (known_[rule.nodes.back()].lower != 1) return false;
    }
    return true;
  }

  // The numbers after one more value; false where a rule fails.
  bool follow(size_t level, int place) {
    const int64_t value = prepared_.axes[variables_[level]].values[static_cast<size_t>(place)];
    after_ = before_;
    for (size_t r : sums_at_[level]) {
      const SumRule& rule = sums_[r];
      int64_t& rest = after_[r];
      if (rest == kSettled) continue;
      rest -= rule.coefficient[level] * value;
      const int64_t least = rule.least[level + 1], most = rule.most[level + 1];
      if (rule.op == Op::kLe) {
        if (rest < least) return false;
        if (rest >= most) rest = kSettled;
      } else if (rule.op == Op::kEq) {
        if (rest < least || rest > most) return false;
        if (least == most) rest = kSettled;
      } else {
        if (least == most && rest == least) return false;
        if (rest < least || rest > most) rest = kSettled;
      }
    }
    for (size_t g : gathered_at_[level]) {
      int64_t& word = after_[sums_.size() + g];
      const Gathered& of = gathered_[g];
      if (word == kSettled) continue;
      word = joined(of.op, word, of.parts[level][static_cast<size_t>(place)]);
      if (of.modulus) word = remainder_of(word, of.modulus);
    }
    holding_.clear();
    for (size_t f : functions_at_[level]) {
      const FunctionRule& rule = functions_[f];
      if (rule.chained) {
        if (!follow_chain(rule, level)) return false;
        continue;
      }
      if (!evaluate(rule, after_, level + 1)) continue;
      const Interval& truth = known_[rule.nodes.back()];
      if (truth.upper == 0 || !may_divide(rule, level + 1)) return false;
      if (rule.last_level == static_cast<int>(level) && truth.lower != 1) return false;
      if (truth.lower == 1) holding_.push_back(f);
    }
    settle(level);
    return true;
  }

  // Forgets numbers whose rules all hold whatever comes.
  void settle(size_t level) {
    for (size_t f : holding_) {
      for (int g : functions_[f].gathered) {
        int64_t& word = after_[sums_.size() + static_cast<size_t>(g)];
        if (word == kSettled || gathered_[static_cast<size_t>(g)].used_until <= static_cast<int>(level)) continue;
        bool all = true;
        for (size_t other : users(g)) all &= std::find(holding_.begin(), holding_.end(), other) != holding_.end();
        if (all) word = kSettled;
      }
    }
  }

  const std::vector<size_t>& users(int g) {
    if (users_.empty()) {
      users_.resize(gathered_.size());
      for (size_t f = 0; f < functions_.size(); ++f) {
        for (int of : functions_[f].gathered) users_[static_cast<size_t>(of)].push_back(f);
      }
    }
    return users_[static_cast<size_t>(g)];
  }

  // Drops states from which no solution is reachable.
  static void prune(Diagram* diagram, Held& held) {
    std::vector<uint32_t> renumbered = {0};
    for (size_t level = diagram->layers.size(); level-- > 0;) {
      Layer& layer = diagram->layers[level];
      const int64_t numbers = static_cast<int64_t>((layer.num_states + renumbered.size()) * sizeof(uint32_t));
      held.take(numbers);
      std::vector<uint32_t> above(layer.num_states, UINT32_MAX);
      size_t kept = 0;
      uint32_t num_states = 0;
      for (size_t arc = 0; arc < layer.from.size(); ++arc) {
        if (renumbered[layer.to[arc]] == UINT32_MAX) continue;
        uint32_t& source = above[layer.from[arc]];
        if (source == UINT32_MAX) source = num_states++;
        layer.from[kept] = source;
        layer.to[kept] = renumbered[layer.to[arc]];
        layer.places[kept++] = layer.places[arc];
      }
      layer.from.resize(kept);
      layer.to.resize(kept);
      layer.places.resize(kept);
      fit(layer, held);
      layer.num_states = num_states;
      diagram->num_arcs += kept;
      renumbered = std::move(above);
      held.give(numbers);
    }
  }

  Choices choices_;
  // True where a number was not known after all of its variables.
  bool vague_ = false;
  std::vector<Interval> kept_;
  std::vector<uint8_t> wanted_;
  std::vector<size_t> holding_;
  std::vector<std::vector<size_t>> users_;
};

}  // namespace

DiagramSize size_of_diagram(const Model& model, const Prepared& prepared, const std::vector<int>& variables) {
  return DiagramRules(model, prepared, variables).size();
}

bool build_diagram(const Model& model, const Prepared& prepared, const std::vector<int>& variables, size_t max_arcs,
                   int64_t tries, Budget& budget, Diagram* diagram) {
  return DiagramBuilder(model, prepared, variables).run(max_arcs, tries, budget, diagram);
}

}  // namespace constrint
