#include "store.hpp"

#include <algorithm>

namespace constrint {

namespace {

inline int count_bits(uint64_t word) { return static_cast<int>(std::bitset<64>(word).count()); }
inline int lowest_bit(uint64_t word) { return __builtin_ctzll(word); }
inline int highest_bit(uint64_t word) { return 63 - __builtin_clzll(word); }

}  // namespace

Store::Store(const Model& model, const std::vector<Axis>& axes) {
  int word = 0;
  for (size_t v = 0; v < axes.size(); ++v) {
    std::vector<int64_t> sorted = model.domains[v];
    std::sort(sorted.begin(), sorted.end());
    int num_words = static_cast<int>((sorted.size() + 63) / 64);
    words_.resize(static_cast<size_t>(word + num_words), 0);
    std::vector<int> positions(sorted.size(), -1);
    const std::vector<int64_t>& left = axes[v].values;
    int first = static_cast<int>(sorted.size()), last = -1;
    for (size_t i = 0; i < left.size(); ++i) {
      int place = static_cast<int>(std::lower_bound(sorted.begin(), sorted.end(), left[i]) - sorted.begin());
      positions[place] = static_cast<int>(i);
      words_[word + (place >> 6)] |= uint64_t{1} << (place & 63);
      first = std::min(first, place), last = std::max(last, place);
    }
    state_.push_back({word, static_cast<int>(left.size()), first, last});
    bounds_.push_back({sorted[first], sorted[last], false});
    values_.push_back(std::move(sorted));
    positions_.push_back(std::move(positions));
    word += num_words;
  }
  events_.resize(axes.size(), 0);
}

int Store::place_of(int v, int64_t value) const {
  const std::vector<int64_t>& sorted = values_[v];
  auto at = std::lower_bound(sorted.begin(), sorted.end(), value);
  return at != sorted.end() && *at == value ? static_cast<int>(at - sorted.begin()) : -1;
}

int Store::after(int v, int place) const {
  const uint64_t* bits = words(v);
  ++place;
  int word = place >> 6;
  uint64_t rest = (place & 63) ? bits[word] & ~uint64_t{0} << (place & 63) : bits[word];
  while (!rest) rest = bits[++word];
  return word * 64 + lowest_bit(rest);
}

void Store::note(int v, uint8_t events) {
  if (!events_[v]) changed_.push_back(v);
  events_[v] |= events;
}

void Store::refresh(int v) {
  const State& s = state_[v];
  bounds_[v].lower = values_[v][s.first];
  bounds_[v].upper = values_[v][s.last];
}

bool Store::assign(int v, int place) {
  if (!has(v, place)) return false;
  if (fixed(v)) return true;
  return keep_between(v, place, place);
}

bool Store::remove(int v, int place) {
  State& s = state_[v];
  if (place < s.first || place > s.last || !has(v, place)) return true;
  if (s.size == 1) return false;
  save(v);
  int word = s.word + (place >> 6);
  set_word(word, words_[word] & ~(uint64_t{1} << (place & 63)));
  --s.size;
  uint8_t events = kHoles;
  if (place == s.first) {
    s.first = after(v, place);
    events |= kBounds;
  } else if (place == s.last) {
    int w = s.word + (place >> 6);
    while (!words_[w]) --w;
    s.last = (w - s.word) * 64 + highest_bit(words_[w]);
    events |= kBounds;
  }
  if (s.size == 1) events |= kFixed;
  refresh(v);
  note(v, events);
  return true;
}

bool Store::at_least(int v, int64_t bound) {
  if (bound <= bounds_[v].lower) return true;
  if (bound > bounds_[v].upper) return false;
  const std::vector<int64_t>& sorted = values_[v];
  int place = static_cast<int>(std::lower_bound(sorted.begin() + state_[v].first, sorted.begin() + state_[v].last + 1, bound) -
                               sorted.begin());
  return keep_between(v, place, state_[v].last);
}

bool Store::at_most(int v, int64_t bound) {
  if (bound >= bounds_[v].upper) return true;
  if (bound < bounds_[v].lower) return false;
  const std::vector<int64_t>& sorted = values_[v];
  int place = static_cast<int>(std::upper_bound(sorted.begin() + state_[v].first, sorted.begin() + state_[v].last + 1, bound) -
                               sorted.begin()) - 1;
  return keep_between(v, state_[v].first, place);
}

// Keeps the values at places `first` to `last`; the range is not empty and lies inside the present one.
bool Store::keep_between(int v, int first, int last) {
  State& s = state_[v];
  save(v);
  int low = first >> 6, high = last >> 6;
  int removed = 0;
  for (int w = s.first >> 6; w <= s.last >> 6; ++w) {
    uint64_t bits = words_[s.word + w], kept = bits;
    if (w < low || w > high) kept = 0;
    if (w == low) kept &= ~uint64_t{0} << (first & 63);
    if (w == high) kept &= ~uint64_t{0} >> (63 - (last & 63));
    if (kept == bits) continue;
    removed += count_bits(bits ^ kept);
    set_word(s.word + w, kept);
  }
  if (!removed) return true;
  s.size -= removed;
  if (s.size == 0) return false;
  int w = std::max(low, s.first >> 6);
  while (!words_[s.word + w]) ++w;
  s.first = w * 64 + lowest_bit(words_[s.word + w]);
  w = std::min(high, s.last >> 6);
  while (!words_[s.word + w]) --w;
  s.last = w * 64 + highest_bit(words_[s.word + w]);
  refresh(v);
  note(v, static_cast<uint8_t>(kHoles | kBounds | (s.size == 1 ? kFixed : 0)));
  return true;
}

void Store::undo(size_t mark) {
  while (trail_.size() > mark) {
    const Saved& saved = trail_.back();
    if (saved.v < 0) {
      words_[saved.word] = saved.bits;
    } else {
      state_[saved.v] = saved.state;
      refresh(saved.v);
    }
    trail_.pop_back();
  }
}

bool Store::take_change(int* v, uint8_t* events) {
  if (changed_.empty()) return false;
  *v = changed_.back();
  *events = events_[*v];
  changed_.pop_back();
  events_[*v] = 0;
  return true;
}

void Store::forget_changes() {
  for (int v : changed_) events_[v] = 0;
  changed_.clear();
}

}  // namespace constrint
