// The values that are left of every variable during a depth-first search: sets of places in the ascending domain, which
// only shrink, and a trail that brings them back.
#pragma once

#include <cstdint>
#include <vector>

#include "space.hpp"

namespace constrint {

class Store {
 public:
  // Changes of a variable since the last query.
  static constexpr uint8_t kHoles = 1, kBounds = 2, kFixed = 4;

  Store(const Model& model, const std::vector<Axis>& axes);

  int size(int v) const { return state_[v].size; }
  bool fixed(int v) const { return state_[v].size == 1; }
  // Places of the smallest and the largest value.
  int first(int v) const { return state_[v].first; }
  int last(int v) const { return state_[v].last; }
  // The next place with a value after this one; the caller knows that there is one.
  int after(int v, int place) const;
  bool has(int v, int place) const { return words(v)[place >> 6] >> (place & 63) & 1; }
  int64_t value(int v, int place) const { return values_[v][place]; }
  const std::vector<int64_t>& values(int v) const { return values_[v]; }
  const uint64_t* words(int v) const { return words_.data() + state_[v].word; }
  int num_words(int v) const { return static_cast<int>((values_[v].size() + 63) / 64); }
  // The place of a value in the domain as it was at first; -1 where it is none.
  int place_of(int v, int64_t value) const;
  // Where the value at a place stands on the prepared axis.
  int position(int v, int place) const { return positions_[v][place]; }
  // Bounds of all variables, as expressions take them.
  const std::vector<Interval>& bounds() const { return bounds_; }

  // Each says whether a value is left.
  bool assign(int v, int place);
  bool remove(int v, int place);
  bool at_least(int v, int64_t bound);
  bool at_most(int v, int64_t bound);

  size_t mark() const { return trail_.size(); }
  void undo(size_t mark);
  // Returns and clears the changed variables and their changes.
  bool take_change(int* v, uint8_t* events);
  void forget_changes();

 private:
  struct State {
    int word, size, first, last;
  };
  // An old word (v < 0), or the old state of a variable.
  struct Saved {
    int v, word;
    uint64_t bits;
    State state;
  };
  void save(int v) { trail_.push_back({v, 0, 0, state_[v]}); }
  void set_word(int word, uint64_t bits) {
    trail_.push_back({-1, word, words_[word], {}});
    words_[word] = bits;
  }
  bool keep_between(int v, int first, int last);
  void note(int v, uint8_t events);
  void refresh(int v);

  std::vector<std::vector<int64_t>> values_;
  std::vector<std::vector<int>> positions_;
  std::vector<uint64_t> words_;
  std::vector<State> state_;
  std::vector<Interval> bounds_;
  std::vector<Saved> trail_;
  std::vector<int> changed_;
  std::vector<uint8_t> events_;
};

}  // namespace constrint
