#include "table.hpp"

#include <algorithm>
#include <cmath>
#include <memory>

#include "lanes.hpp"

namespace constrint {

namespace {

struct Level {
  int variable = 0;
  int size = 0;
  // Nodes over this variable alone: known for each of its values. Their lanes stay as they are from chunk to chunk where
  // no later level writes over them; `filled` counts them.
  std::vector<int> tiled;
  std::vector<bool> stays;
  int filled = 0;
  // Nodes of earlier levels that this level reads, those that it computes, and the conditions it decides.
  std::vector<int> repeated, computed, checks;
  // Nodes known here that later levels read.
  std::vector<int> carried;
};

// The cheapest conditions first: those that need the fewest combinations of variables not placed yet.
std::vector<int> ordered(const Model& model, const std::vector<int>& variables, const std::vector<int>& checks,
                         const std::vector<Axis>& axes) {
  std::vector<int> order;
  Set placed, members;
  for (int v : variables) members.set(v);
  for (;;) {
    int best = -1;
    double least = 0;
    for (int check : checks) {
      const Set open = model.nodes[check].variables & members & ~placed;
      if (open.none()) continue;
      double cost = 0;
      for (int v : variables) {
        if (open[v]) cost += std::log(double(axes[v].values.size()));
      }
      if (best < 0 || cost < least) best = check, least = cost;
    }
    if (best < 0) break;
    for (int v : variables) {
      if (model.nodes[best].variables[v] && !placed[v]) placed.set(v), order.push_back(v);
    }
  }
  for (int v : variables) {
    if (!placed[v]) order.push_back(v);
  }
  return order;
}

// Rows on their way to one level: their positions so far, and the node values that levels ahead read.
template <typename T>
struct Block {
  int rows = 0;
  std::vector<std::vector<uint16_t>> places;
  // Indexed like Level::carried of the level before.
  std::vector<std::vector<T>> numbers;
  std::vector<std::vector<uint8_t>> flags, defined;
};

// Combinations of the variables' values, or `most` where these are more.
size_t product(const std::vector<int>& variables, const std::vector<Axis>& axes, size_t most) {
  size_t combinations = 1;
  for (int v : variables) combinations = std::min(most, combinations * axes[v].values.size());
  return combinations;
}

template <typename T>
class Builder {
 public:
  Builder(const Model& model, std::vector<int> order, const std::vector<int>& checks, const std::vector<Axis>& axes,
          const std::vector<Interval>& bounds, Budget& budget)
      : model_(model), axes_(axes), bounds_(bounds), budget_(budget), most_lanes_(product(order, axes, kLanes)),
        lanes_(model, bounds, most_lanes_), level_of_(model.nodes.size(), -1), kept_(most_lanes_ + 1), row_(most_lanes_),
        run_rows_(most_lanes_ + 1), run_lengths_(most_lanes_ + 1), mask_(most_lanes_) {
    table_.variables = std::move(order);
    table_.columns.resize(table_.variables.size());
    plan(checks);
  }

  Table run() {
    Block<T>& first = blocks_[0];
    first.rows = 1;
    extend(0);
    for (size_t i = 1; i < levels_.size(); ++i) {
      if (blocks_[i].rows) extend(i);
    }
    budget_.give(scratch_);
    return std::move(table_);
  }

 private:
  void plan(const std::vector<int>& checks);
  void read_ahead(const std::vector<int>& needed);
  void tile(const Level& level);
  void extend(size_t at);
  void extend_chunk(size_t at, int row, int rows, int value, int values);
  void pass_on(size_t at, int row, int values, int value, int count);
  void list(size_t at, int row, int values, int value, int count);
  void place(int row, int values, int count);
  template <typename From, typename To>
  void repeat_rows(const From& from, To& out, size_t start) const;
  void number(int row, int values, int value, int count, uint16_t* out) const;

