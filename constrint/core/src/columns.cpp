// Lists a factored space as columns of values, each in the smallest signed type: trees are joined some thousands of
// rows at a time, so that what lies in between stays in the cache.
#include <algorithm>
#include <cstring>

#include "diagram.hpp"
#include "runs.hpp"
#include "space.hpp"

namespace constrint {

namespace {

constexpr int64_t kPieceRows = 1 << 13;

// Repeats the first `bytes` bytes until `total` bytes are filled.
void replicate(char* out, size_t bytes, size_t total, Budget& budget) {
  constexpr size_t kMost = size_t{1} << 20;
  for (size_t done = bytes; done < total;) {
    size_t from = done % bytes, more = std::min({done - from, total - done, kMost});
    std::memcpy(out + done, out + from, more);
    budget.tick(static_cast<int64_t>(more / 8));
    done += more;
  }
}

// The rows of every table below some rows of the root, one index per solution.
class Join {
 public:
  explicit Join(const Part& part) : nodes_(part.nodes), rows_(part.nodes.size()) {
    visit(0);
  }

  void run(uint32_t first, uint32_t last) {
    rows_[0].resize(last - first);
    for (uint32_t i = 0; i < last - first; ++i) rows_[0][i] = first + i;
    for (size_t o = 1; o < order_.size(); ++o) extend(o);
  }
  const std::vector<uint32_t>& rows(size_t node) const { return rows_[node]; }

 private:
  void visit(int node) {
    order_.push_back(node);
    for (int child : nodes_[node].children) visit(child);
  }
  bool is_single(int node) const { return nodes_[node].totals.size() == nodes_[node].table.num_rows; }

  void extend(size_t o) {
    int child = order_[o];
    const TreeNode& node = nodes_[child];
    const TreeNode& parent = nodes_[node.parent];
    size_t c = static_cast<size_t>(std::find(parent.children.begin(), parent.children.end(), child) -
                                   parent.children.begin());
    const std::vector<uint32_t>& link = parent.links[c];
    const std::vector<uint32_t>& above = rows_[node.parent];
    size_t before = above.size();
    std::vector<uint32_t>& mine = rows_[child];
    if (is_single(child)) {
      mine.resize(before);
      for (size_t t = 0; t < before; ++t) mine[t] = link[above[t]];
      return;
    }
    lengths_.resize(before);
    size_t total = 0;
    for (size_t t = 0; t < before; ++t) total += lengths_[t] = node.starts[link[above[t]] + 1] - node.starts[link[above[t]]];
    mine.resize(total);
    uint32_t* out = mine.data();
    for (size_t t = 0; t < before; ++t) {
      const uint32_t start = node.starts[link[above[t]]];
      for (uint32_t k = 0; k < lengths_[t]; ++k) *out++ = start + k;
    }
    for (size_t p = 0; p < o; ++p) {
      std::vector<uint32_t>& rows = rows_[order_[p]];
      std::vector<uint32_t> repeated(total + kStore);
      write_equal(lengths_.data(), before, repeated.data(), repeated.data() + total, [&](size_t t) { return rows[t]; });
      repeated.resize(total);
      rows = std::move(repeated);
    }
  }

