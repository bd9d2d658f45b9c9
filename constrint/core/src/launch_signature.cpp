// Tensors as plans see them: the key of a call, and modes that intercept it.
#include <cstring>

#include "dlpack.hpp"
#include "plan.hpp"

namespace constrint {
namespace {

const Exchange* g_exchange = nullptr;
PyObject* g_types[2] = {nullptr, nullptr};  // torch.Tensor, torch.nn.Parameter

// Alignment of addresses up to this many bytes is part of a key: loads and choices depend on it.
constexpr uint64_t kAddressMask = 127;
constexpr size_t kMaxWords = 256;

// Whether the objects of a class may be given to an exchange: the class says so.
bool is_read_by(const Exchange* exchange, PyObject* type) {
  if (!PyType_Check(type)) return false;
  PyObject* stated = PyObject_GetAttrString(type, "__dlpack_c_exchange_api__");
  const bool is_it = stated && PyCapsule_GetPointer(stated, "dlpack_exchange_api") == exchange;
  Py_XDECREF(stated);
  PyErr_Clear();
  return is_it;
}

// use_tensors(exchange capsule, tensor type, parameter type): False where the interface is another one.
PyObject* use_tensors(PyObject*, PyObject* args) {
  PyObject *object, *tensor, *parameter;
  if (!PyArg_ParseTuple(args, "OOO", &object, &tensor, &parameter)) return nullptr;
  return launching([&]() -> PyObject* {
    const Exchange* exchange = static_cast<const Exchange*>(PyCapsule_GetPointer(object, "dlpack_exchange_api"));
    if (!exchange) throw PythonError{};
    if (exchange->version.major != 1 || !exchange->view || !exchange->stream) Py_RETURN_FALSE;
    if (!is_read_by(exchange, tensor) || !is_read_by(exchange, parameter)) throw Unsupported{};
    g_exchange = exchange;
    Py_INCREF(object);  // kept for good, as the types are
    Py_INCREF(tensor);
    Py_INCREF(parameter);
    g_types[0] = tensor;
    g_types[1] = parameter;
    Py_RETURN_TRUE;
  });
}

}  // namespace

const Exchange* exchange_of_tensors() { return g_exchange; }

bool is_plain_tensor(PyObject* object) {
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  return type == g_types[0] || type == g_types[1];
}

namespace {

struct Signature {
  size_t number = 0;
  int64_t words[kMaxWords];
  uint64_t hash = 1469598103934665603ull;

  bool has_room(int32_t num_axes) const {
    return num_axes >= 0 && number + 3 + 2 * static_cast<size_t>(num_axes) <= kMaxWords;
  }

  void add(int64_t word) {
    words[number++] = word;
    hash = (hash ^ static_cast<uint64_t>(word)) * 1099511628211ull;
    hash ^= hash >> 29;
  }
};

// Whether a tensor has elements but no memory: torch has such that stand for zeros.
bool is_nowhere(const DlTensor& tensor) {
  if (tensor.data) return false;
  for (int32_t axis = 0; axis < tensor.num_axes; ++axis) {
    if (!tensor.shape[axis]) return false;
  }
  return true;
}

// Adds a tensor to the signature; false where it is not one that plans are for.
bool describe(Signature& signature, PyObject* object, DlTensor& tensor) {
  static PyObject* is_neg = PyUnicode_InternFromString("is_neg");
  if (!is_plain_tensor(object)) return false;
  if (g_exchange->view(object, &tensor)) {
    PyErr_Clear();
    return false;
  }
  if (tensor.device.type != kCudaDevice && tensor.device.type != kRocmDevice) return false;
  if (!signature.has_room(tensor.num_axes) || (!tensor.strides && tensor.num_axes)) return false;
  if (is_nowhere(tensor)) return false;
  signature.add(tensor.device.index);
  signature.add((int64_t{tensor.element.code} << 24) | (int64_t{tensor.element.bits} << 16) | tensor.element.lanes);
  signature.add((int64_t{tensor.num_axes} << 8) | static_cast<int64_t>(address_of(tensor) & kAddressMask));
  for (int32_t axis = 0; axis < tensor.num_axes; ++axis) {
    signature.add(tensor.shape[axis]);
    signature.add(tensor.strides[axis]);
  }
  if (tensor.element.code == kFloatCode) {  // views of complex tensors may be negated lazily
    Ref negated(interpreted([&] { return PyObject_CallMethodObjArgs(object, is_neg, nullptr); }));
    if (negated.get() != Py_False) return false;
  }
  return true;
}

// An attribute, or null where there is none.
PyObject* attribute(PyObject* object, PyObject* name) {
  PyObject* found = PyObject_GetAttr(object, name);
  if (!found) PyErr_Clear();
  return found;
}

// Whether a hook of Triton's wants to see launches.
bool has_triton_hooks() {
  static PyObject* knobs = nullptr;
  static PyObject* names[4] = {
      PyUnicode_InternFromString("runtime"), PyUnicode_InternFromString("launch_enter_hook"),
      PyUnicode_InternFromString("launch_exit_hook"), PyUnicode_InternFromString("calls")};
  if (!knobs) {
    PyObject* found = PyDict_GetItemString(PyImport_GetModuleDict(), "triton.knobs");
    if (!found || found == Py_None) return false;
    Py_INCREF(found);
    knobs = found;
  }
  PyObject* runtime = attribute(knobs, names[0]);
  bool found = false;
  for (int which = 1; runtime && which <= 2; ++which) {
    PyObject* hook = attribute(runtime, names[which]);
    if (hook && hook != Py_None) {
      PyObject* calls = attribute(hook, names[3]);
      found |= !calls || !PyList_Check(calls) || PyList_Size(calls) > 0;
      Py_XDECREF(calls);
    }
    Py_XDECREF(hook);
  }
  Py_XDECREF(runtime);
  return found;
}

}  // namespace
}  // namespace constrint
