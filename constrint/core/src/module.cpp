// The Python side of the compiled core, on the stable interface of CPython 3.10. Every function answers None where the
// problem is not of the kind that the core takes; constrint/core/_core.pyi states the signatures.
#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <memory>
#include <new>

#include "reader.hpp"
#include "space.hpp"
#include "walk.hpp"

namespace constrint {

// The functions of launches, in launch_table.cpp.
int add_launch_functions(PyObject* module);

namespace {

// A Python exception is set; unwinds to the boundary.
struct PythonError {};

// Owns one reference.
class Ref {
 public:
  explicit Ref(PyObject* object) : object_(object) {
    if (!object) throw PythonError{};
  }
  Ref(const Ref&) = delete;
  Ref& operator=(const Ref&) = delete;
  ~Ref() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }
  PyObject* release() {
    PyObject* object = object_;
    object_ = nullptr;
    return object;
  }

 private:
  PyObject* object_;
};

template <typename T>
struct CapsuleName;
template <>
struct CapsuleName<Model> {
  static constexpr const char* value = "constrint.Model";
};
template <>
struct CapsuleName<Space> {
  static constexpr const char* value = "constrint.Space";
};

struct Walk {
  PyObject* model_capsule;
  Prepared prepared;
  std::vector<std::unique_ptr<Walker>> walkers;
  ~Walk() { Py_XDECREF(model_capsule); }
};
template <>
struct CapsuleName<Walk> {
  static constexpr const char* value = "constrint.Walk";
};

template <typename T>
PyObject* capsule(std::unique_ptr<T> object) {
  PyObject* made = PyCapsule_New(object.get(), CapsuleName<T>::value, [](PyObject* self) {
    delete static_cast<T*>(PyCapsule_GetPointer(self, CapsuleName<T>::value));
  });
  if (!made) throw PythonError{};
  object.release();
  return made;
}

template <typename T>
T& held(PyObject* object) {
  void* found = PyCapsule_GetPointer(object, CapsuleName<T>::value);
  if (!found) throw PythonError{};
  return *static_cast<T*>(found);
}

// Calls `work` and turns what it throws into Python's terms; what the core does not take becomes None.
template <typename F>
PyObject* guarded(F work) {
  try {
    return work();
  } catch (const Unsupported&) {
    Py_RETURN_NONE;
  } catch (const PythonError&) {
    return nullptr;
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  }
}

bool is_list(PyObject* object) { return PyList_Check(object) || PyTuple_Check(object); }

Py_ssize_t length(PyObject* object) { return PyList_Check(object) ? PyList_Size(object) : PyTuple_Size(object); }

PyObject* item(PyObject* object, Py_ssize_t i) {
  return PyList_Check(object) ? PyList_GetItem(object, i) : PyTuple_GetItem(object, i);
}

int64_t integer(PyObject* object) {
  // Not bool and not numpy's: the Python path knows what to say about those.
  if (!PyLong_CheckExact(object)) throw Unsupported{};
  int overflow = 0;
  long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (overflow || value >= kMaxMagnitude || value <= -kMaxMagnitude) throw Unsupported{};
  return value;
}

std::vector<int64_t> integers(PyObject* object) {
  if (!is_list(object)) throw Unsupported{};
  std::vector<int64_t> values;
  Py_ssize_t n = length(object);
  values.reserve(static_cast<size_t>(n));
  for (Py_ssize_t i = 0; i < n; ++i) values.push_back(integer(item(object, i)));
  return values;
}

std::string_view text_of(PyObject* object) {
  if (!PyUnicode_Check(object)) throw Unsupported{};
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(object, &size);
  if (!text) {
    PyErr_Clear();
    throw Unsupported{};
  }
  return {text, static_cast<size_t>(size)};
}

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

// A condition or an expression in postfix order, each operation as its number, its operand count and a value or list.
int decoded(Model& model, PyObject* code) {
  std::vector<int64_t> words = integers(code);
  std::vector<int> stack, written;
  for (size_t at = 0; at + 2 < words.size();) {
    Op op = static_cast<Op>(words[at]);
    size_t count = static_cast<size_t>(words[at + 1]);
    int64_t value = words[at + 2];
    at += 3;
    if (words[at - 3] < 0 || op > Op::kAgain || count > stack.size()) throw Unsupported{};
    if (op == Op::kInList || op == Op::kInRange || op == Op::kTable) {
      size_t size = static_cast<size_t>(value);
      if (value < 0 || size > words.size() - at) throw Unsupported{};
      std::vector<int64_t> listed(words.begin() + static_cast<long>(at), words.begin() + static_cast<long>(at + size));
      value = op == Op::kTable ? model.table(listed, count) : model.list(std::move(listed));
      at += size;
    }
    if (op == Op::kVar && (value < 0 || value >= static_cast<int64_t>(model.domains.size()))) throw Unsupported{};
    if (op == Op::kAgain) {
      if (value < 0 || value >= static_cast<int64_t>(written.size())) throw Unsupported{};
      written.push_back(written[static_cast<size_t>(value)]);
      stack.push_back(written.back());
      continue;
    }
    std::vector<int> args(stack.end() - static_cast<long>(count), stack.end());
    bool of_condition = op == Op::kTruth;
    if (of_condition || op == Op::kElement || op == Op::kTable || (op >= Op::kBitAnd && op <= Op::kBitXor)) {
      if (count < (op == Op::kElement ? 2u : 1u) || (of_condition && count > 1)) throw Unsupported{};
      for (int a : args) {
        if (is_condition(model.nodes[a].op) != of_condition) throw Unsupported{};
      }
    }
    stack.resize(stack.size() - count);
    stack.push_back(model.node(op, std::move(args), value));
    written.push_back(stack.back());
  }
  if (stack.size() != 1) throw Unsupported{};
  return stack[0];
}

void require_code(Model& model, PyObject* code) {
  int condition = decoded(model, code);
  if (!is_condition(model.nodes[condition].op)) throw Unsupported{};
  model.require(condition);
}

PyObject* read(PyObject*, PyObject* args) {
  PyObject *params, *restrictions, *reserved;
  if (!PyArg_ParseTuple(args, "OOO", &params, &restrictions, &reserved)) return nullptr;
  return guarded([&]() -> PyObject* {
    if (!PyDict_CheckExact(params) || !is_list(restrictions)) throw Unsupported{};
    auto model = std::make_unique<Model>();
    std::unordered_map<std::string, int> names;
    PyObject *key, *values;
    for (Py_ssize_t at = 0; PyDict_Next(params, &at, &key, &values);) {
      std::string_view name = text_of(key);
      int forbidden = PySet_Contains(reserved, key);
      if (forbidden < 0) throw PythonError{};
      // Restrictions that speak of another name are left to the Python reader.
      if (!forbidden && is_name(name)) names.emplace(name, static_cast<int>(model->domains.size()));
      add_domain(*model, name, values);
    }
    if (model->domains.empty()) throw Unsupported{};
    Ref left(PyList_New(0));
    for (Py_ssize_t i = 0; i < length(restrictions); ++i) {
      std::string_view text = text_of(item(restrictions, i));
      try {
        model->require(read_restriction(*model, names, text));
      } catch (const Unsupported&) {
        Ref number(PyLong_FromSsize_t(i));
        if (PyList_Append(left.get(), number.get())) throw PythonError{};
      }
    }
    Ref made(capsule(std::move(model)));
    return PyTuple_Pack(2, made.get(), left.get());
  });
}

PyObject* build(PyObject*, PyObject* args) {
  PyObject *domains, *codes;
  if (!PyArg_ParseTuple(args, "OO", &domains, &codes)) return nullptr;
  return guarded([&]() -> PyObject* {
    if (!is_list(domains) || !is_list(codes)) throw Unsupported{};
    auto model = std::make_unique<Model>();
    for (Py_ssize_t i = 0; i < length(domains); ++i) add_domain(*model, {}, item(domains, i));
    if (model->domains.empty()) throw Unsupported{};
    for (Py_ssize_t i = 0; i < length(codes); ++i) require_code(*model, item(codes, i));
    return capsule(std::move(model));
  });
}

PyObject* require(PyObject*, PyObject* args) {
  PyObject *model, *code;
  if (!PyArg_ParseTuple(args, "OO", &model, &code)) return nullptr;
  return guarded([&]() -> PyObject* {
    require_code(held<Model>(model), code);
    Py_RETURN_TRUE;
  });
}

struct Allowance {
  Budget budget;
  Allowance(long long cells, long long rows, long long bytes, PyObject* poll) {
    budget.max_cells = cells;
    budget.max_rows = rows;
    budget.max_bytes = bytes;
    if (poll == Py_None) return;
    budget.poll_every = budget.next_poll = 1 << 16;
    budget.poll = [poll](int64_t spent) {
      PyObject* answer = PyObject_CallFunction(poll, "L", static_cast<long long>(spent));
      Py_XDECREF(answer);
      return answer != nullptr;
    };
  }
};

PyObject* numbers(const std::vector<int>& values) {
  Ref list(PyList_New(0));
  for (int v : values) {
    Ref number(PyLong_FromLong(v));
    if (PyList_Append(list.get(), number.get())) throw PythonError{};
  }
  return list.release();
}

// ("limit", what, number, variables); a poll that raised propagates its exception instead.
PyObject* limited(const LimitReached& limit) {
  if (limit.what == Limit::kStopped) throw PythonError{};
  static constexpr const char* kNames[] = {"cells", "rows", "bytes"};
  Ref variables(numbers(limit.variables));
  return Py_BuildValue("(ssLO)", "limit", kNames[static_cast<int>(limit.what)], static_cast<long long>(limit.number),
                       variables.get());
}

PyObject* enumerate_model(PyObject*, PyObject* args) {
  PyObject *model, *poll;
  long long cells, rows, bytes;
  if (!PyArg_ParseTuple(args, "OLLLO", &model, &cells, &rows, &bytes, &poll)) return nullptr;
  return guarded([&]() -> PyObject* {
    Allowance allowance(cells, rows, bytes, poll);
    try {
      auto space = std::make_unique<Space>(enumerate(held<Model>(model), allowance.budget));
      long long listed = 0, tables = 0;
      Ref counts(PyList_New(0));
      for (const Part& part : space->parts) {
        Ref count(PyLong_FromLongLong(part.count));
        if (PyList_Append(counts.get(), count.get())) throw PythonError{};
        for (const TreeNode& node : part.nodes) listed += static_cast<long long>(node.table.num_rows), ++tables;
      }
      if (!space->feasible) return Py_BuildValue("(sL)", "infeasible", static_cast<long long>(allowance.budget.cells));
      Ref made(capsule(std::move(space)));
      return Py_BuildValue("(sOOLLLL)", "space", made.get(), counts.get(),
                           static_cast<long long>(allowance.budget.cells), listed, tables,
                           static_cast<long long>(allowance.budget.bytes));
    } catch (const LimitReached& limit) {
      return limited(limit);
    }
  });
}

PyObject* columns(PyObject*, PyObject* args) {
  PyObject* object;
  long long rows;
  if (!PyArg_ParseTuple(args, "OL", &object, &rows)) return nullptr;
  return guarded([&]() -> PyObject* {
    const Space& space = held<Space>(object);
    Ref list(PyList_New(0));
    std::vector<char*> out;
    for (const Axis& axis : space.axes) {
      Ref column(PyByteArray_FromStringAndSize(nullptr, rows * value_bytes(axis)));
      out.push_back(PyByteArray_AsString(column.get()));
      Ref entry(Py_BuildValue("(iO)", value_bytes(axis), column.get()));
      if (PyList_Append(list.get(), entry.get())) throw PythonError{};
    }
    list_columns(space, rows, out);
    return list.release();
  });
}

template <typename T>
PyObject* bytes_of(const std::vector<T>& values) {
  return PyByteArray_FromStringAndSize(reinterpret_cast<const char*>(values.data()),
                                       static_cast<Py_ssize_t>(values.size() * sizeof(T)));
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
PyObject* positions_of(const std::vector<uint16_t>& column, const Axis& axis) {
  if (axis.values.size() > 256) return bytes_of(column);
  PyObject* made = PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(column.size()));
  if (!made) throw PythonError{};
  char* out = PyByteArray_AsString(made);
  for (size_t i = 0; i < column.size(); ++i) out[i] = static_cast<char>(column[i]);
  return made;
}

PyObject* tables_of(const Part& part, const std::vector<Axis>& axes) {
  Ref list(PyList_New(0));
  for (const TreeNode& node : part.nodes) {
    Ref variables(numbers(node.table.variables)), shared(numbers(node.shared)), columns(PyList_New(0));
    for (size_t c = 0; c < node.table.columns.size(); ++c) {
      Ref bytes(positions_of(node.table.columns[c], axes[node.table.variables[c]]));
      if (PyList_Append(columns.get(), bytes.get())) throw PythonError{};
    }
    Ref entry(Py_BuildValue("(OOniO)", variables.get(), columns.get(), static_cast<Py_ssize_t>(node.table.num_rows),
                            node.parent, shared.get()));
    if (PyList_Append(list.get(), entry.get())) throw PythonError{};
  }
  return list.release();
}

PyObject* factors(PyObject*, PyObject* args) {
  PyObject* object;
  if (!PyArg_ParseTuple(args, "O", &object)) return nullptr;
  return guarded([&]() -> PyObject* {
    const Space& space = held<Space>(object);
    Ref axes(axes_of(space.axes, space.fixed)), parts(PyList_New(0));
    for (const Part& part : space.parts) {
      Ref entry(part.free >= 0 ? PyLong_FromLong(part.free) : tables_of(part, space.axes));
      if (PyList_Append(parts.get(), entry.get())) throw PythonError{};
    }
    return PyTuple_Pack(2, axes.get(), parts.get());
  });
}

// Pairs of a variable and its value.
std::vector<Choice> choices_of(PyObject* pairs) {
  std::vector<Choice> choices;
  for (Py_ssize_t i = 0; i < length(pairs); ++i) {
    std::vector<int64_t> pair = integers(item(pairs, i));
    if (pair.size() != 2) throw Unsupported{};
    choices.push_back({static_cast<int>(pair[0]), pair[1]});
  }
  return choices;
}

PyObject* best(PyObject*, PyObject* args) {
  PyObject *model, *space, *code;
  int maximise;
  if (!PyArg_ParseTuple(args, "OOOp", &model, &space, &code, &maximise)) return nullptr;
  return guarded([&]() -> PyObject* {
    Model& held_model = held<Model>(model);
    // The expression is not part of the problem: what it needs is gone again afterwards.
    struct Restored {
      Model& model;
      size_t num_nodes;
      ~Restored() { model.shrink(num_nodes); }
    } restored{held_model, held_model.nodes.size()};
    int expression = decoded(held_model, code);
    if (is_condition(held_model.nodes[expression].op)) throw Unsupported{};
    Ref list(PyList_New(0));
    for (const Choice& choice : best_choice(held_model, held<Space>(space), expression, maximise)) {
      Ref pair(Py_BuildValue("(iL)", choice.variable, static_cast<long long>(choice.value)));
      if (PyList_Append(list.get(), pair.get())) throw PythonError{};
    }
    return list.release();
  });
}

PyObject* evaluate_columns(PyObject*, PyObject* args) {
  PyObject *code, *columns;
  long long rows;
  if (!PyArg_ParseTuple(args, "OOL", &code, &columns, &rows)) return nullptr;
  return guarded([&]() -> PyObject* {
    if (!PyList_Check(columns) || rows < 1) throw Unsupported{};
    Model model;
    std::vector<const int64_t*> data;
    for (Py_ssize_t i = 0; i < PyList_Size(columns); ++i) {
      PyObject* bytes = PyList_GetItem(columns, i);
      if (!PyBytes_Check(bytes) || PyBytes_Size(bytes) != rows * 8) throw Unsupported{};
      data.push_back(reinterpret_cast<const int64_t*>(PyBytes_AsString(bytes)));
      model.domains.emplace_back();
    }
    int expression = decoded(model, code);
    if (is_condition(model.nodes[expression].op)) throw Unsupported{};
    Ref out(PyByteArray_FromStringAndSize(nullptr, rows * 8));
    evaluate(model, expression, data, rows, reinterpret_cast<int64_t*>(PyByteArray_AsString(out.get())));
    return out.release();
  });
}

PyObject* walk(PyObject*, PyObject* args) {
  PyObject *object, *poll, *chosen;
  long long cells;
  if (!PyArg_ParseTuple(args, "OLOO", &object, &cells, &poll, &chosen)) return nullptr;
  return guarded([&]() -> PyObject* {
    const Model& model = held<Model>(object);
    Allowance allowance(cells, 0, 0, poll);
    try {
      Prepared prepared = prepare(model, allowance.budget, choices_of(chosen));
      if (!prepared.feasible) return Py_BuildValue("(s)", "infeasible");
      Py_INCREF(object);
      std::unique_ptr<Walk> made(new Walk{object, std::move(prepared), {}});
      Ref groups(PyList_New(0));
      for (const std::vector<int>& group : components(model, made->prepared)) {
        made->walkers.push_back(std::make_unique<Walker>(model, made->prepared, group));
        Ref members(numbers(group));
        if (PyList_Append(groups.get(), members.get())) throw PythonError{};
      }
      Ref axes(axes_of(made->prepared.axes, made->prepared.fixed));
      Ref held_walk(capsule(std::move(made)));
      return Py_BuildValue("(sOOO)", "walk", held_walk.get(), groups.get(), axes.get());
    } catch (const LimitReached& limit) {
      return limited(limit);
    }
  });
}

PyObject* walk_next(PyObject*, PyObject* args) {
  PyObject *object, *poll;
  long long which, cells;
  if (!PyArg_ParseTuple(args, "OLLO", &object, &which, &cells, &poll)) return nullptr;
  return guarded([&]() -> PyObject* {
    Walk& walk = held<Walk>(object);
    Allowance allowance(cells, 0, 0, poll);
    try {
      Walker& walker = *walk.walkers.at(static_cast<size_t>(which));
      if (!walker.next(allowance.budget)) return Py_BuildValue("(sL)", "end", static_cast<long long>(allowance.budget.cells));
      Ref found(numbers(walker.positions()));
      return Py_BuildValue("(sLO)", "row", static_cast<long long>(allowance.budget.cells), found.get());
    } catch (const LimitReached& limit) {
      return limited(limit);
    }
  });
}

PyMethodDef methods[] = {
    {"read", read, METH_VARARGS, nullptr},          {"build", build, METH_VARARGS, nullptr},
    {"require", require, METH_VARARGS, nullptr},    {"enumerate", enumerate_model, METH_VARARGS, nullptr},
    {"best", best, METH_VARARGS, nullptr},
    {"evaluate", evaluate_columns, METH_VARARGS, nullptr},
    {"columns", columns, METH_VARARGS, nullptr},    {"factors", factors, METH_VARARGS, nullptr},
    {"walk", walk, METH_VARARGS, nullptr},          {"walk_next", walk_next, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_core", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace constrint

PyMODINIT_FUNC PyInit__core() {
  PyObject* module = PyModule_Create(&constrint::definition);
  // What constrint/core/__init__.py expects; raised with every change of a signature or of the encoding.
  if (module && (PyModule_AddIntConstant(module, "INTERFACE", 6) || constrint::add_launch_functions(module))) {
    Py_DECREF(module);
    return nullptr;
  }
  return module;
}
