#include "listing.hpp"

#include <algorithm>

#include "search.hpp"

namespace constrint {

namespace {

// Groups with at most this many combinations are listed straight away.
constexpr double kFewCells = 1 << 17;
// Attempts grow from round to round: combinations of the tables, decisions of the search, arcs of the diagram.
constexpr int kRounds = 3;
constexpr double kFirstCells = 1 << 19;
constexpr int64_t kFirstDecisions = 1 << 10;
constexpr size_t kFirstArcs = 1 << 15, kManyArcs = 1 << 20;
constexpr int kGrowth = 3, kArcGrowth = 4;
// Tables of more cells than these wait for a longer search, and for all rounds.
constexpr double kManyCells = 1 << 22, kMostCells = 1 << 26, kHopeless = 1e15;
constexpr size_t kManyVariables = 8;
// The attempts before all others.
constexpr int64_t kGlance = 1 << 7;
constexpr size_t kGlanceArcs = 1 << 12;
constexpr size_t kMostArcs = size_t{1} << 24;
// A table's cell is worth about a quarter of a unit of work of the search.
constexpr double kCellsPerStep = 4;
// A search that would list more rows than this, by its progress, is the last resort.
constexpr double kManyRows = 1 << 22;
// Arcs are tried as long as there may be some for each in a limit, and as the cells of all tables would take longer.
constexpr double kTries = 8, kCellsPerTry = 40, kCellsPerArc = 256;
constexpr int64_t kFewTries = 1 << 14;
constexpr double kNoEnd = 1e18;
constexpr double kLittle = 1e-12;
// A sum over fewer variables is as well listed, unless there are very many combinations.
constexpr size_t kManyTerms = 8, kSomeTerms = 2;
constexpr double kSomeCells = 1 << 20;
// Among more cells a diagram waits for the search.
constexpr double kFarTooMany = 3e11;

class Component {
 public:
  Component(const Model& model, const Prepared& prepared, const std::vector<int>& variables,
            const std::vector<int>& checks, const std::vector<Set>& scopes, std::vector<Bag> bags, Budget& budget)
      : model_(model), prepared_(prepared), variables_(variables), checks_(checks), scopes_(scopes), budget_(budget) {
    listed_.bags = std::move(bags);
    for (const Bag& bag : listed_.bags) {
      double cells = 1;
      for (int v : variables) {
        if (bag.variables[v]) cells *= static_cast<double>(prepared.axes[v].values.size());
      }
      most_cells_ = std::max(most_cells_, cells);
      all_cells_ += cells;
    }
  }

  Listed run(Way way) {
    way_ = way;
    if (way == Way::kTables || (way == Way::kChosen && most_cells_ <= kFewCells)) {
      list_tables();
    } else if (way == Way::kSearch) {
      search(INT64_MAX);
    } else if (way == Way::kDiagram) {
      if (!draw(kMostArcs)) throw Unsupported{};
    } else {
      choose();
    }
    return std::move(listed_);
  }

 private:
  void choose() {
    const DiagramSize size = size_of_diagram(model_, prepared_, variables_);
    const bool sums = size.most_terms >= kManyTerms;
    if (sums && size.most_arcs <= kManyArcs && draw(kManyArcs)) return;
    // Room for the rows of many variables takes longer than a glance.
    const bool hopeless = sums && all_cells_ > kHopeless;
    if ((sums && draw(kGlanceArcs)) || (!hopeless && tables_within(kFewCells)) || search(kGlance)) return;
    // The upper bound on the tables' cost may be below the remaining work of the search. Among many variables that work is
    // not known after a glance, so many cells are not begun by that.
    const bool vague = variables_.size() >= kManyVariables && all_cells_ > kManyCells;
    if (vague && ((sums && draw(kFirstArcs)) || search(kFirstDecisions) || (sums && draw(kManyArcs)))) return;
    const bool products = !sums && all_cells_ > kSomeCells && size.most_terms >= kSomeTerms;
    if (products && (vague || all_cells_ < kFarTooMany) && draw(arcs_for_cells())) return;
    const bool later = vague && all_cells_ > kMostCells;
    if (all_cells_ < kCellsPerStep * steps_left() && !later && tables_within(kNoEnd)) return;
    double cells = kFirstCells;
    int64_t decisions = kFirstDecisions;
    size_t arcs = kFirstArcs;
    for (int round = 0; round < kRounds; ++round) {
      if ((sums || products) && draw(arcs)) return;
      if ((!hopeless && tables_within(std::min(cells, kCellsPerStep * steps_left()))) || search(decisions)) return;
      cells *= 1 << kGrowth;
      decisions <<= kGrowth;
      arcs <<= kArcGrowth;
    }
    by_estimate(sums);
  }

  // More arcs where the tables would take longer.
  size_t arcs_for_cells() const {
    return static_cast<size_t>(std::clamp(all_cells_ / kCellsPerArc, 1.0 * kManyArcs, 8.0 * kManyArcs));
  }

  // Work that the search still has to do, by the part of its tree that is behind it: by all its work so far or by that of
  // its last attempt, whichever went more slowly. A first decision may leave half of the tree behind it at once.
  double steps_left() const {
    const double behind = search_->progress(), before = progress_before_;
    const double all = static_cast<double>(steps_) / std::max(behind, kLittle);
    const double last = static_cast<double>(steps_ - steps_before_) / std::max(behind - before, kLittle);
    return std::max(all, last) * (1 - behind);
  }

