#include "space.hpp"

#include "listing.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace constrint {

namespace {

// Largest component, in combinations, that is one table.
constexpr double kOneTable = 4096;
// Keys up to this bound index an array; wider ones are sorted.
constexpr uint64_t kDense = uint64_t{1} << 22;
// Memory per row that sorting takes, and per row and child that stays.
constexpr int64_t kKeyBytes = 40, kLinkBytes = 4;
// Memory of a group: where it begins, its total, its key.
constexpr int64_t kGroupBytes = 20;

// The values of a few variables in one row as one number.
class Keys {
 public:
  Keys(const std::vector<int>& shared, const std::vector<Axis>& axes) : shared_(shared) {
    for (int v : shared) {
      uint64_t size = axes[v].values.size();
      if (bound_ > (uint64_t{1} << 62) / size) throw Unsupported{};
      sizes_.push_back(size);
      bound_ *= size;
    }
  }
  uint64_t bound() const { return bound_; }

  // Calls `use` with some rows' keys at a time, and the first of these rows.
  template <typename F>
  void each_piece(const Table& table, Budget& budget, F use) const {
    std::vector<uint64_t> keys;
    in_pieces(table.num_rows, budget, [&](size_t start, size_t end) {
      keys.assign(end - start, 0);
      for (size_t i = 0; i < shared_.size(); ++i) {
        size_t c = static_cast<size_t>(std::find(table.variables.begin(), table.variables.end(), shared_[i]) -
                                       table.variables.begin());
        const uint16_t* column = table.columns[c].data() + start;
        for (size_t r = 0; r < keys.size(); ++r) keys[r] = keys[r] * sizes_[i] + column[r];
      }
      use(start, keys);
    });
  }
  std::vector<uint64_t> of(const Table& table, Budget& budget) const {
    std::vector<uint64_t> keys(table.num_rows);
    each_piece(table, budget, [&](size_t start, const std::vector<uint64_t>& piece) {
      std::copy(piece.begin(), piece.end(), keys.begin() + static_cast<long>(start));
    });
    return keys;
  }

 private:
  const std::vector<int>& shared_;
  std::vector<uint64_t> sizes_;
  uint64_t bound_ = 1;
};

constexpr uint32_t kNone = UINT32_MAX;

// Finds the group of a key.
class Groups {
 public:
  Groups(std::vector<uint64_t> sorted, uint64_t bound) : keys_(std::move(sorted)) {
    if (bound > kDense) return;
    dense_.assign(bound, kNone);
    for (size_t i = 0; i < keys_.size(); ++i) dense_[keys_[i]] = static_cast<uint32_t>(i);
  }
  uint32_t find(uint64_t key) const {
    if (!dense_.empty()) return dense_[key];
    auto at = std::lower_bound(keys_.begin(), keys_.end(), key);
    return at != keys_.end() && *at == key ? static_cast<uint32_t>(at - keys_.begin()) : kNone;
  }

 private:
  std::vector<uint64_t> keys_;
  std::vector<uint32_t> dense_;
};

template <typename Values>
Values taken(const Values& from, const std::vector<uint32_t>& order, Budget& budget) {
  Values sorted(order.size());
  in_pieces(order.size(), budget, [&](size_t start, size_t end) {
    for (size_t i = start; i < end; ++i) sorted[i] = from[order[i]];
  });
  return sorted;
}

void reorder(TreeNode& node, const std::vector<uint32_t>& order, Budget& budget) {
  for (SlabVector<uint16_t>& column : node.table.columns) column = taken(column, order, budget);
  for (std::vector<uint32_t>& link : node.links) {
    if (!link.empty()) link = taken(link, order, budget);
  }
  node.table.num_rows = order.size();
}

// The order in which keys below `bound` rise, equal ones as they stand: sorted digit by digit.
std::vector<uint32_t> rising(std::vector<uint64_t> keys, uint64_t bound, Budget& budget) {
  constexpr int kBits = 11;
  constexpr uint64_t kDigits = uint64_t{1} << kBits;
  std::vector<uint32_t> order(keys.size()), next(keys.size());
  std::vector<uint64_t> moved(keys.size());
  std::iota(order.begin(), order.end(), 0u);
  for (int shift = 0; shift < 64 && (bound - 1) >> shift; shift += kBits) {
    std::vector<size_t> at(kDigits + 1, 0);
    in_pieces(keys.size(), budget, [&](size_t start, size_t end) {
      for (size_t i = start; i < end; ++i) ++at[((keys[i] >> shift) & (kDigits - 1)) + 1];
    });
    for (uint64_t d = 0; d < kDigits; ++d) at[d + 1] += at[d];
    in_pieces(keys.size(), budget, [&](size_t start, size_t end) {
      for (size_t i = start; i < end; ++i) {
        size_t to = at[(keys[i] >> shift) & (kDigits - 1)]++;
        next[to] = order[i];
        moved[to] = keys[i];
      }
    });
    order.swap(next);
    keys.swap(moved);
  }
  return order;
}

int64_t times(int64_t a, int64_t b) {
  __int128 product = static_cast<__int128>(a) * b;
  if (product > kMaxMagnitude) throw Unsupported{};
  return static_cast<int64_t>(product);
}

// Links a node to its children, drops rows without a solution below, groups the rest and counts.
class Counter {
 public:
  Counter(std::vector<TreeNode>& nodes, const std::vector<Axis>& axes, Budget& budget)
      : nodes_(nodes), axes_(axes), budget_(budget), groups_(nodes.size()) {}

