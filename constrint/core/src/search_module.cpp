// The Python side of the search for the best solutions, and of walks that only count; included after module.cpp, whose
// terms it uses.
#include <memory>

#include "search.hpp"

namespace constrint {
namespace {

// A search with its model. Parts of the problem that share nothing with the objectives are solved first.
struct BestSearch {
  Model model;
  Prepared prepared;
  std::vector<std::unique_ptr<DepthFirst>> apart;
  std::unique_ptr<DepthFirst> main;
  size_t num_apart_done = 0;
  bool feasible = true, done = false;
  std::atomic<int> users{0};
};
template <>
struct CapsuleName<BestSearch> {
  static constexpr const char* value = "constrint.BestSearch";
};

std::vector<Goal> goals_of(Model& model, PyObject* goals) {
  if (!is_list(goals)) throw Unsupported{};
  std::vector<Goal> found;
  for (Py_ssize_t i = 0; i < length(goals); ++i) {
    PyObject* goal = item(goals, i);
    if (!is_list(goal) || length(goal) != 2) throw Unsupported{};
    int expression = number_of_code(model, integers(item(goal, 0)));
    int maximise = PyObject_IsTrue(item(goal, 1));
    if (maximise < 0) throw PythonError{};
    found.push_back({expression, maximise != 0});
  }
  return found;
}

PyObject* best_search(PyObject*, PyObject* args) {
  PyObject *object, *goals, *hints, *poll;
  long long num_best, cells;
  if (!PyArg_ParseTuple(args, "OOLOLO", &object, &goals, &num_best, &hints, &cells, &poll)) return nullptr;
  return guarded([&]() -> PyObject* {
    if (num_best < 1 || !is_list(hints)) throw Unsupported{};
    auto made = std::make_unique<BestSearch>();
    SharedModel& shared = held<SharedModel>(object);
    Use together(shared.readers, kManyUsers);
    // Objectives are no part of the problem: they are added to a copy.
    made->model = shared.model;
    std::vector<Goal> wanted = goals_of(made->model, goals);
    std::vector<Choice> tried = choices_of(hints, made->model);
    Allowance allowance(cells, 0, 0, poll);
    Budget& budget = allowance.budget;
    allowance.run([&] {
      made->prepared = prepare(made->model, budget);
      made->feasible = made->prepared.feasible;
      if (made->feasible) {
        Set mine;
        for (const Goal& goal : wanted) mine |= made->model.nodes[goal.expression].variables;
        mine &= ~made->prepared.fixed;
        for (const std::vector<int>& group : components(made->model, made->prepared)) {
          bool touched = num_best > 1;
          for (int v : group) touched |= mine[v];
          for (int v : group) {
            if (touched) mine.set(v);
          }
          if (touched) continue;
          made->apart.push_back(std::make_unique<DepthFirst>(made->model, made->prepared, group, DepthFirst::Order::kSmallest,
                                                         std::vector<Goal>{}, 1, tried));
        }
        std::vector<int> variables;
        for (int v = 0; v < static_cast<int>(made->model.domains.size()); ++v) {
          if (mine[v] || (num_best > 1 && !made->prepared.fixed[v])) variables.push_back(v);
        }
        made->main = std::make_unique<DepthFirst>(made->model, made->prepared, variables, DepthFirst::Order::kSmallest, wanted,
                                              static_cast<size_t>(num_best), tried);
      }
    });
    return capsule(std::move(made));
  });
}

// True where the search came to its end, False where it used up its decisions.
PyObject* best_run(PyObject*, PyObject* args) {
  PyObject *object, *poll;
  long long cells, decisions;
  if (!PyArg_ParseTuple(args, "OLLO", &object, &cells, &decisions, &poll)) return nullptr;
  return guarded([&]() -> PyObject* {
    BestSearch& search = held<BestSearch>(object);
    Use alone(search.users, 1);
    Allowance allowance(cells, 0, 0, poll);
    Budget& budget = allowance.budget;
    allowance.run([&] {
      for (; search.feasible && search.num_apart_done < search.apart.size(); ++search.num_apart_done) {
        DepthFirst::Outcome outcome = search.apart[search.num_apart_done]->next(budget, decisions);
        if (outcome == DepthFirst::Outcome::kPaused) break;
        search.feasible = outcome == DepthFirst::Outcome::kSolution;
      }
      bool paused = search.feasible && search.num_apart_done < search.apart.size();
      int64_t last = search.main ? search.main->decisions() + decisions : 0;
      while (search.feasible && !paused && !search.done) {
        DepthFirst::Outcome outcome = search.main->next(budget, last - search.main->decisions());
        paused = outcome == DepthFirst::Outcome::kPaused;
        search.done = outcome == DepthFirst::Outcome::kDone;
      }
      search.done |= !search.feasible;
    });
    return PyBool_FromLong(search.done);
  });
}

// Makes a search look for solutions that are better than one with these costs.
PyObject* best_below(PyObject*, PyObject* args) {
  PyObject *object, *costs;
  if (!PyArg_ParseTuple(args, "OO", &object, &costs)) return nullptr;
  return guarded([&]() -> PyObject* {
    BestSearch& search = held<BestSearch>(object);
    Use alone(search.users, 1);
    if (search.main) search.main->below(integers(costs));
    return PyBool_FromLong(search.main != nullptr);
  });
}

// The best solutions so far (a value of every variable), a bound on the first objective's cost, decisions, and whether
// some objective had no value in a solution.
PyObject* best_state(PyObject*, PyObject* args) {
  PyObject* object;
  if (!PyArg_ParseTuple(args, "O", &object)) return nullptr;
  return guarded([&]() -> PyObject* {
    BestSearch& search = held<BestSearch>(object);
    Use alone(search.users, 1);
    Ref solutions(PyList_New(0));
    long long decisions = 0, bound = 0;
    bool undefined = false;
    if (search.main) {
      std::vector<int> places(search.prepared.axes.size(), 0);
      for (size_t i = 0; i < search.num_apart_done; ++i) {
        const DepthFirst& apart = *search.apart[i];
        for (size_t k = 0; k < apart.variables().size(); ++k) places[apart.variables()[k]] = apart.positions()[k];
        decisions += apart.decisions();
      }
      if (search.feasible && search.num_apart_done == search.apart.size()) {
        for (const DepthFirst::Found& found : search.main->best()) {
          for (size_t k = 0; k < found.positions.size(); ++k) places[search.main->variables()[k]] = found.positions[k];
          Ref values(PyList_New(0));
          for (size_t v = 0; v < places.size(); ++v) {
            Ref value(PyLong_FromLongLong(search.prepared.axes[v].values[places[v]]));
            if (PyList_Append(values.get(), value.get())) throw PythonError{};
          }
          if (PyList_Append(solutions.get(), values.get())) throw PythonError{};
        }
      }
      decisions += search.main->decisions();
      bound = search.main->bound();
      undefined = search.main->saw_undefined();
    }
    return Py_BuildValue("(OLLO)", solutions.get(), bound, decisions, undefined ? Py_True : Py_False);
  });
}

// Lists a model in the given way, independently of the choice of `enumerate`.
PyObject* enumerate_by(PyObject*, PyObject* args) {
  PyObject* model;
  int way;
  if (!PyArg_ParseTuple(args, "Oi", &model, &way)) return nullptr;
  return guarded([&]() -> PyObject* {
    if (way < 0 || way > static_cast<int>(Way::kDiagram)) throw Unsupported{};
    Allowance allowance(int64_t{1} << 40, int64_t{1} << 24, 0, Py_None);
    SharedModel& shared = held<SharedModel>(model);
    Use together(shared.readers, kManyUsers);
    auto space = allowance.run(
        [&] { return std::make_unique<Space>(enumerate(shared.model, allowance.budget, static_cast<Way>(way))); });
    return answer_of(std::move(space), allowance.budget);
  });
}

PyObject* walk_to_end(PyObject*, PyObject* args) {
  PyObject *object, *poll;
  long long which, cells;
  if (!PyArg_ParseTuple(args, "OLLO", &object, &which, &cells, &poll)) return nullptr;
  return guarded([&]() -> PyObject* {
    OneWalk one(object, which);
    Allowance allowance(cells, 0, 0, poll);
    allowance.run([&] {
      while (one.next(allowance, static_cast<size_t>(which))) {
      }
    });
    return Py_BuildValue("(sL)", "end", static_cast<long long>(allowance.budget.cells));
  });
}

PyObject* walk_state(PyObject*, PyObject* args) {
  PyObject* object;
  long long which;
  if (!PyArg_ParseTuple(args, "OL", &object, &which)) return nullptr;
  return guarded([&]() -> PyObject* {
    const OneWalk one(object, which);
    return Py_BuildValue("(Ld)", static_cast<long long>(one.walker->num_found()), one.walker->progress());
  });
}

PyObject* ring(PyObject*, PyObject*) {
  ++num_rings;
  Py_RETURN_NONE;
}

PyMethodDef search_methods[] = {
    {"ring", ring, METH_NOARGS, nullptr},
    {"enumerate_by", enumerate_by, METH_VARARGS, nullptr},
    {"best_search", best_search, METH_VARARGS, nullptr},
    {"best_run", best_run, METH_VARARGS, nullptr},
    {"best_below", best_below, METH_VARARGS, nullptr},
    {"best_state", best_state, METH_VARARGS, nullptr},
    {"walk_to_end", walk_to_end, METH_VARARGS, nullptr},
    {"walk_state", walk_state, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_search_functions(PyObject* module) { return PyModule_AddFunctions(module, search_methods); }

}  // namespace constrint