  const Model& model_;
  const std::vector<Axis>& axes_;
  const std::vector<Interval>& bounds_;
  Budget& budget_;
  // No chunk has more lanes.
  const size_t most_lanes_;
  Lanes<T> lanes_;
  std::vector<Level> levels_;
  std::vector<int> level_of_;
  std::vector<Block<T>> blocks_;
  // Per level, node and value of its variable: the nodes that depend on that variable alone.
  std::vector<std::vector<std::vector<T>>> tiles_;
  std::vector<std::vector<std::vector<uint8_t>>> tile_flags_, tile_defined_;
  Table table_;
  // Bytes of blocks and lanes.
  int64_t scratch_ = 0;
  std::vector<int> kept_, row_;
  // The waiting rows of which some lane is kept, and how many of each.
  std::vector<uint32_t> run_rows_, run_lengths_;
  size_t num_runs_ = 0;
  std::vector<uint8_t> mask_;
};

template <typename T>
void Builder<T>::plan(const std::vector<int>& checks) {
  const std::vector<int>& order = table_.variables;
  std::vector<int> place(kMaxVariables, -1);
  for (size_t i = 0; i < order.size(); ++i) {
    place[order[i]] = static_cast<int>(i);
    Level level;
    level.variable = order[i];
    level.size = static_cast<int>(axes_[order[i]].values.size());
    levels_.push_back(level);
  }
  std::vector<int> needed = nodes_below(model_, checks);
  const int64_t lane_bytes = static_cast<int64_t>(needed.size()) * kLanes * static_cast<int64_t>(sizeof(T) + 1);
  scratch_ = lane_bytes;
  budget_.take(scratch_, order);
  for (int node : needed) {
    const Node& n = model_.nodes[node];
    int count = 0;
    for (int v : order) {
      if (n.variables[v]) level_of_[node] = std::max(level_of_[node], place[v]), ++count;
    }
    if (count == 0) {
      // Over fixed variables and numbers only: the same everywhere.
      if (n.op == Op::kVar) {
        std::fill_n(lanes_.values(node), most_lanes_, static_cast<T>(axes_[n.value].values[0]));
      } else {
        lanes_.fill_constant(node);
        lanes_.compute(node, static_cast<int>(most_lanes_));
      }
      continue;
    }
    Level& level = levels_[level_of_[node]];
    (count == 1 ? level.tiled : level.computed).push_back(node);
  }
  for (int check : checks) {
    if (level_of_[check] >= 0) levels_[level_of_[check]].checks.push_back(check);
  }
  read_ahead(needed);
  blocks_.resize(levels_.size());
  tiles_.resize(levels_.size());
  tile_flags_.resize(levels_.size());
  tile_defined_.resize(levels_.size());
  for (size_t i = 0; i < levels_.size(); ++i) {
    tile(levels_[i]);
    Block<T>& block = blocks_[i];
    // Two chunks at most, and no more than there are combinations.
    const size_t rows = product({order.begin(), order.begin() + static_cast<long>(i)}, axes_, 2 * kLanes);
    const size_t carried = i ? levels_[i - 1].carried.size() : 0;
    const int64_t block_bytes = static_cast<int64_t>(rows * (i * sizeof(uint16_t) + carried * sizeof(T)));
    scratch_ += block_bytes;
    budget_.take(block_bytes, order);
    block.places.assign(i, std::vector<uint16_t>(rows));
    block.numbers.resize(carried);
    block.flags.resize(carried);
    block.defined.resize(carried);
    for (size_t c = 0; c < carried; ++c) {
      int node = levels_[i - 1].carried[c];
      if (is_condition(model_.nodes[node].op)) {
        block.flags[c].resize(rows);
      } else {
        block.numbers[c].resize(rows);
        if (bounds_[node].undefined) block.defined[c].resize(rows);
      }
    }
  }
}

// Finds, for every level, which earlier nodes it reads, and which nodes have to be carried to it.
template <typename T>
void Builder<T>::read_ahead(const std::vector<int>& needed) {
  std::vector<int> last_use(model_.nodes.size(), -1);
  for (int node : needed) {
    int at = level_of_[node];
    if (at < 0) continue;
    for (int a : model_.nodes[node].args) {
      if (level_of_[a] < 0 || level_of_[a] == at) continue;
      last_use[a] = std::max(last_use[a], at);
      std::vector<int>& repeated = levels_[at].repeated;
      if (std::find(repeated.begin(), repeated.end(), a) == repeated.end()) repeated.push_back(a);
    }
  }
  for (int node : needed) {
    for (int at = level_of_[node]; at >= 0 && at < last_use[node]; ++at) levels_[at].carried.push_back(node);
  }
  for (Level& level : levels_) {
    for (int node : level.tiled) level.stays.push_back(last_use[node] < 0 && level.size <= kLanes);
  }
}

// Computes the nodes over one variable alone on its values.
template <typename T>
void Builder<T>::tile(const Level& level) {
  size_t at = &level - levels_.data();
  const std::vector<int64_t>& values = axes_[level.variable].values;
  tiles_[at].resize(level.tiled.size());
  tile_flags_[at].resize(level.tiled.size());
  tile_defined_[at].resize(level.tiled.size());
  for (int start = 0; start < level.size; start += kLanes) {
    int n = std::min(kLanes, level.size - start);
    for (size_t t = 0; t < level.tiled.size(); ++t) {
      int node = level.tiled[t];
      if (model_.nodes[node].op == Op::kVar) {
        for (int i = 0; i < n; ++i) lanes_.values(node)[i] = static_cast<T>(values[start + i]);
      } else {
        lanes_.compute(node, n);
      }
      if (is_condition(model_.nodes[node].op)) {
        tile_flags_[at][t].insert(tile_flags_[at][t].end(), lanes_.truth(node), lanes_.truth(node) + n);
        continue;
      }
      tiles_[at][t].insert(tiles_[at][t].end(), lanes_.values(node), lanes_.values(node) + n);
      if (const uint8_t* d = lanes_.defined(node)) {
        tile_defined_[at][t].insert(tile_defined_[at][t].end(), d, d + n);
      }
    }
  }
}

// Extends every waiting row by every value of the level's variable.
template <typename T>
void Builder<T>::extend(size_t at) {
  int size = levels_[at].size, rows = blocks_[at].rows;
  int values = std::min(size, kLanes), step = std::max(1, kLanes / values);
  for (int row = 0; row < rows; row += step) {
    for (int value = 0; value < size; value += values) {
      extend_chunk(at, row, std::min(step, rows - row), value, std::min(values, size - value));
    }
  }
  blocks_[at].rows = 0;
}

template <typename U>
void gather(U* out, const U* from, const int* at, int count) {
  for (int i = 0; i < count; ++i) out[i] = from[at[i]];
}

template <typename T>
void Builder<T>::extend_chunk(size_t at, int row, int rows, int value, int values) {
  Level& level = levels_[at];
  const Block<T>& block = blocks_[at];
  int lanes = rows * values;
  budget_.spend(lanes);
  budget_.tick(int64_t{lanes} * static_cast<int64_t>(level.computed.size() + at + 1));
  if (!level.checks.empty() || !level.carried.empty()) {
    for (int node : level.repeated) {
      const std::vector<int>& carried = levels_[at - 1].carried;
      size_t c = std::find(carried.begin(), carried.end(), node) - carried.begin();
      if (is_condition(model_.nodes[node].op)) {
        repeat_each(lanes_.truth(node), block.flags[c].data() + row, rows, values);
        continue;
      }
      repeat_each(lanes_.values(node), block.numbers[c].data() + row, rows, values);
      if (uint8_t* d = lanes_.defined(node)) repeat_each(d, block.defined[c].data() + row, rows, values);
    }
    for (size_t t = 0; t < level.tiled.size(); ++t) {
      int node = level.tiled[t];
      if (level.stays[t] && lanes <= level.filled) continue;
      if (is_condition(model_.nodes[node].op)) {
        repeat_all(lanes_.truth(node), tile_flags_[at][t].data() + value, values, rows);
        continue;
      }
      repeat_all(lanes_.values(node), tiles_[at][t].data() + value, values, rows);
      if (uint8_t* d = lanes_.defined(node)) repeat_all(d, tile_defined_[at][t].data() + value, values, rows);
    }
    level.filled = std::max(level.filled, lanes);
    for (int node : level.computed) lanes_.compute(node, lanes);
  }
  const uint8_t* mask = nullptr;
  for (int check : level.checks) {
    const uint8_t* verdict = lanes_.truth(check);
    if (mask) {
      for (int i = 0; i < lanes; ++i) mask_[i] = mask[i] & verdict[i];
      mask = mask_.data();
    } else {
      mask = verdict;
    }
  }
  int count = 0;
  for (int i = 0; i < lanes; ++i) {
    kept_[count] = i;
    count += mask ? mask[i] : 1;
  }
  if (count == 0) return;
  if (at + 1 == levels_.size()) {
    list(at, row, values, value, count);
    return;
  }
  pass_on(at, row, values, value, count);
  // A block holds two chunks: it is worked off before a third could come.
  if (blocks_[at + 1].rows >= kLanes) extend(at + 1);
}

template <typename T>
void Builder<T>::pass_on(size_t at, int row, int values, int value, int count) {
  const Level& level = levels_[at];
  const Block<T>& block = blocks_[at];
  Block<T>& next = blocks_[at + 1];
  int start = next.rows;
  place(row, values, count);
  for (size_t v = 0; v < at; ++v) repeat_rows(block.places[v], next.places[v], start);
  number(row, values, value, count, next.places[at].data() + start);
  for (size_t c = 0; c < level.carried.size(); ++c) {
    int node = level.carried[c];
    bool here = level_of_[node] == static_cast<int>(at);
    size_t before = 0;
    if (!here) {
      const std::vector<int>& earlier = levels_[at - 1].carried;
      before = std::find(earlier.begin(), earlier.end(), node) - earlier.begin();
    }
    const bool undefined = bounds_[node].undefined, condition = is_condition(model_.nodes[node].op);
    if (here) {
      if (condition) {
        gather(next.flags[c].data() + start, lanes_.truth(node), kept_.data(), count);
        continue;
      }
      gather(next.numbers[c].data() + start, lanes_.values(node), kept_.data(), count);
      if (undefined) gather(next.defined[c].data() + start, lanes_.defined(node), kept_.data(), count);
    } else if (condition) {
      repeat_rows(block.flags[before], next.flags[c], start);
    } else {
      repeat_rows(block.numbers[before], next.numbers[c], start);
      if (undefined) repeat_rows(block.defined[before], next.defined[c], start);
    }
  }
  next.rows += count;
}

// Appends finished rows to the table.
template <typename T>
void Builder<T>::list(size_t at, int row, int values, int value, int count) {
  const Block<T>& block = blocks_[at];
  place(row, values, count);
  size_t start = table_.num_rows;
  budget_.add_rows(table_, count);
  for (size_t v = 0; v < at; ++v) {
    table_.columns[v].resize(start + count);
    repeat_rows(block.places[v], table_.columns[v], start);
  }
  table_.columns[at].resize(start + count);
  number(row, values, value, count, table_.columns[at].data() + start);
}

// Finds the waiting row of every kept lane.
template <typename T>
void Builder<T>::place(int row, int values, int count) {
  num_runs_ = 0;
  for (int i = 0, end = values; i < count; ++row, end += values) {
    const int first = i;
    for (; i < count && kept_[i] < end; ++i) row_[i] = row;
    run_rows_[num_runs_] = static_cast<uint32_t>(row);
    run_lengths_[num_runs_] = static_cast<uint32_t>(i - first);
    num_runs_ += i > first;
  }
}

// Copies the waiting rows' positions, once per kept lane, from place `start` on.
template <typename T>
template <typename From, typename To>
void Builder<T>::repeat_rows(const From& from, To& out, size_t start) const {
  const auto* values = from.data();
  const uint32_t* rows = run_rows_.data();
  write_equal(run_lengths_.data(), num_runs_, out.data() + start, out.data() + out.size(),
              [=](size_t t) { return values[rows[t]]; });
}

// The positions of the level's own variable on the kept lanes.
template <typename T>
void Builder<T>::number(int row, int values, int value, int count, uint16_t* out) const {
  for (int i = 0; i < count; ++i) out[i] = static_cast<uint16_t>(value + (kept_[i] - (row_[i] - row) * values));
}

template <typename T>
Table run(const Model& model, std::vector<int> order, const std::vector<int>& checks, const std::vector<Axis>& axes,
          const std::vector<Interval>& bounds, Budget& budget) {
  return Builder<T>(model, std::move(order), checks, axes, bounds, budget).run();
}

}  // namespace

std::vector<int> nodes_below(const Model& model, const std::vector<int>& roots) {
  std::vector<bool> below(model.nodes.size(), false);
  for (int root : roots) below[root] = true;
  for (int i = static_cast<int>(model.nodes.size()) - 1; i >= 0; --i) {
    if (!below[i]) continue;
    for (int a : model.nodes[i].args) below[a] = true;
  }
  std::vector<int> found;
  for (size_t i = 0; i < below.size(); ++i) {
    if (below[i]) found.push_back(static_cast<int>(i));
  }
  return found;
}

Table build_table(const Model& model, const std::vector<int>& variables, const std::vector<int>& checks,
                  const std::vector<Axis>& axes, const std::vector<Interval>& bounds, Budget& budget) {
  std::vector<int> order = ordered(model, variables, checks, axes);
  if (fits_32(bounds, nodes_below(model, checks), model)) {
    return run<int32_t>(model, std::move(order), checks, axes, bounds, budget);
  }
  return run<int64_t>(model, std::move(order), checks, axes, bounds, budget);
}

}  // namespace constrint