  void count(size_t i) {
    TreeNode& node = nodes_[i];
    // Keys, weights and the order of rows are given back; links stay.
    const int64_t rows = static_cast<int64_t>(node.table.num_rows), scratch = node.shared.empty() ? 0 : kKeyBytes * rows;
    budget_.take(scratch + kLinkBytes * rows * static_cast<int64_t>(node.children.size()), node.table.variables);
    node.links.resize(node.children.size());
    for (size_t c = 0; c < node.children.size(); ++c) link(node, c);
    if (node.shared.empty()) {
      add_up(node);
    } else {
      group(i);
    }
    budget_.give(scratch);
  }

 private:
  void link(TreeNode& node, size_t c) {
    int child = node.children[c];
    Keys keys(nodes_[child].shared, axes_);
    std::vector<uint32_t>& at = node.links[c];
    at.resize(node.table.num_rows);
    bool all = true;
    keys.each_piece(node.table, budget_, [&](size_t start, const std::vector<uint64_t>& wanted) {
      for (size_t r = 0; r < wanted.size(); ++r) {
        at[start + r] = groups_[child]->find(wanted[r]);
        all &= at[start + r] != kNone;
      }
    });
    if (all) return;
    std::vector<uint32_t> kept;
    for (size_t r = 0; r < at.size(); ++r) {
      if (at[r] != kNone) kept.push_back(static_cast<uint32_t>(r));
    }
    // Links that are still empty belong to later children.
    reorder(node, kept, budget_);
  }

  // Number of solutions below a row.
  int64_t weight(const TreeNode& node, size_t row) const {
    int64_t product = 1;
    for (size_t c = 0; c < node.children.size(); ++c) {
      product = times(product, nodes_[node.children[c]].totals[node.links[c][row]]);
    }
    return product;
  }

  // The only group of a root.
  void add_up(TreeNode& node) {
    int64_t total = 0;
    in_pieces(node.table.num_rows, budget_, [&](size_t start, size_t end) {
      for (size_t r = start; r < end; ++r) {
        total += weight(node, r);
        if (total > kMaxMagnitude) throw Unsupported{};
      }
    });
    node.starts.clear();
    node.totals.clear();
    if (node.table.num_rows) node.starts.push_back(0), node.totals.push_back(total);
    node.starts.push_back(static_cast<uint32_t>(node.table.num_rows));
  }

  void group(size_t i) {
    TreeNode& node = nodes_[i];
    const size_t rows = node.table.num_rows;
    node.starts.clear();
    node.totals.clear();
    std::vector<uint64_t> distinct;
    Keys keys(node.shared, axes_);
    std::vector<uint64_t> of = keys.of(node.table, budget_);
    if (!std::is_sorted(of.begin(), of.end())) {
      const std::vector<uint32_t> order = rising(of, keys.bound(), budget_);
      reorder(node, order, budget_);
      of = taken(of, order, budget_);
    }
    in_pieces(rows, budget_, [&](size_t start, size_t end) {
      for (size_t r = start; r < end; ++r) {
        if (r == 0 || of[r] != of[r - 1]) {
          node.starts.push_back(static_cast<uint32_t>(r));
          node.totals.push_back(0);
          distinct.push_back(of[r]);
        }
        node.totals.back() += weight(node, r);
        if (node.totals.back() > kMaxMagnitude) throw Unsupported{};
      }
    });
    const int64_t places = keys.bound() <= kDense ? 4 * static_cast<int64_t>(keys.bound()) : 0;
    budget_.take(places + kGroupBytes * static_cast<int64_t>(distinct.size()), node.table.variables);
    groups_[i] = std::make_unique<Groups>(std::move(distinct), keys.bound());
    node.starts.push_back(static_cast<uint32_t>(rows));
  }

