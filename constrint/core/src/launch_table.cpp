// Tables of launch plans: a call is looked up by the shapes, strides, dtypes, devices and alignment of its tensors.
#include <algorithm>
#include <cstring>
#include <list>
#include <unordered_map>

#include "dlpack.hpp"
#include "plan.hpp"

namespace constrint {
namespace {

constexpr Py_ssize_t kMaxTensors = 16;

// Entry of a known call: its plan and the outputs to allocate, or a function that does the whole call.
struct Entry {
  uint64_t hash = 0;
  std::vector<int64_t> words;
  PyObject* extra = nullptr;       // compared by equality
  PlanPointer plan;                // null: such calls have no plan
  PyObject* function = nullptr;    // takes the call's tensors and gives the results, instead of a plan
  Py_ssize_t inputs = 0;
  std::vector<PyObject*> outputs;  // arguments of the allocator
  Py_ssize_t results = 0;          // outputs that are returned
  int64_t counters = 0;            // zeroed words that the stream keeps
  bool is_open = false;            // the function may run whatever listens
  ~Entry() {
    Py_XDECREF(extra);
    Py_XDECREF(function);
    for (PyObject* output : outputs) Py_XDECREF(output);
  }
};

struct PlanTable {
  using Order = std::list<std::shared_ptr<Entry>>;  // most recently used first
  size_t capacity = 0;
  PyObject* allocate = nullptr;
  PyObject* counters = nullptr;   // (device, stream, words) -> address, 0 where there are none
  PyObject* listeners = nullptr;  // modes that must all be off for a call to run by a plan
  PyObject* precision = nullptr;  // the setting on which products of 32-bit floats depend
  PyObject* has_grad = nullptr;   // whether gradients are recorded
  PyObject* recorded = nullptr;   // another table, whose functions run calls that autograd records
  Order order;
  std::unordered_multimap<uint64_t, Order::iterator> places;
  long long hits = 0, misses = 0;
  long long changes = 0;  // of the entries
  ~PlanTable() {
    for (PyObject* held : {allocate, counters, listeners, precision, has_grad, recorded}) Py_XDECREF(held);
  }
};

template <>
struct CapsuleName<PlanTable> {
  static constexpr const char* value = "constrint.PlanTable";
};

bool is_true(PyObject* object) {
  const int truth = PyObject_IsTrue(object);
  if (truth < 0) throw PythonError{};
  return truth == 1;
}

PyObject* called(PyObject* function) {
  return interpreted([&] { return PyObject_CallNoArgs(function); });
}

bool is_listened_to(const PlanTable& table) {
  const Py_ssize_t number = PyTuple_Size(table.listeners);
  for (Py_ssize_t i = 0; i < number; ++i) {
    Ref heard(called(PyTuple_GetItem(table.listeners, i)));
    if (heard.get() != Py_False && heard.get() != Py_None && is_true(heard.get())) return true;
  }
  return has_triton_hooks();
}

// The call's arguments: their signature, addresses, and the object that is compared by equality. A float among the
// tensors is a factor: its value belongs to the call and not to the signature.
struct Call {
  Signature signature;
  Value addresses[kMaxTensors];
  uint32_t factors = 0;  // a bit for each argument that is a factor
  int32_t device = -1, device_type = 0;
  PyObject* extra = nullptr;  // owned
  bool is_plain = true;
  ~Call() { Py_XDECREF(extra); }