  void by_estimate(bool sums) {
    double rows = static_cast<double>(rows_.num_rows) / std::max(search_->progress(), kLittle);
    bool many = rows > std::min(kManyRows, static_cast<double>(budget_.max_rows));
    if (tables_within(many ? kNoEnd : kCellsPerStep / 2 * steps_left())) return;
    if (sums && draw(std::min(kMostArcs, static_cast<size_t>(budget_.max_rows)))) return;
    search(INT64_MAX);
  }

  void list_tables() {
    for (const Bag& bag : listed_.bags) {
      std::vector<int> members, inside;
      for (int v : variables_) {
        if (bag.variables[v]) members.push_back(v);
      }
      for (size_t i = 0; i < checks_.size(); ++i) {
        if ((scopes_[i] & ~bag.variables).none()) inside.push_back(checks_[i]);
      }
      listed_.tables.push_back(build_table(model_, members, inside, prepared_.axes, prepared_.bounds, budget_));
      if (listed_.tables.back().num_rows == 0) {
        listed_.feasible = false;
        return;
      }
    }
    // Where the tables leave no room to count them, another way may still do.
    Held counting(budget_, variables_);
    counting.take(bytes_to_count(listed_.bags, listed_.tables, prepared_.axes));
  }

  // Lists the tables if that takes at most `cells` cells.
  bool tables_within(double cells) {
    if (too_large_) return false;
    int64_t all = budget_.max_cells, bytes = budget_.bytes;
    if (static_cast<double>(all - budget_.cells) > cells) budget_.max_cells = budget_.cells + static_cast<int64_t>(cells);
    try {
      list_tables();
    } catch (const LimitReached& limit) {
      bool final = limit.what == Limit::kStopped || (limit.what == Limit::kCells && limit.number > all);
      budget_.max_cells = all;
      budget_.bytes = bytes;
      listed_.tables.clear();
      if (final) throw;
      // They would end in the same place again.
      too_large_ |= limit.what != Limit::kCells;
      return false;
    }
    budget_.max_cells = all;
    drop_rows();
    return true;
  }

  // Continues the search; true where it is complete within `decisions` decisions.
  bool search(int64_t decisions) {
    if (!search_) {
      search_ = std::make_unique<DepthFirst>(model_, prepared_, variables_, DepthFirst::Order::kSmallest);
      rows_.variables = variables_;
      rows_.columns.resize(variables_.size());
    }
    steps_before_ = steps_;
    progress_before_ = search_->progress();
    int64_t last = decisions > INT64_MAX - search_->decisions() ? INT64_MAX : search_->decisions() + decisions;
    int64_t before = budget_.cells;
    for (;;) {
      DepthFirst::Outcome outcome = search_->next(budget_, last - search_->decisions());
      if (outcome != DepthFirst::Outcome::kSolution) {
        steps_ += budget_.cells - before;
        if (outcome == DepthFirst::Outcome::kPaused) return false;
        break;
      }
      budget_.add_rows(rows_, 1);
      for (size_t i = 0; i < variables_.size(); ++i) rows_.columns[i].push_back(static_cast<uint16_t>(search_->positions()[i]));
    }
    Set mine;
    for (int v : variables_) mine.set(v);
    listed_.bags = {{mine, -1, {}}};
    listed_.feasible = rows_.num_rows > 0;
    listed_.tables.clear();
    listed_.tables.push_back(std::move(rows_));
    return true;
  }

  bool draw(size_t max_arcs) {
    auto diagram = std::make_unique<Diagram>();
    const double tries = std::min(kTries * static_cast<double>(max_arcs), all_cells_ / kCellsPerTry);
    try {
      if (!build_diagram(model_, prepared_, variables_, max_arcs, std::max(kFewTries, static_cast<int64_t>(tries)), budget_,
                         diagram.get())) {
        return false;
      }
      // It stays while the paths through it are counted.
      budget_.take(diagram->bytes_to_count(), variables_);
    } catch (const LimitReached& limit) {
      if (limit.what != Limit::kBytes) throw;
      if (way_ == Way::kDiagram) throw;
      return false;
    }
    listed_.feasible = diagram->layers[0].num_states > 0;
    listed_.diagram = std::move(diagram);
    drop_rows();
    return true;
  }

  void drop_rows() {
    if (!rows_.columns.empty()) {
      budget_.give(static_cast<int64_t>(rows_.columns[0].capacity() * rows_.columns.size() * sizeof(uint16_t)));
    }
    rows_ = Table();
    search_.reset();
  }

  const Model& model_;
  const Prepared& prepared_;
  const std::vector<int>& variables_;
  const std::vector<int>& checks_;
  const std::vector<Set>& scopes_;
  Budget& budget_;
  Listed listed_;
  double most_cells_ = 0, all_cells_ = 0;
  std::unique_ptr<DepthFirst> search_;
  Table rows_;
  // Whether the tables have too many rows or bytes.
  bool too_large_ = false;
  Way way_ = Way::kChosen;
  int64_t steps_ = 0;
  // At the start of the last attempt.
  int64_t steps_before_ = 0;
  double progress_before_ = 0;
};

}  // namespace

Listed list_component(const Model& model, const Prepared& prepared, const std::vector<int>& variables,
                      const std::vector<int>& checks, const std::vector<Set>& scopes, std::vector<Bag> bags, Way way,
                      Budget& budget) {
  return Component(model, prepared, variables, checks, scopes, std::move(bags), budget).run(way);
}

}  // namespace constrint