  std::vector<TreeNode>& nodes_;
  const std::vector<Axis>& axes_;
  Budget& budget_;
  std::vector<std::unique_ptr<Groups>> groups_;
};

// Hangs the tables on the largest one, so that its rows need neither sorting nor a lookup.
std::vector<TreeNode> linked(const std::vector<Bag>& bags, std::vector<Table>& tables) {
  size_t root = 0;
  for (size_t i = 1; i < tables.size(); ++i) {
    if (tables[i].num_rows > tables[root].num_rows) root = i;
  }
  struct Waiting {
    int bag, above, place;
  };
  std::vector<Waiting> waiting = {{static_cast<int>(root), -1, -1}};
  std::vector<TreeNode> nodes;
  for (size_t w = 0; w < waiting.size(); ++w) {
    auto [bag, above, place] = waiting[w];
    TreeNode node;
    node.parent = place;
    if (above >= 0) {
      Set common = bags[bag].variables & bags[above].variables;
      for (int v : tables[bag].variables) {
        if (common[v]) node.shared.push_back(v);
      }
    }
    if (place >= 0) nodes[place].children.push_back(static_cast<int>(nodes.size()));
    std::vector<int> beside = bags[bag].children;
    if (bags[bag].parent >= 0) beside.push_back(bags[bag].parent);
    for (int other : beside) {
      if (other != above) waiting.push_back({other, bag, static_cast<int>(nodes.size())});
    }
    node.table = std::move(tables[bag]);
    nodes.push_back(std::move(node));
  }
  return nodes;
}

bool tree_part(const Model& model, const Prepared& prepared, const std::vector<int>& variables, Way way,
               Budget& budget, Part& part) {
  Set mine;
  for (int v : variables) mine.set(v);
  std::vector<int> checks;
  std::vector<Set> scopes;
  for (size_t i = 0; i < prepared.checks.size(); ++i) {
    if ((prepared.scopes[i] & mine).none()) continue;
    checks.push_back(prepared.checks[i]);
    scopes.push_back(prepared.scopes[i]);
  }
  double product = 1;
  std::vector<double> sizes(kMaxVariables, 0);
  for (int v : variables) {
    product *= static_cast<double>(prepared.axes[v].values.size());
    sizes[v] = std::log(static_cast<double>(prepared.axes[v].values.size()));
  }
  const bool whole = std::find(scopes.begin(), scopes.end(), mine) != scopes.end();
  std::vector<Bag> bags = whole || product <= kOneTable ? std::vector<Bag>{{mine, -1, {}}} : tree(variables, scopes, sizes);
  Listed listed = list_component(model, prepared, variables, checks, scopes, std::move(bags), way, budget);
  if (!listed.feasible) return false;
  if (listed.diagram) {
    part.diagram = std::move(listed.diagram);
    try {
      part.count = part.diagram->paths()[0][0];
    } catch (const Unsupported&) {
      part.count = -1;
    }
    return true;
  }
  part.nodes = linked(listed.bags, listed.tables);
  Counter counter(part.nodes, prepared.axes, budget);
  for (size_t i = part.nodes.size(); i-- > 0;) counter.count(i);
  part.count = part.nodes[0].totals.empty() ? 0 : part.nodes[0].totals[0];
  return part.count > 0;
}

}  // namespace

int64_t bytes_to_count(const std::vector<Bag>& bags, const std::vector<Table>& tables, const std::vector<Axis>& axes) {
  size_t root = 0;
  for (size_t i = 1; i < tables.size(); ++i) {
    if (tables[i].num_rows > tables[root].num_rows) root = i;
  }
  int64_t kept = 0, scratch = 0;
  for (size_t i = 0; i < tables.size(); ++i) {
    const int64_t rows = static_cast<int64_t>(tables[i].num_rows);
    const int64_t beside = static_cast<int64_t>(bags[i].children.size()) + (bags[i].parent >= 0 ? 1 : 0);
    kept += kLinkBytes * rows * (i == root ? beside : beside - 1);
    if (i != root) kept += kGroupBytes * rows, scratch = std::max(scratch, kKeyBytes * rows);
    if (bags[i].parent < 0) continue;
    // The groups at an edge are numbered by what its two tables share, whichever of them is above.
    uint64_t bound = 1;
    const Set shared = bags[i].variables & bags[static_cast<size_t>(bags[i].parent)].variables;
    for (size_t v = 0; v < axes.size() && bound <= kDense; ++v) {
      if (shared[v]) bound *= axes[v].values.size();
    }
    if (bound <= kDense) kept += 4 * static_cast<int64_t>(bound);
  }
  return kept + scratch;
}

Space enumerate(const Model& model, Budget& budget, Way way) {
  Prepared prepared = prepare(model, budget);
  Space space;
  space.feasible = prepared.feasible;
  if (space.feasible) {
    for (const std::vector<int>& group : components(model, prepared)) {
      Part part;
      if (!tree_part(model, prepared, group, way, budget, part)) {
        space.feasible = false;
        space.parts.clear();
        break;
      }
      space.parts.push_back(std::move(part));
    }
  }
  if (space.feasible) {
    Set linked;
    for (const Set& scope : prepared.scopes) linked |= scope;
    for (size_t v = 0; v < model.domains.size(); ++v) {
      if (prepared.fixed[v] || linked[v]) continue;
      Part part;
      part.free = static_cast<int>(v);
      part.count = static_cast<int64_t>(prepared.axes[v].values.size());
      space.parts.push_back(std::move(part));
    }
    std::stable_sort(space.parts.begin(), space.parts.end(), [](const Part& a, const Part& b) { return a.count < b.count; });
  }
  space.axes = std::move(prepared.axes);
  space.fixed = prepared.fixed;
  return space;
}

}  // namespace constrint