  void read(const PlanTable& table, PyObject* given, PyObject* const* tensors, Py_ssize_t number) {
    if (!g_exchange || number > kMaxTensors) {
      is_plain = false;
      return;
    }
    bool is_wide = false;
    for (Py_ssize_t i = 0; i < number; ++i) {
      addresses[i] = 0;
      if (tensors[i] == Py_None) {
        signature.add(-1);
        continue;
      }
      if (PyFloat_CheckExact(tensors[i])) {
        signature.add(-2);
        const double factor = PyFloat_AsDouble(tensors[i]);
        std::memcpy(&addresses[i], &factor, sizeof(factor));
        factors |= 1u << i;
        continue;
      }
      DlTensor tensor;
      if (!describe(signature, tensors[i], tensor) || (device >= 0 && tensor.device.index != device)) {
        is_plain = false;
        return;
      }
      device = tensor.device.index;
      device_type = tensor.device.type;
      addresses[i] = address_of(tensor);
      is_wide |= tensor.element.code == kFloatCode && tensor.element.bits == 32;
    }
    if (device < 0) {
      is_plain = false;
      return;
    }
    if (is_wide && table.precision != Py_None) {
      Ref precision(called(table.precision));
      extra = PyTuple_Pack(2, given, precision.get());
      if (!extra) throw PythonError{};
    } else {
      Py_INCREF(given);
      extra = given;
    }
    if (extra != Py_None) {
      const Py_hash_t hash = interpreted([&] { return PyObject_Hash(extra); });
      if (hash == -1) throw PythonError{};
      signature.hash ^= static_cast<uint64_t>(hash) * 0x9E3779B97F4A7C15ull;
    }
  }
};

bool is_equal(PyObject* one, PyObject* other) {
  if (one == other) return true;
  const int equal = interpreted([&] { return PyObject_RichCompareBool(one, other, Py_EQ); });
  if (equal < 0) throw PythonError{};
  return equal == 1;
}

std::shared_ptr<Entry> find(PlanTable& table, const Call& call) {
  const Signature& signature = call.signature;
  const auto range = table.places.equal_range(signature.hash);
  for (auto at = range.first; at != range.second; ++at) {
    const std::shared_ptr<Entry> entry = *at->second;
    if (entry->words.size() != signature.number) continue;
    if (std::memcmp(entry->words.data(), signature.words, signature.number * sizeof(int64_t))) continue;
    const long long before = table.changes;
    const bool is_it = is_equal(entry->extra, call.extra);
    // Comparing may have run code that changed the table: no place in it is sure any more.
    if (table.changes != before) return is_it ? entry : nullptr;
    if (!is_it) continue;
    table.order.splice(table.order.begin(), table.order, at->second);
    return entry;
  }
  return nullptr;
}

void drop_last(PlanTable& table) {
  ++table.changes;
  const auto last = std::prev(table.order.end());
  const auto range = table.places.equal_range((*last)->hash);
  for (auto at = range.first; at != range.second; ++at) {
    if (at->second == last) {
      table.places.erase(at);
      break;
    }
  }
  const std::shared_ptr<Entry> kept = *last;  // its objects may run code when they go
  table.order.erase(last);
}

PyObject* make_table(PyObject*, PyObject* args) {
  long long capacity;
  PyObject *allocate, *counters, *listeners, *precision, *has_grad;
  if (!PyArg_ParseTuple(args, "LOOO!OO", &capacity, &allocate, &counters, &PyTuple_Type, &listeners, &precision,
                        &has_grad)) {
    return nullptr;
  }
  return launching([&]() -> PyObject* {
    auto made = std::make_unique<PlanTable>();
    made->capacity = static_cast<size_t>(capacity < 1 ? 1 : capacity);
    for (PyObject* held : {allocate, counters, listeners, precision, has_grad}) Py_INCREF(held);
    made->allocate = allocate;
    made->counters = counters;
    made->listeners = listeners;
    made->precision = precision;
    made->has_grad = has_grad;
    return capsule(std::move(made));
  });
}

PyObject* allocated(const PlanTable& table, PyObject* arguments) {
  PyObject* made = interpreted([&] { return PyObject_CallObject(table.allocate, arguments); });
  if (!made) throw PythonError{};
  return made;
}

// The objects that a call allocates, released where it fails.
struct Outputs {
  PyObject* made[kMaxTensors + 1];
  Py_ssize_t number = 0;
  ~Outputs() {
    for (Py_ssize_t i = 0; i < number; ++i) Py_DECREF(made[i]);
  }
};

PyObject* run_entry(PlanTable& table, const Entry& entry, const Call& call) {
  const Plan& plan = *entry.plan;
  if (!is_current(plan)) Py_RETURN_NONE;
  void* stream = nullptr;
  if (g_exchange->stream(call.device_type, call.device, &stream)) throw PythonError{};
  Value values[kMaxSlots];
  Py_ssize_t at = 0;
  for (; at < entry.inputs; ++at) values[at] = call.addresses[at];
  Outputs outputs;
  for (PyObject* arguments : entry.outputs) {
    PyObject* made = allocated(table, arguments);
    outputs.made[outputs.number++] = made;
    DlTensor tensor;
    if (!is_plain_tensor(made) || g_exchange->view(made, &tensor)) {
      PyErr_Clear();
      Py_RETURN_NONE;
    }
    values[at++] = address_of(tensor);
  }
  if (entry.counters) {
    Ref handle(PyLong_FromVoidPtr(stream));
    Ref number(PyLong_FromLongLong(entry.counters));
    Ref index(PyLong_FromLong(call.device));
    Ref address(interpreted([&] {
      return PyObject_CallFunctionObjArgs(table.counters, index.get(), handle.get(), number.get(), nullptr);
    }));
    values[at] = word_of(address.get());
    if (!values[at++]) Py_RETURN_NONE;
  }
  if (!satisfies(plan, values)) Py_RETURN_NONE;
  enqueue(entry.plan, stream, values);
  if (entry.results == 1) {
    Py_INCREF(outputs.made[0]);
    return outputs.made[0];
  }
  Ref results(PyTuple_New(entry.results));
  for (Py_ssize_t i = 0; i < entry.results; ++i) {
    Py_INCREF(outputs.made[i]);
    PyTuple_SetItem(results.get(), i, outputs.made[i]);
  }
  return results.release();
}

PyObject* run_function(const Entry& entry, PyObject* const* tensors, Py_ssize_t number) {
  Ref given(PyTuple_New(number));
  for (Py_ssize_t i = 0; i < number; ++i) {
    Py_INCREF(tensors[i]);
    PyTuple_SetItem(given.get(), i, tensors[i]);
  }
  PyObject* made = interpreted([&] { return PyObject_CallObject(entry.function, given.get()); });
  if (!made) throw PythonError{};
  return made;
}

// The function of the table's for calls that autograd records, in its entry; null where it has none.
std::shared_ptr<Entry> find_recorded(const PlanTable& table, PyObject* extra, PyObject* const* tensors,
                                     Py_ssize_t number) {
  if (!table.recorded) return nullptr;
  PlanTable& other = held<PlanTable>(table.recorded);
  Call call;
  call.read(other, extra, tensors, number);
  const std::shared_ptr<Entry> entry = call.is_plain ? find(other, call) : nullptr;
  if (!entry || !entry->function) return nullptr;
  ++other.hits;
  return entry;
}

// table_call(table, is_inner, extra, *tensors and factors): the results; None where such calls have no plan, True where gradients
// are to be recorded first, False where the call is new. With `is_inner` neither gradients nor listeners are asked for.
PyObject* table_call(PyObject*, PyObject* const* args, Py_ssize_t number) {
  return launching([&]() -> PyObject* {
    static PyObject* requires_grad = PyUnicode_InternFromString("requires_grad");
    if (number < 3) throw Unsupported{};
    PlanTable& table = held<PlanTable>(args[0]);
    PyObject* const* tensors = args + 3;
    number -= 3;
    Call call;
    if (args[1] != Py_True) {
      bool wants_grad = false;
      for (Py_ssize_t i = 0; i < number; ++i) {
        if (tensors[i] == Py_None || PyFloat_CheckExact(tensors[i])) continue;
        if (!is_plain_tensor(tensors[i])) Py_RETURN_NONE;
        Ref needed(PyObject_GetAttr(tensors[i], requires_grad));
        wants_grad |= needed.get() == Py_True;
      }
      bool is_recorded = false;
      if (wants_grad) {
        Ref recorded(called(table.has_grad));
        is_recorded = is_true(recorded.get());
      }
      const std::shared_ptr<Entry> entry = is_recorded ? find_recorded(table, args[2], tensors, number) : nullptr;
      if (!(entry && entry->is_open) && is_listened_to(table)) Py_RETURN_NONE;
      if (entry) return run_function(*entry, tensors, number);
      if (is_recorded) Py_RETURN_TRUE;
    }
    call.read(table, args[2], tensors, number);
    if (!call.is_plain) Py_RETURN_NONE;
    const std::shared_ptr<Entry> entry = find(table, call);
    if (!entry) {
      ++table.misses;
      Py_RETURN_FALSE;
    }
    ++table.hits;
    if (entry->function) return run_function(*entry, tensors, number);
    if (!entry->plan) Py_RETURN_NONE;
    return run_entry(table, *entry, call);
  });
}

// Whether a plan reads factors where a call has them, and addresses everywhere else.
bool takes_what_is_given(const Plan& plan, uint32_t factors) {
  for (size_t slot = 0; slot < kMaxSlots; ++slot) {
    const bool is_factor = slot < kMaxTensors && (factors >> slot & 1u);
    if (plan.kinds[slot] == SlotKind::kUnused) continue;
    if ((plan.kinds[slot] == SlotKind::kFloat) != is_factor) return false;
  }
  return plan.narrow.empty();
}

// Reads a call whose tensors are a tuple; returns their number.
Py_ssize_t read_tuple(PlanTable& table, PyObject* extra, PyObject* tensors, Call* call) {
  const Py_ssize_t number = PyTuple_Size(tensors);
  if (number > kMaxTensors) throw Unsupported{};
  PyObject* each[kMaxTensors];
  for (Py_ssize_t i = 0; i < number; ++i) each[i] = PyTuple_GetItem(tensors, i);
  call->read(table, extra, each, number);
  return number;
}

// table_insert(table, extra, tensors, plan or function or None, outputs, results, counters, is_open = False)
PyObject* table_insert(PyObject*, PyObject* args) {
  PyObject *object, *extra, *tensors, *plan, *outputs;
  Py_ssize_t results;
  long long counters;
  int is_open = 0;
  if (!PyArg_ParseTuple(args, "OOO!OO!nL|p", &object, &extra, &PyTuple_Type, &tensors, &plan, &PyTuple_Type, &outputs,
                        &results, &counters, &is_open)) {
    return nullptr;
  }
  return launching([&]() -> PyObject* {
    PlanTable& table = held<PlanTable>(object);
    Call call;
    const Py_ssize_t number = read_tuple(table, extra, tensors, &call);
    if (!call.is_plain || find(table, call)) Py_RETURN_FALSE;
    auto entry = std::make_shared<Entry>();
    entry->hash = call.signature.hash;
    entry->words.assign(call.signature.words, call.signature.words + call.signature.number);
    entry->extra = call.extra;
    call.extra = nullptr;
    entry->inputs = number;
    entry->results = results;
    entry->counters = counters;
    entry->is_open = is_open != 0;
    for (Py_ssize_t i = 0; i < PyTuple_Size(outputs); ++i) {
      PyObject* arguments = PyTuple_GetItem(outputs, i);
      if (!PyTuple_Check(arguments)) throw Unsupported{};
      Py_INCREF(arguments);
      entry->outputs.push_back(arguments);
    }
    const Py_ssize_t made = static_cast<Py_ssize_t>(entry->outputs.size());
    if (made > kMaxTensors || results < 0 || results > made || counters < 0) throw Unsupported{};
    if (PyCallable_Check(plan)) {
      Py_INCREF(plan);
      entry->function = plan;
    } else if (plan != Py_None) {
      entry->plan = held<PlanPointer>(plan);
      if (number + made + (counters ? 1 : 0) != static_cast<Py_ssize_t>(entry->plan->num_slots)) throw Unsupported{};
      if (!takes_what_is_given(*entry->plan, call.factors)) throw Unsupported{};
    }
    ++table.changes;
    table.order.push_front(entry);
    table.places.emplace(entry->hash, table.order.begin());
    while (table.order.size() > table.capacity) drop_last(table);
    Py_RETURN_TRUE;
  });
}

// table_drop(table, extra, tensors): whether there was an entry of the call, which is dropped
PyObject* table_drop(PyObject*, PyObject* args) {
  PyObject *object, *extra, *tensors;
  if (!PyArg_ParseTuple(args, "OOO!", &object, &extra, &PyTuple_Type, &tensors)) return nullptr;
  return launching([&]() -> PyObject* {
    PlanTable& table = held<PlanTable>(object);
    Call call;
    read_tuple(table, extra, tensors, &call);
    const std::shared_ptr<Entry> entry = call.is_plain ? find(table, call) : nullptr;
    const auto range = entry ? table.places.equal_range(entry->hash)
                             : std::make_pair(table.places.end(), table.places.end());
    for (auto at = range.first; at != range.second; ++at) {
      if (*at->second != entry) continue;
      ++table.changes;
      table.order.erase(at->second);  // `entry` keeps its objects, which may run code when they go
      table.places.erase(at);
      Py_RETURN_TRUE;
    }
    Py_RETURN_FALSE;
  });
}

// table_record(table, other): let functions of the other table run calls of this one that autograd records
PyObject* table_record(PyObject*, PyObject* args) {
  PyObject *object, *other;
  if (!PyArg_ParseTuple(args, "OO", &object, &other)) return nullptr;
  return launching([&]() -> PyObject* {
    PlanTable& table = held<PlanTable>(object);
    held<PlanTable>(other);
    Py_INCREF(other);
    Py_XDECREF(table.recorded);
    table.recorded = other;
    Py_RETURN_NONE;
  });
}

PyObject* table_clear(PyObject*, PyObject* object) {
  return launching([&]() -> PyObject* {
    PlanTable& table = held<PlanTable>(object);
    PlanTable::Order old;  // the objects of its entries may run code when they go
    ++table.changes;
    old.swap(table.order);
    table.places.clear();
    Py_RETURN_NONE;
  });
}

// table_state(table): entries, hits, misses
PyObject* table_state(PyObject*, PyObject* object) {
  return launching([&]() -> PyObject* {
    const PlanTable& table = held<PlanTable>(object);
    return Py_BuildValue("(nLL)", static_cast<Py_ssize_t>(table.order.size()), table.hits, table.misses);
  });
}

template <typename F>
PyCFunction fast(F function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef launch_methods[] = {
    {"driver", open_driver_of, METH_VARARGS, nullptr},
    {"current", current_of, METH_O, nullptr},
    {"load_kernel", load_kernel, METH_VARARGS, nullptr},
    {"allow_kernel", allow_kernel, METH_VARARGS, nullptr},
    {"resident_blocks", resident_blocks, METH_VARARGS, nullptr},
    {"parameter_bytes", parameter_bytes_of, METH_VARARGS, nullptr},
    {"plan", make_plan, METH_VARARGS, nullptr},
    {"launch", fast(launch_plan), METH_FASTCALL, nullptr},
    {"use_tensors", use_tensors, METH_VARARGS, nullptr},
    {"use_blas", use_blas_of, METH_VARARGS, nullptr},
    {"use_matmul", use_matmul_of, METH_VARARGS, nullptr},
    {"table", make_table, METH_VARARGS, nullptr},
    {"table_call", fast(table_call), METH_FASTCALL, nullptr},
    {"table_insert", table_insert, METH_VARARGS, nullptr},
    {"table_drop", table_drop, METH_VARARGS, nullptr},
    {"table_record", table_record, METH_VARARGS, nullptr},
    {"table_clear", table_clear, METH_O, nullptr},
    {"table_state", table_state, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_launch_functions(PyObject* module) { return PyModule_AddFunctions(module, launch_methods); }

}  // namespace constrint
