// The Python side of launches: drivers, plans, and tables that find a call's plan by how its tensors lie in memory.
#include <cstring>
#include <list>
#include <string>
#include <unordered_map>

#include "dlpack.hpp"
#include "plan.hpp"

namespace constrint {
namespace {

template <>
struct CapsuleName<Driver> {
  static constexpr const char* value = "constrint.Driver";
};

using PlanPointer = std::shared_ptr<const Plan>;
template <>
struct CapsuleName<PlanPointer> {
  static constexpr const char* value = "constrint.Plan";
};

PyObject* raise(PyObject* kind, const std::string& what) {
  PyErr_SetString(kind, what.c_str());
  throw PythonError{};
}

// Calls `work` and turns what it throws into Python's terms.
template <typename F>
PyObject* launching(F work) {
  try {
    return work();
  } catch (const PythonError&) {
    return nullptr;
  } catch (const DriverError& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what.c_str());
    return nullptr;
  } catch (const Unsupported&) {
    PyErr_SetString(PyExc_TypeError, "an argument has another type than the core expects");
    return nullptr;
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  }
}

PyObject* part(PyObject* tuple, Py_ssize_t i) {
  if (!is_list(tuple) || i >= length(tuple)) throw Unsupported{};
  return item(tuple, i);
}

// An address or a stream: any 64 bits.
uint64_t word_of(PyObject* object) {
  if (!PyLong_Check(object)) throw Unsupported{};
  const uint64_t value = PyLong_AsUnsignedLongLongMask(object);
  if (PyErr_Occurred()) throw PythonError{};
  return value;
}

int64_t small(PyObject* object, int64_t least, int64_t most) {
  const int64_t value = integer(object);
  if (value < least || value > most) throw Unsupported{};
  return value;
}

PyObject* open_driver_of(PyObject*, PyObject* args) {
  const char *kind, *library;
  if (!PyArg_ParseTuple(args, "ss", &kind, &library)) return nullptr;
  try {
    return capsule(std::unique_ptr<Driver>(open_driver(kind, library)));
  } catch (const DriverError& error) {
    PyErr_SetString(PyExc_OSError, error.what.c_str());
  } catch (const PythonError&) {
  }
  return nullptr;
}

PyObject* current_of(PyObject*, PyObject* object) {
  return launching([&]() -> PyObject* { return PyLong_FromVoidPtr(held<Driver>(object).current()); });
}

PyObject* load_kernel(PyObject*, PyObject* args) {
  PyObject* object;
  const char *image, *name;
  Py_ssize_t size;
  unsigned shared;
  if (!PyArg_ParseTuple(args, "Oy#sI", &object, &image, &size, &name, &shared)) return nullptr;
  return launching([&]() -> PyObject* {
    const Loaded made = held<Driver>(object).load(image, name, shared);
    return Py_BuildValue("(Niii)", PyLong_FromVoidPtr(made.function), made.registers, made.local_bytes,
                         made.max_threads);
  });
}

PyObject* parameter_bytes_of(PyObject*, PyObject* args) {
  PyObject *object, *function;
  if (!PyArg_ParseTuple(args, "OO", &object, &function)) return nullptr;
  return launching([&]() -> PyObject* {
    const Driver& driver = held<Driver>(object);
    Ref list(PyList_New(0));
    for (size_t bytes : driver.parameter_bytes(reinterpret_cast<void*>(word_of(function)))) {
      Ref number(PyLong_FromSize_t(bytes));
      if (PyList_Append(list.get(), number.get())) throw PythonError{};
    }
    return list.release();
  });
}

// Appends an argument of some size and returns where it is.
uint8_t* append(Step& step, size_t bytes, size_t alignment) {
  const size_t at = (step.arguments.size() + alignment - 1) / alignment * alignment;
  step.offsets.push_back(static_cast<uint32_t>(at));
  step.arguments.resize(at + bytes);
  return step.arguments.data() + at;
}

void add_argument(const Driver& driver, Step& step, PyObject* argument, uint32_t num_slots) {
  const std::string_view kind = text_of(part(argument, 0));
  auto patch = [&](Patch::Kind what, int64_t bytes, PyObject* slot, int64_t shift) {
    step.patches.push_back({what, static_cast<uint8_t>(bytes), step.offsets.back(),
                            static_cast<uint32_t>(small(slot, 0, static_cast<int64_t>(num_slots) - 1)), shift});
  };
  if (kind == "bytes") {
    char* data = nullptr;
    Py_ssize_t size = 0;
    if (PyBytes_AsStringAndSize(part(argument, 1), &data, &size)) throw PythonError{};
    if (size > 8) throw Unsupported{};
    std::memcpy(append(step, static_cast<size_t>(size), 8), data, static_cast<size_t>(size));
  } else if (kind == "integer") {
    const int64_t bytes = small(part(argument, 1), 1, 8);
    append(step, static_cast<size_t>(bytes), 8);
    patch(Patch::kInteger, bytes, part(argument, 2), integer(part(argument, 3)));
  } else if (kind == "fp32" || kind == "fp64") {
    append(step, kind == "fp32" ? 4 : 8, 8);
    patch(kind == "fp32" ? Patch::kFloat32 : Patch::kFloat64, 8, part(argument, 1), 0);
  } else if (kind == "map") {
    TensorMapShape shape{static_cast<int>(small(part(argument, 3), 0, 64)),
                         static_cast<int>(small(part(argument, 4), 1, 16)),
                         static_cast<int>(small(part(argument, 5), 0, 16)),
                         integer(part(argument, 6)) != 0,
                         integers(part(argument, 7)),
                         integers(part(argument, 8)),
                         integers(part(argument, 9))};
    const size_t rank = shape.block.size();
    if (!rank || rank > 5 || shape.shape.size() != rank || shape.strides.size() != rank) throw Unsupported{};
    TensorMap map{};
    driver.encode(map, shape);
    std::memcpy(append(step, sizeof map, alignof(TensorMap)), map.bytes, sizeof map);
    patch(Patch::kTensorMap, 8, part(argument, 1), integer(part(argument, 2)));
  } else {
    throw Unsupported{};
  }
  if (step.offsets.size() > 256) throw Unsupported{};
}

Step step_of(const Driver& driver, PyObject* given, uint32_t num_slots) {
  Step step;
  const std::string_view kind = text_of(part(given, 0));
  if (kind == "zero") {
    step.is_zeroing = true;
    step.slot = static_cast<uint32_t>(small(part(given, 1), 0, static_cast<int64_t>(num_slots) - 1));
    step.shift = integer(part(given, 2));
    step.words = static_cast<size_t>(small(part(given, 3), 0, INT32_MAX));
    return step;
  }
  if (kind != "kernel") throw Unsupported{};
  step.shape.function = reinterpret_cast<void*>(word_of(part(given, 1)));
  if (!step.shape.function) throw Unsupported{};
  for (int axis = 0; axis < 3; ++axis) {
    step.shape.grid[axis] = static_cast<unsigned>(small(part(part(given, 2), axis), 1, INT32_MAX));
  }
  step.shape.threads = static_cast<unsigned>(small(part(given, 3), 1, 1024));
  step.shape.shared_bytes = static_cast<unsigned>(small(part(given, 4), 0, INT32_MAX));
  step.shape.cluster = static_cast<unsigned>(small(part(given, 5), 1, 8));
  step.shape.cooperative = integer(part(given, 6)) != 0;
  step.shape.dependent = integer(part(given, 7)) != 0;
  PyObject* arguments = part(given, 8);
  if (!is_list(arguments)) throw Unsupported{};
  for (Py_ssize_t i = 0; i < length(arguments); ++i) add_argument(driver, step, item(arguments, i), num_slots);
  return step;
}

PyObject* make_plan(PyObject*, PyObject* args) {
  PyObject *object, *steps, *demands;
  unsigned slots;
  if (!PyArg_ParseTuple(args, "OIOO", &object, &slots, &steps, &demands)) return nullptr;
  return launching([&]() -> PyObject* {
    Plan plan;
    plan.driver = &held<Driver>(object);
    plan.context = plan.driver->current();
    plan.num_slots = slots;
    if (!is_list(steps) || !is_list(demands) || slots > 256) throw Unsupported{};
    for (Py_ssize_t i = 0; i < length(steps); ++i) {
      plan.steps.push_back(step_of(*plan.driver, item(steps, i), slots));
    }
    for (Py_ssize_t i = 0; i < length(demands); ++i) {
      PyObject* given = item(demands, i);
      const std::string_view kind = text_of(part(given, 0));
      Demand demand{};
      demand.slot = static_cast<uint32_t>(small(part(given, 1), 0, static_cast<int64_t>(slots) - 1));
      demand.value = integer(part(given, 2));
      if (kind == "multiple" && demand.value > 0) {
        demand.kind = Demand::kMultiple;
      } else if (kind == "equal") {
        demand.kind = Demand::kEqual;
      } else if (kind == "int32") {
        demand.kind = Demand::kInt32;
      } else {
        throw Unsupported{};
      }
      plan.demands.push_back(demand);
    }
    Py_INCREF(object);  // drivers are few and stay for good
    return capsule(std::make_unique<PlanPointer>(std::make_shared<const Plan>(std::move(plan))));
  });
}

// Enqueues a plan without the interpreter's lock.
void enqueue(const PlanPointer& plan, void* stream, const Value* values) {
  std::string failure;
  PyThreadState* state = PyEval_SaveThread();
  try {
    run(*plan, stream, values);
  } catch (const DriverError& error) {
    failure = error.what;
  }
  PyEval_RestoreThread(state);
  if (!failure.empty()) raise(PyExc_RuntimeError, failure);
}

// A tensor, a number, or None as the value of a slot.
Value value_of(const Exchange* exchange, PyObject* object) {
  if (PyLong_Check(object)) return word_of(object);
  if (object == Py_None) return 0;
  if (PyFloat_Check(object)) {
    const double number = PyFloat_AsDouble(object);
    Value bits;
    std::memcpy(&bits, &number, 8);
    return bits;
  }
  if (exchange && is_plain_tensor(object)) {
    DlTensor tensor;
    if (exchange->view(object, &tensor)) throw PythonError{};
    return address_of(tensor);
  }
  static PyObject* name = PyUnicode_InternFromString("data_ptr");
  Ref address(PyObject_CallMethodObjArgs(object, name, nullptr));
  return word_of(address.get());
}

// launch(plan, stream, *values): False where the values are not of the kind that the plan is for.
PyObject* launch_plan(PyObject*, PyObject* const* args, Py_ssize_t number) {
  return launching([&]() -> PyObject* {
    if (number < 2) throw Unsupported{};
    const PlanPointer plan = held<PlanPointer>(args[0]);
    void* stream = reinterpret_cast<void*>(word_of(args[1]));
    if (number - 2 != static_cast<Py_ssize_t>(plan->num_slots)) {
      raise(PyExc_TypeError, "the plan has " + std::to_string(plan->num_slots) + " slots, got " +
                                 std::to_string(number - 2) + " values");
    }
    if (plan->driver->current() != plan->context) Py_RETURN_FALSE;
    Value values[256];
    for (Py_ssize_t i = 2; i < number; ++i) values[i - 2] = value_of(exchange_of_tensors(), args[i]);
    if (!satisfies(*plan, values)) Py_RETURN_FALSE;
    enqueue(plan, stream, values);
    Py_RETURN_TRUE;
  });
}

}  // namespace
}  // namespace constrint
