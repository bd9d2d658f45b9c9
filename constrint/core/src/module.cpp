// The solver's functions of the compiled core. Every one answers None where the problem is not of the kind that the core
// takes; constrint/core/_core.pyi states the signatures.
#include "python.hpp"

#include "blocks.hpp"
#include "decode.hpp"
#include "diagram.hpp"
#include "reader.hpp"

namespace constrint {

// The functions of launches, in launch_table.cpp.
int add_launch_functions(PyObject* module);
// Those of the search for the best solutions, and of walks that only count, in search_module.cpp.
int add_search_functions(PyObject* module);

namespace {

bool is_name(std::string_view text) {
  if (text.empty() || (text[0] >= '0' && text[0] <= '9')) return false;
  for (char c : text) {
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_')) return false;
  }
  return true;
}

// The values in their order, each once.
void add_domain(Model& model, std::string_view name, PyObject* values) {
  std::vector<int64_t> listed = integers(values), distinct;
  if (listed.empty() || listed.size() > kMaxDomain || model.domains.size() == kMaxVariables) throw Unsupported{};
  bool rising = true;
  for (size_t i = 1; i < listed.size() && rising; ++i) rising = listed[i] > listed[i - 1];
  if (rising) {
    distinct = std::move(listed);
  } else {
    std::unordered_map<int64_t, bool> seen;
    for (int64_t v : listed) {
      if (seen.emplace(v, true).second) distinct.push_back(v);
    }
  }
  model.names.emplace_back(name);
  model.domains.push_back(std::move(distinct));
}

void require_code(Model& model, const std::vector<int64_t>& words) {
  int condition = Decoder(model, words).whole();
  if (!is_condition(model.nodes[condition].op)) throw Unsupported{};
  model.require(condition);
}

int number_of_code(Model& model, const std::vector<int64_t>& words) {
  int expression = Decoder(model, words).whole();
  if (is_condition(model.nodes[expression].op)) throw Unsupported{};
  return expression;
}

PyObject* numbers(const std::vector<int>& values) {
  Ref list(PyList_New(0));
  for (int v : values) {
    Ref number(PyLong_FromLong(v));
    if (PyList_Append(list.get(), number.get())) throw PythonError{};
  }
  return list.release();
}

PyObject* read(PyObject*, PyObject* args) {
  PyObject *params, *restrictions, *reserved;
  if (!PyArg_ParseTuple(args, "OOO", &params, &restrictions, &reserved)) return nullptr;
  return guarded([&]() -> PyObject* {
    if (!PyDict_CheckExact(params) || !is_list(restrictions) || !PyAnySet_CheckExact(reserved)) throw Unsupported{};
    auto shared = std::make_unique<SharedModel>();
    Model& model = shared->model;
    std::unordered_map<std::string, int> names;
    // Comparing names may run Python code, which must not change the list during iteration.
    Ref copied(PyDict_Copy(params));
    PyObject *key, *values;
    for (Py_ssize_t at = 0; PyDict_Next(copied.get(), &at, &key, &values);) {
      if (!PyUnicode_CheckExact(key)) throw Unsupported{};
      std::string_view name = text_of(key);
      int forbidden = PySet_Contains(reserved, key);
      if (forbidden < 0) throw PythonError{};
      // Restrictions that speak of another name are left to the Python reader.
      if (!forbidden && is_name(name)) names.emplace(name, static_cast<int>(model.domains.size()));
      add_domain(model, name, values);
    }
    if (model.domains.empty()) throw Unsupported{};
    std::vector<std::string> texts;
    for (Py_ssize_t i = 0; i < length(restrictions); ++i) texts.emplace_back(text_of(item(restrictions, i)));
    std::vector<int> left;
    Allowance allowance(kUnlimited, 0, 0, Py_None);
    allowance.run([&] {
      for (size_t i = 0; i < texts.size(); ++i) {
        allowance.budget.tick(64 * static_cast<int64_t>(texts[i].size() + 1));
        try {
          model.require(read_restriction(model, names, texts[i]));
        } catch (const Unsupported&) {
          left.push_back(static_cast<int>(i));
        }
      }
    });
    Ref unread(numbers(left)), made(capsule(std::move(shared)));
    return PyTuple_Pack(2, made.get(), unread.get());
  });
}

PyObject* build(PyObject*, PyObject* args) {
  PyObject *domains, *codes;
  if (!PyArg_ParseTuple(args, "OO", &domains, &codes)) return nullptr;
  return guarded([&]() -> PyObject* {
    if (!is_list(domains) || !is_list(codes)) throw Unsupported{};
    auto shared = std::make_unique<SharedModel>();
    for (Py_ssize_t i = 0; i < length(domains); ++i) add_domain(shared->model, {}, item(domains, i));
    if (shared->model.domains.empty()) throw Unsupported{};
    Allowance allowance(kUnlimited, 0, 0, Py_None);
    for (Py_ssize_t i = 0; i < length(codes); ++i) {
      std::vector<int64_t> words = integers(item(codes, i));
      allowance.budget.tick(64 * static_cast<int64_t>(words.size() + 1));
      require_code(shared->model, words);
    }
    return capsule(std::move(shared));
  });
}

PyObject* require(PyObject*, PyObject* args) {
  PyObject *model, *code;
  if (!PyArg_ParseTuple(args, "OO", &model, &code)) return nullptr;
  return guarded([&]() -> PyObject* {
    SharedModel& shared = held<SharedModel>(model);
    Use alone(shared.readers, 1);
    require_code(shared.model, integers(code));
    Py_RETURN_TRUE;
  });
}

// ("limit", what, number, variables); a signal's or a poll's exception instead, where there is one.
PyObject* limited(const LimitReached& limit) {
  if (limit.what == Limit::kStopped) return nullptr;
  static constexpr const char* kNames[] = {"cells", "rows", "bytes"};
  return guarded([&] {
    return Py_BuildValue("(ssLN)", "limit", kNames[static_cast<int>(limit.what)], static_cast<long long>(limit.number),
                         numbers(limit.variables));
  });
}

// Solutions of a part, exactly.
PyObject* count_of(const Part& part) {
  if (part.count >= 0) return PyLong_FromLongLong(part.count);
  std::string digits;
  const std::vector<uint32_t> words = part.diagram->num_paths();
  for (size_t i = words.size(); i-- > 0;) {
    for (int shift = 28; shift >= 0; shift -= 4) digits += "0123456789abcdef"[words[i] >> shift & 15];
  }
  return PyLong_FromString(digits.c_str(), nullptr, 16);
}

// ("space", space, solutions of each part, cells, rows, tables, bytes), or ("infeasible", cells).
PyObject* answer_of(std::unique_ptr<Space> space, const Budget& budget) {
  long long listed = 0, tables = 0;
  Ref counts(PyList_New(0));
  for (const Part& part : space->parts) {
    Ref count(count_of(part));
    if (PyList_Append(counts.get(), count.get())) throw PythonError{};
    for (const TreeNode& node : part.nodes) listed += static_cast<long long>(node.table.num_rows), ++tables;
    if (part.diagram) listed += static_cast<long long>(part.diagram->num_arcs), ++tables;
  }
  if (!space->feasible) return Py_BuildValue("(sL)", "infeasible", static_cast<long long>(budget.cells));
  Ref made(capsule(std::move(space)));
  return Py_BuildValue("(sOOLLLL)", "space", made.get(), counts.get(), static_cast<long long>(budget.cells), listed,
                       tables, static_cast<long long>(budget.bytes));
}

PyObject* enumerate_model(PyObject*, PyObject* args) {
  PyObject *model, *poll;
  long long cells, rows, bytes;
  if (!PyArg_ParseTuple(args, "OLLLO", &model, &cells, &rows, &bytes, &poll)) return nullptr;
  return guarded([&]() -> PyObject* {
    SharedModel& shared = held<SharedModel>(model);
    Use together(shared.readers, kManyUsers);
    Allowance allowance(cells, rows, bytes, poll);
    auto space = allowance.run([&] { return std::make_unique<Space>(enumerate(shared.model, allowance.budget)); });
    return answer_of(std::move(space), allowance.budget);
  });
}

PyObject* columns(PyObject*, PyObject* args) {
  PyObject* object;
  long long rows;
  if (!PyArg_ParseTuple(args, "OL", &object, &rows)) return nullptr;
  return guarded([&]() -> PyObject* {
    const Space& space = held<Space>(object);
    if (rows != total_of(space)) refuse(PyExc_ValueError, "the space has another number of solutions");
    if (rows > PY_SSIZE_T_MAX / 16) throw std::bad_alloc();
    std::vector<size_t> sizes;
    for (const Axis& axis : space.axes) sizes.push_back(static_cast<size_t>(rows * value_bytes(axis)));
    const Columns room(sizes);
    std::vector<char*> out;
    Ref list(PyList_New(0));
    for (size_t v = 0; v < sizes.size(); ++v) {
      out.push_back(room.data(v));
      Ref entry(Py_BuildValue("(iOn)", value_bytes(space.axes[v]), room.block(v), static_cast<Py_ssize_t>(room.offset(v))));
      if (PyList_Append(list.get(), entry.get())) throw PythonError{};
    }
    Allowance allowance(kUnlimited, 0, 0, Py_None);
    allowance.run([&] { list_columns(space, rows, out, allowance.budget); });
    return list.release();
  });
}

template <typename Values>
PyObject* bytes_of(const Values& values) {
  return PyByteArray_FromStringAndSize(reinterpret_cast<const char*>(values.data()),
                                       static_cast<Py_ssize_t>(values.size() * sizeof(values[0])));
}

// Per variable its values that are left (int64), and whether it is fixed.
PyObject* axes_of(const std::vector<Axis>& axes, const Set& fixed) {
  Ref list(PyList_New(0));
  for (size_t v = 0; v < axes.size(); ++v) {
    Ref values(bytes_of(axes[v].values));
    Ref entry(PyTuple_Pack(2, values.get(), fixed[v] ? Py_True : Py_False));
    if (PyList_Append(list.get(), entry.get())) throw PythonError{};
  }
  return list.release();
}

// Positions in the smallest unsigned type that holds every place on the axis.
PyObject* positions_of(const SlabVector<uint16_t>& column, const Axis& axis) {
  if (axis.values.size() > 256) return bytes_of(column);
  Ref made(PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(column.size())));
  char* out = PyByteArray_AsString(made.get());
  Allowance allowance(kUnlimited, 0, 0, Py_None);
  allowance.run([&] {
    in_pieces(column.size(), allowance.budget, [&](size_t start, size_t end) {
      for (size_t i = start; i < end; ++i) out[i] = static_cast<char>(column[i]);
    });
  });
  return made.release();
}

// A table: its own variables, their columns of positions, where its groups begin, and per table below it that table's
// place and the group of every row there.
PyObject* table_of(const std::vector<int>& variables, PyObject* columns, const std::vector<uint32_t>& starts, PyObject* links) {
  Ref own(numbers(variables)), begins(bytes_of(starts));
  return PyTuple_Pack(4, own.get(), columns, begins.get(), links);
}

template <typename Groups>
void add_link(const Ref& links, int child, const Groups& groups) {
  Ref bytes(bytes_of(groups)), entry(Py_BuildValue("(iO)", child, bytes.get()));
  if (PyList_Append(links.get(), entry.get())) throw PythonError{};
}

PyObject* tables_of(const Part& part, const std::vector<Axis>& axes) {
  Ref list(PyList_New(0));
  for (const TreeNode& node : part.nodes) {
    std::vector<int> own;
    Ref columns(PyList_New(0)), links(PyList_New(0));
    for (size_t c = 0; c < node.table.columns.size(); ++c) {
      const int v = node.table.variables[c];
      if (std::find(node.shared.begin(), node.shared.end(), v) != node.shared.end()) continue;
      own.push_back(v);
      Ref bytes(positions_of(node.table.columns[c], axes[v]));
      if (PyList_Append(columns.get(), bytes.get())) throw PythonError{};
    }
    for (size_t c = 0; c < node.children.size(); ++c) add_link(links, node.children[c], node.links[c]);
    Ref entry(table_of(own, columns.get(), node.starts, links.get()));
    if (PyList_Append(list.get(), entry.get())) throw PythonError{};
  }
  return list.release();
}

// A table for each layer: arcs are rows, and the states that they leave are groups.
PyObject* layers_of(const Diagram& diagram, const std::vector<Axis>& axes) {
  Ref list(PyList_New(0));
  for (size_t level = 0; level < diagram.layers.size(); ++level) {
    const Layer& layer = diagram.layers[level];
    Ref columns(PyList_New(0)), links(PyList_New(0)), places(positions_of(layer.places, axes[layer.variable]));
    if (PyList_Append(columns.get(), places.get())) throw PythonError{};
    if (level + 1 < diagram.layers.size()) add_link(links, static_cast<int>(level) + 1, layer.to);
    Ref entry(table_of({layer.variable}, columns.get(), layer.starts(), links.get()));
    if (PyList_Append(list.get(), entry.get())) throw PythonError{};
  }
  return list.release();
}

PyObject* part_of(const Part& part, const std::vector<Axis>& axes) {
  if (part.free >= 0) return PyLong_FromLong(part.free);
  return part.diagram ? layers_of(*part.diagram, axes) : tables_of(part, axes);
}

PyObject* factors(PyObject*, PyObject* args) {
  PyObject* object;
  if (!PyArg_ParseTuple(args, "O", &object)) return nullptr;
  return guarded([&]() -> PyObject* {
    const Space& space = held<Space>(object);
    Ref axes(axes_of(space.axes, space.fixed)), parts(PyList_New(0));
    for (const Part& part : space.parts) {
      Ref entry(part_of(part, space.axes));
      if (PyList_Append(parts.get(), entry.get())) throw PythonError{};
    }
    return PyTuple_Pack(2, axes.get(), parts.get());
  });
}

// Pairs of a variable and its value.
std::vector<Choice> choices_of(PyObject* pairs, const Model& model) {
  if (!is_list(pairs)) throw Unsupported{};
  std::vector<Choice> choices;
  for (Py_ssize_t i = 0; i < length(pairs); ++i) {
    std::vector<int64_t> pair = integers(item(pairs, i));
    if (pair.size() != 2 || pair[0] < 0 || pair[0] >= static_cast<int64_t>(model.domains.size())) throw Unsupported{};
    choices.push_back({static_cast<int>(pair[0]), pair[1]});
  }
  return choices;
}

PyObject* walk(PyObject*, PyObject* args) {
  PyObject *object, *poll;
  long long cells;
  if (!PyArg_ParseTuple(args, "OLO", &object, &cells, &poll)) return nullptr;
  return guarded([&]() -> PyObject* {
    SharedModel& shared = held<SharedModel>(object);
    Use together(shared.readers, kManyUsers);
    const Model& model = shared.model;
    Allowance allowance(cells, 0, 0, poll);
    Prepared prepared = allowance.run([&] { return prepare(model, allowance.budget); });
    if (!prepared.feasible) return Py_BuildValue("(s)", "infeasible");
    std::unique_ptr<Walk> made(new Walk{object, std::move(prepared), {}, {}});
    Py_INCREF(object);
    std::vector<std::vector<int>> found = allowance.run([&] {
      std::vector<std::vector<int>> members = components(model, made->prepared);
      for (const std::vector<int>& group : members) {
        allowance.budget.tick(static_cast<int64_t>(64 * model.nodes.size()));
        made->walkers.push_back(std::make_unique<DepthFirst>(model, made->prepared, group, DepthFirst::Order::kDeclared));
      }
      return members;
    });
    made->broken.resize(found.size(), false);
    Ref groups(PyList_New(0));
    for (const std::vector<int>& group : found) {
      Ref members(numbers(group));
      if (PyList_Append(groups.get(), members.get())) throw PythonError{};
    }
    Ref axes(axes_of(made->prepared.axes, made->prepared.fixed));
    Ref held_walk(capsule(std::move(made)));
    return Py_BuildValue("(sOOO)", "walk", held_walk.get(), groups.get(), axes.get());
  });
}

// The walk over one component, with the objects that it borrows.
struct OneWalk {
  OneWalk(PyObject* object, long long which)
      : walk(held<Walk>(object)), alone(walk.users, 1), together(held<SharedModel>(walk.model_capsule).readers, kManyUsers) {
    if (which < 0 || which >= static_cast<long long>(walk.walkers.size())) {
      refuse(PyExc_IndexError, "the walk has no component of this number");
    }
    walker = walk.walkers[static_cast<size_t>(which)].get();
  }
  // Moves on to the next solution; false when there is none.
  bool next(Allowance& allowance, size_t which) {
    if (walk.broken[which]) throw std::logic_error("the walk has ended at a limit; begin a new one");
    walk.broken[which] = true;
    const bool found = walker->next(allowance.budget) == DepthFirst::Outcome::kSolution;
    walk.broken[which] = false;
    return found;
  }
  Walk& walk;
  Use alone, together;
  DepthFirst* walker;
};

PyObject* walk_next(PyObject*, PyObject* args) {
  PyObject *object, *poll;
  long long which, cells;
  if (!PyArg_ParseTuple(args, "OLLO", &object, &which, &cells, &poll)) return nullptr;
  return guarded([&]() -> PyObject* {
    OneWalk one(object, which);
    Allowance allowance(cells, 0, 0, poll);
    if (!allowance.run([&] { return one.next(allowance, static_cast<size_t>(which)); })) {
      return Py_BuildValue("(sL)", "end", static_cast<long long>(allowance.budget.cells));
    }
    Ref found(numbers(one.walker->positions()));
    return Py_BuildValue("(sLO)", "row", static_cast<long long>(allowance.budget.cells), found.get());
  });
}

PyMethodDef methods[] = {
    {"read", read, METH_VARARGS, nullptr},          {"build", build, METH_VARARGS, nullptr},
    {"require", require, METH_VARARGS, nullptr},    {"enumerate", enumerate_model, METH_VARARGS, nullptr},
    {"columns", columns, METH_VARARGS, nullptr},    {"factors", factors, METH_VARARGS, nullptr},
    {"walk", walk, METH_VARARGS, nullptr},          {"walk_next", walk_next, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_core", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace constrint

PyMODINIT_FUNC PyInit__core() {
  PyObject* module = PyModule_Create(&constrint::definition);
  // Version that constrint/core/__init__.py expects; raised with every change of a signature or of the encoding.
  if (module && (PyModule_AddIntConstant(module, "INTERFACE", 13) || constrint::add_launch_functions(module) ||
                 constrint::add_search_functions(module))) {
    Py_DECREF(module);
    return nullptr;
  }
  return module;
}
