// The Python side of launches: drivers, kernels and plans.
#include <chrono>
#include <cstring>
#include <exception>
#include <string>
#include <thread>

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

// Calls `work` and translates its exceptions to Python's; the driver's errors become `driver_error`.
template <typename F>
PyObject* launching(F work, PyObject* driver_error = PyExc_RuntimeError) {
  try {
    return work();
  } catch (const PythonError&) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "a call failed and did not say why");
  } catch (const Unsupported&) {
    PyErr_SetString(PyExc_TypeError, "an argument has another type or size than the core expects");
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const DriverError& error) {
    PyErr_SetString(driver_error, error.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

PyObject* part(PyObject* tuple, Py_ssize_t i) {
  if (!is_list(tuple) || i >= length(tuple)) throw Unsupported{};
  return item(tuple, i);
}

// A 64-bit value: an address, a stream, or an integer with or without a sign.
uint64_t word_of(PyObject* object) {
  if (!PyLong_Check(object)) throw Unsupported{};
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (!overflow) return static_cast<uint64_t>(value);
  const unsigned long long large = PyLong_AsUnsignedLongLong(object);  // refuses negative ones
  if (PyErr_Occurred()) throw PythonError{};
  return large;
}

int64_t small(PyObject* object, int64_t least, int64_t most) {
  const int64_t value = integer(object);
  if (value < least || value > most) throw Unsupported{};
  return value;
}

PyObject* open_driver_of(PyObject*, PyObject* args) {
  const char *kind, *library;
  if (!PyArg_ParseTuple(args, "ss", &kind, &library)) return nullptr;
  return launching([&]() -> PyObject* { return capsule(std::unique_ptr<Driver>(open_driver(kind, library))); },
                   PyExc_OSError);
}

PyObject* current_of(PyObject*, PyObject* object) {
  return launching([&]() -> PyObject* { return PyLong_FromVoidPtr(held<Driver>(object).current()); });
}

PyObject* load_kernel(PyObject*, PyObject* args) {
  PyObject *object, *image;
  const char* name;
  if (!PyArg_ParseTuple(args, "OO!s", &object, &PyBytes_Type, &image, &name)) return nullptr;
  return launching([&]() -> PyObject* {
    const Loaded made = held<Driver>(object).load(PyBytes_AsString(image), name);
    Ref function(PyLong_FromVoidPtr(made.function));
    return Py_BuildValue("(Oiii)", function.get(), made.registers, made.local_bytes, made.max_threads);
  });
}

unsigned shared_bytes_of(PyObject* given) { return static_cast<unsigned>(small(given, 0, INT32_MAX)); }
unsigned threads_of(PyObject* given) { return static_cast<unsigned>(small(given, 1, 1024)); }

// Blocks of a cluster; throws where the driver has none.
unsigned cluster_of(const Driver& driver, PyObject* given) {
  const unsigned cluster = static_cast<unsigned>(small(given, 1, kMaxCluster));
  if (cluster > 1 && !driver.has_clusters()) throw DriverError{"the driver has no clusters"};
  return cluster;
}

void* function_of(PyObject* given) {
  void* function = reinterpret_cast<void*>(word_of(given));
  if (!function) throw Unsupported{};
  return function;
}

PyObject* allow_kernel(PyObject*, PyObject* args) {
  PyObject *object, *function, *shared, *cluster;
  if (!PyArg_ParseTuple(args, "OOOO", &object, &function, &shared, &cluster)) return nullptr;
  return launching([&]() -> PyObject* {
    const Driver& driver = held<Driver>(object);
    driver.allow(function_of(function), shared_bytes_of(shared), cluster_of(driver, cluster));
    Py_RETURN_NONE;
  });
}

PyObject* resident_blocks(PyObject*, PyObject* args) {
  PyObject *object, *function, *threads, *shared, *cluster, *sms;
  if (!PyArg_ParseTuple(args, "OOOOOO", &object, &function, &threads, &shared, &cluster, &sms)) return nullptr;
  return launching([&]() -> PyObject* {
    const Driver& driver = held<Driver>(object);
    LaunchShape shape{};
    shape.function = function_of(function);
    shape.threads = threads_of(threads);
    shape.shared_bytes = shared_bytes_of(shared);
    shape.cluster = cluster_of(driver, cluster);
    const int64_t blocks = driver.resident(shape, static_cast<unsigned>(small(sms, 1, INT32_MAX)));
    if (blocks < 0) Py_RETURN_NONE;
    return PyLong_FromLongLong(blocks);
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

uint32_t slot_of(const Plan& plan, PyObject* slot) {
  return static_cast<uint32_t>(small(slot, 0, static_cast<int64_t>(plan.num_slots) - 1));
}

// Sets the content of a slot; throws where two contents conflict.
uint32_t slot_of(Plan& plan, PyObject* given, SlotKind kind) {
  const uint32_t slot = slot_of(plan, given);
  if (plan.kinds[slot] != SlotKind::kUnused && plan.kinds[slot] != kind) throw Unsupported{};
  plan.kinds[slot] = kind;
  return slot;
}

std::vector<int64_t> within(PyObject* numbers, size_t count, int64_t least, int64_t most) {
  std::vector<int64_t> values = integers(numbers);
  if (values.size() != count) throw Unsupported{};
  for (int64_t value : values) {
    if (value < least || value > most) throw Unsupported{};
  }
  return values;
}

TensorMapShape map_of(PyObject* argument) {
  PyObject* block = part(argument, 7);
  const size_t rank = is_list(block) ? static_cast<size_t>(length(block)) : 0;
  if (!rank || rank > kMaxMapAxes) throw Unsupported{};
  TensorMapShape map{static_cast<int>(small(part(argument, 3), 0, 64)),
                     static_cast<int>(small(part(argument, 4), 1, 16)),
                     static_cast<int>(small(part(argument, 5), 0, 16)),
                     integer(part(argument, 6)) != 0,
                     within(block, rank, 1, kMaxMapBlock),
                     within(part(argument, 8), rank, 1, kMaxMapSize),
                     within(part(argument, 9), rank, 0, kMaxMapStride)};
  if (map.strides.back() != 1) throw Unsupported{};
  return map;
}

void add_argument(Plan& plan, Step& step, PyObject* argument) {
  const std::string_view kind = text_of(part(argument, 0));
  if (step.offsets.size() == kMaxArguments) throw Unsupported{};
  auto patch = [&](Patch::Kind what, int64_t bytes, PyObject* slot, int64_t shift) {
    const bool is_float = what == Patch::kFloat32 || what == Patch::kFloat64;
    step.patches.push_back({what, static_cast<uint8_t>(bytes), step.offsets.back(),
                            slot_of(plan, slot, is_float ? SlotKind::kFloat : SlotKind::kWord), shift});
    if (bytes < 8) plan.narrow.push_back(step.patches.back());
  };
  if (kind == "bytes") {
    char* data = nullptr;
    Py_ssize_t size = 0;
    if (PyBytes_AsStringAndSize(part(argument, 1), &data, &size)) throw PythonError{};
    if (size < 1 || size > 8) throw Unsupported{};
    std::memcpy(append(step, static_cast<size_t>(size), 8), data, static_cast<size_t>(size));
  } else if (kind == "integer") {
    const int64_t bytes = small(part(argument, 1), 1, 8);
    append(step, static_cast<size_t>(bytes), 8);
    patch(Patch::kInteger, bytes, part(argument, 2), integer(part(argument, 3)));
  } else if (kind == "fp32" || kind == "fp64") {
    append(step, kind == "fp32" ? 4 : 8, 8);
    patch(kind == "fp32" ? Patch::kFloat32 : Patch::kFloat64, 8, part(argument, 1), 0);
  } else if (kind == "map") {
    TensorMap map{};
    plan.driver->encode(map, map_of(argument));
    std::memcpy(append(step, sizeof map, alignof(TensorMap)), map.bytes, sizeof map);
    patch(Patch::kTensorMap, 8, part(argument, 1), integer(part(argument, 2)));
  } else {
    throw Unsupported{};
  }
}

// The numbers of a part of a step.
template <size_t kCount>
void numbers_of(PyObject* given, int64_t least, int64_t most, int32_t (&into)[kCount]) {
  const std::vector<int64_t> numbers = within(given, kCount, least, most);
  std::copy(numbers.begin(), numbers.end(), into);
}

Step product_of(Plan& plan, PyObject* given) {
  if (!has_blas()) throw DriverError{"there is no library for products"};
  Step step;
  step.kind = Step::kProduct;
  numbers_of(part(given, 1), 0, 1, step.product.operations);
  numbers_of(part(given, 2), 1, INT32_MAX, step.product.sizes);
  numbers_of(part(given, 3), 0, UINT8_MAX, step.product.types);
  numbers_of(part(given, 4), 1, INT32_MAX, step.product.strides);
  for (int which = 0; which < 3; ++which) {
    step.operands[which] = slot_of(plan, part(part(given, 5), which), SlotKind::kWord);
  }
  plan.multiplies = true;
  return step;
}

// The bits of a factor: a float's, or those of an int of 32 bits.
uint32_t factor_of(PyObject* object) {
  uint32_t bits;
  if (PyFloat_Check(object)) {
    const float factor = static_cast<float>(PyFloat_AsDouble(object));
    std::memcpy(&bits, &factor, sizeof bits);
  } else {
    const int32_t factor = static_cast<int32_t>(small(object, INT32_MIN, INT32_MAX));
    std::memcpy(&bits, &factor, sizeof bits);
  }
  return bits;
}

// ("matmul", handle, description, layouts of A, B, C and D, (alpha, beta), algorithm, bytes of workspace,
// slots of A, B, C, D, bias and workspace; -1 for a bias or a workspace that it lacks)
Step matmul_of(Plan& plan, PyObject* given) {
  if (!has_matmul()) throw DriverError{"there is no library for products with epilogues"};
  Step step;
  step.kind = Step::kMatmul;
  auto matmul = std::make_shared<Matmul>();
  matmul->handle = function_of(part(given, 1));
  matmul->description = function_of(part(given, 2));
  for (int which = 0; which < 4; ++which) matmul->layouts[which] = function_of(part(part(given, 3), which));
  matmul->alpha = factor_of(part(part(given, 4), 0));
  matmul->beta = factor_of(part(part(given, 4), 1));
  char* data = nullptr;
  Py_ssize_t size = 0;
  if (PyBytes_AsStringAndSize(part(given, 5), &data, &size)) throw PythonError{};
  if (size != static_cast<Py_ssize_t>(sizeof matmul->algorithm)) throw Unsupported{};
  std::memcpy(matmul->algorithm, data, sizeof matmul->algorithm);
  matmul->workspace_bytes = static_cast<size_t>(small(part(given, 6), 0, int64_t{1} << 40));
  PyObject* slots = part(given, 7);
  for (int which = 0; which < 6; ++which) {
    const bool is_absent = which > 3 && integer(part(slots, which)) == -1;
    step.operands[which] = is_absent ? kNoSlot : slot_of(plan, part(slots, which), SlotKind::kWord);
  }
  matmul->has_bias = step.operands[4] != kNoSlot;
  if (matmul->workspace_bytes && step.operands[5] == kNoSlot) throw Unsupported{};
  step.matmul = std::move(matmul);
  return step;
}

Step step_of(Plan& plan, PyObject* given) {
  Step step;
  const std::string_view kind = text_of(part(given, 0));
  if (kind == "matmul") return matmul_of(plan, given);
  if (kind == "product") return product_of(plan, given);
  if (kind == "fill") {
    step.kind = Step::kFill;
    step.slot = slot_of(plan, part(given, 1), SlotKind::kWord);
    step.shift = integer(part(given, 2));
    step.words = static_cast<size_t>(small(part(given, 3), 0, kMaxWords));
    step.value = static_cast<uint32_t>(small(part(given, 4), 0, UINT32_MAX));
    return step;
  }
  if (kind != "kernel") throw Unsupported{};
  step.shape.function = function_of(part(given, 1));
  for (int axis = 0; axis < 3; ++axis) {
    step.shape.grid[axis] = static_cast<unsigned>(small(part(part(given, 2), axis), 1, INT32_MAX));
  }
  step.shape.threads = threads_of(part(given, 3));
  step.shape.shared_bytes = shared_bytes_of(part(given, 4));
  step.shape.cluster = cluster_of(*plan.driver, part(given, 5));
  step.shape.cooperative = integer(part(given, 6)) != 0;
  step.shape.dependent = integer(part(given, 7)) != 0;
  PyObject* arguments = part(given, 8);
  if (!is_list(arguments)) throw Unsupported{};
  for (Py_ssize_t i = 0; i < length(arguments); ++i) add_argument(plan, step, item(arguments, i));
  return step;
}

Demand demand_of(const Plan& plan, PyObject* given) {
  const std::string_view kind = text_of(part(given, 0));
  Demand demand{};
  demand.slot = slot_of(plan, part(given, 1));
  demand.value = integer(part(given, 2));
  if (plan.kinds[demand.slot] == SlotKind::kFloat) throw Unsupported{};
  if (kind == "multiple" && demand.value > 0) {
    demand.kind = Demand::kMultiple;
  } else if (kind == "equal") {
    demand.kind = Demand::kEqual;
  } else if (kind == "int32") {
    demand.kind = Demand::kInt32;
  } else {
    throw Unsupported{};
  }
  return demand;
}

PyObject* make_plan(PyObject*, PyObject* args) {
  PyObject *object, *slots, *steps, *demands;
  if (!PyArg_ParseTuple(args, "OOOO", &object, &slots, &steps, &demands)) return nullptr;
  return launching([&]() -> PyObject* {
    Plan plan;
    plan.driver = &held<Driver>(object);
    plan.context = plan.driver->current();
    plan.num_slots = static_cast<uint32_t>(small(slots, 0, kMaxSlots));
    if (!is_list(steps) || !is_list(demands)) throw Unsupported{};
    for (Py_ssize_t i = 0; i < length(steps); ++i) plan.steps.push_back(step_of(plan, item(steps, i)));
    for (Py_ssize_t i = 0; i < length(demands); ++i) plan.demands.push_back(demand_of(plan, item(demands, i)));
    Py_INCREF(object);  // drivers are few and stay for good
    return capsule(std::make_unique<PlanPointer>(std::make_shared<const Plan>(std::move(plan))));
  });
}

PyObject* g_blas_handle = nullptr;  // gives the address of this thread's handle, on the current stream

// use_blas(address of cublasGemmEx, address of cublasSetMathMode, function that returns the handle)
PyObject* use_blas_of(PyObject*, PyObject* args) {
  PyObject *multiply, *set_math_mode, *handle;
  if (!PyArg_ParseTuple(args, "OOO", &multiply, &set_math_mode, &handle)) return nullptr;
  return launching([&]() -> PyObject* {
    if (!PyCallable_Check(handle)) throw Unsupported{};
    use_blas(function_of(multiply), function_of(set_math_mode));
    Py_INCREF(handle);  // never released
    g_blas_handle = handle;
    Py_RETURN_NONE;
  });
}

// use_matmul(address of cublasLtMatmul, address of cublasLtMatmulDescSetAttribute)
PyObject* use_matmul_of(PyObject*, PyObject* args) {
  PyObject *multiply, *set_attribute;
  if (!PyArg_ParseTuple(args, "OO", &multiply, &set_attribute)) return nullptr;
  return launching([&]() -> PyObject* {
    use_matmul(function_of(multiply), function_of(set_attribute));
    Py_RETURN_NONE;
  });
}

// Enqueues a plan without the interpreter's lock.
void enqueue(const PlanPointer& plan, void* stream, const Value* values) {
  void* blas = nullptr;
  if (plan->multiplies) {
    Ref handle(interpreted([&] { return PyObject_CallNoArgs(g_blas_handle); }));
    blas = function_of(handle.get());
  }
  std::exception_ptr failure;
  PyThreadState* state = PyEval_SaveThread();
  try {
    run(*plan, stream, values, blas);
  } catch (const std::exception&) {
    failure = std::current_exception();
  }
  interpreted([&] { PyEval_RestoreThread(state); });
  if (failure) std::rethrow_exception(failure);
}

// A tensor, a number, or None as the value of a slot.
Value value_of(const Exchange* exchange, PyObject* object, SlotKind kind) {
  if (kind == SlotKind::kFloat || (kind == SlotKind::kUnused && PyFloat_Check(object))) {
    if (!PyFloat_Check(object) && !PyLong_Check(object)) throw Unsupported{};
    const double number = PyFloat_AsDouble(object);
    if (number == -1 && PyErr_Occurred()) throw PythonError{};
    Value bits;
    std::memcpy(&bits, &number, 8);
    return bits;
  }
  if (PyLong_Check(object)) return word_of(object);
  if (object == Py_None) return 0;
  if (PyFloat_Check(object)) throw Unsupported{};
  if (exchange && is_plain_tensor(object)) {
    DlTensor tensor;
    if (exchange->view(object, &tensor)) throw PythonError{};
    return address_of(tensor);
  }
  static PyObject* name = PyUnicode_InternFromString("data_ptr");
  Ref address(interpreted([&] { return PyObject_CallMethodObjArgs(object, name, nullptr); }));
  return word_of(address.get());
}

// launch(plan, stream, *values): False where the values are not of the kind that the plan is for.
PyObject* launch_plan(PyObject*, PyObject* const* args, Py_ssize_t number) {
  return launching([&]() -> PyObject* {
    if (number < 2) throw Unsupported{};
    const PlanPointer plan = held<PlanPointer>(args[0]);
    if (plan->multiplies) raise(PyExc_TypeError, "a library's product runs on the current stream: ask a table for it");
    void* stream = reinterpret_cast<void*>(word_of(args[1]));
    if (number - 2 != static_cast<Py_ssize_t>(plan->num_slots)) {
      raise(PyExc_TypeError, "the plan has " + std::to_string(plan->num_slots) + " slots, got " +
                                 std::to_string(number - 2) + " values");
    }
    if (!is_current(*plan)) Py_RETURN_FALSE;
    Value values[kMaxSlots];
    for (uint32_t i = 0; i < plan->num_slots; ++i) {
      values[i] = value_of(exchange_of_tensors(), args[i + 2], plan->kinds[i]);
    }
    if (!satisfies(*plan, values)) Py_RETURN_FALSE;
    const int64_t slot = misfit(*plan, values);
    if (slot >= 0) raise(PyExc_OverflowError, "the integer of slot " + std::to_string(slot) + " is too large");
    enqueue(plan, stream, values);
    Py_RETURN_TRUE;
  });
}

}  // namespace
}  // namespace constrint