  const std::vector<TreeNode>& nodes_;
  std::vector<int> order_;
  std::vector<std::vector<uint32_t>> rows_;
  std::vector<uint32_t> lengths_;
};

// Writes a value many times.
template <typename T>
T* filled(T* out, int64_t count, T value, Budget& budget) {
  in_pieces(static_cast<size_t>(count), budget, [&](size_t start, size_t end) { std::fill(out + start, out + end, value); });
  return out + count;
}

struct Column {
  int variable;
  size_t node;
  // The values of every row of the node's table.
  std::vector<char> values;
};

std::vector<Column> columns_of(const Space& space, const Part& part, Budget& budget) {
  std::vector<Column> columns;
  Set seen;
  for (size_t i = 0; i < part.nodes.size(); ++i) {
    const Table& table = part.nodes[i].table;
    for (size_t c = 0; c < table.variables.size(); ++c) {
      int v = table.variables[c];
      if (seen[v]) continue;
      seen.set(v);
      const Axis& axis = space.axes[v];
      Column column{v, i, std::vector<char>(table.num_rows * value_bytes(axis))};
      with_type(value_bytes(axis), [&](auto type) {
        using T = decltype(type);
        const std::vector<T> values(axis.values.begin(), axis.values.end());
        T* out = reinterpret_cast<T*>(column.values.data());
        in_pieces(table.num_rows, budget, [&](size_t start, size_t end) {
          for (size_t r = start; r < end; ++r) out[r] = values[table.columns[c][r]];
        });
      });
      columns.push_back(std::move(column));
    }
  }
  return columns;
}

// Writes `count` values of one column, each `inner` times, from row `done` on; `at` maps rows where it is given.
void write(const Column& column, int bytes, const uint32_t* at, int64_t count, int64_t done, int64_t inner, char* out,
           Budget& budget) {
  with_type(bytes, [&](auto type) {
    using T = decltype(type);
    const T* values = reinterpret_cast<const T*>(column.values.data());
    T* to = reinterpret_cast<T*>(out) + done * inner;
    if (inner == 1) {
      in_pieces(static_cast<size_t>(count), budget, [&](size_t start, size_t end) {
        if (at) {
          for (size_t t = start; t < end; ++t) to[t] = values[at[t]];
        } else {
          std::memcpy(to + start, values + done + static_cast<int64_t>(start), (end - start) * sizeof(T));
        }
      });
      return;
    }
    for (int64_t t = 0; t < count; ++t) to = filled(to, inner, values[at ? at[t] : done + t], budget);
  });
}

void list_tree(const Space& space, const Part& part, int64_t inner, const std::vector<char*>& out, Budget& budget) {
  const Table& root = part.nodes[0].table;
  const std::vector<Column> columns = columns_of(space, part, budget);
  if (part.nodes.size() == 1) {
    for (const Column& column : columns) {
      write(column, value_bytes(space.axes[column.variable]), nullptr, part.count, 0, inner, out[column.variable], budget);
    }
    return;
  }
  Join join(part);
  const int64_t num_rows = static_cast<int64_t>(root.num_rows), step = std::max<int64_t>(1, kPieceRows * num_rows / part.count);
  int64_t done = 0;
  for (int64_t start = 0; start < num_rows; start += step) {
    budget.tick(kPieceRows * static_cast<int64_t>(part.nodes.size()));
    join.run(static_cast<uint32_t>(start), static_cast<uint32_t>(std::min(start + step, num_rows)));
    const int64_t count = static_cast<int64_t>(join.rows(0).size());
    for (const Column& column : columns) {
      write(column, value_bytes(space.axes[column.variable]), join.rows(column.node).data(), count, done, inner, out[column.variable], budget);
    }
    done += count;
  }
}

}  // namespace

int value_bytes(const Axis& axis) {
  Interval range = axis.bounds();
  for (int bytes : {1, 2, 4}) {
    int64_t limit = int64_t{1} << (8 * bytes - 1);
    if (range.lower >= -limit && range.upper < limit) return bytes;
  }
  return 8;
}

int64_t total_of(const Space& space) {
  __int128 total = space.feasible ? 1 : 0;
  for (const Part& part : space.parts) {
    total *= part.count;
    if (total > kMaxMagnitude) throw Unsupported{};
  }
  return static_cast<int64_t>(total);
}

void list_columns(const Space& space, int64_t rows, const std::vector<char*>& columns, Budget& budget) {
  int64_t outer = 1, inner = rows;
  for (const Part& part : space.parts) {
    inner /= part.count;
    std::vector<int> variables;
    if (part.free >= 0) {
      variables = {part.free};
      const Axis& axis = space.axes[part.free];
      with_type(value_bytes(axis), [&](auto type) {
        using T = decltype(type);
        T* out = reinterpret_cast<T*>(columns[part.free]);
        for (int64_t value : axis.values) out = filled(out, inner, static_cast<T>(value), budget);
      });
    } else if (part.diagram) {
      for (const Layer& layer : part.diagram->layers) variables.push_back(layer.variable);
      list_paths(*part.diagram, space.axes, inner, columns);
    } else {
      Set mine;
      for (const TreeNode& node : part.nodes) {
        for (int v : node.table.variables) {
          if (!mine[v]) variables.push_back(v);
          mine.set(v);
        }
      }
      list_tree(space, part, inner, columns, budget);
    }
    for (int v : variables) {
      size_t bytes = static_cast<size_t>(part.count * inner) * value_bytes(space.axes[v]);
      replicate(columns[v], bytes, bytes * static_cast<size_t>(outer), budget);
    }
    outer *= part.count;
  }
  for (size_t v = 0; v < space.axes.size(); ++v) {
    if (!space.fixed[v]) continue;
    with_type(value_bytes(space.axes[v]), [&](auto type) {
      using T = decltype(type);
      filled(reinterpret_cast<T*>(columns[v]), rows, static_cast<T>(space.axes[v].values[0]), budget);
    });
  }
}

}  // namespace constrint
