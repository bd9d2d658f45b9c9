// Layer between C++ and the interpreter: references, capsules, errors, and release of the lock in long calls.
// CPython's stable interface of 3.10. Everything is one translation unit (unity.cpp), so this has no internal linkage to
// lose.
#pragma once

#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>

#include "search.hpp"
#include "space.hpp"

namespace constrint {
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

// A model, and how many calls look at it now: it may not change under them.
struct SharedModel {
  Model model;
  std::atomic<int> readers{0};
};
template <>
struct CapsuleName<SharedModel> {
  static constexpr const char* value = "constrint.Model";
};
template <>
struct CapsuleName<Space> {
  static constexpr const char* value = "constrint.Space";
};

struct Walk {
  PyObject* model_capsule;
  Prepared prepared;
  std::vector<std::unique_ptr<DepthFirst>> walkers;
  // Which of them a limit or an error ended in the middle.
  std::vector<bool> broken;
  std::atomic<int> users{0};
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

PyObject* limited(const LimitReached& limit);

// Calls `work` and translates its exceptions to Python's; Unsupported becomes None.
template <typename F>
PyObject* guarded(F work) {
  try {
    return work();
  } catch (const Unsupported&) {
    Py_RETURN_NONE;
  } catch (const LimitReached& limit) {
    return limited(limit);
  } catch (const PythonError&) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "a call failed and did not say why");
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::length_error&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

[[noreturn]] void refuse(PyObject* kind, const char* what) {
  PyErr_SetString(kind, what);
  throw PythonError{};
}

// Calls the interpreter for what may give its lock to another thread. Where the interpreter has ended by then, CPython
// before 3.14 ends this thread by unwinding it, and what unwinds would release objects without the lock: the thread
// waits for the end of the process instead.
template <typename F>
auto interpreted(F work) {
  try {
    return work();
  } catch (...) {
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }
}

// Counts a call that uses something; the last argument says how many may at the same time.
class Use {
 public:
  Use(std::atomic<int>& users, int most) : users_(users) {
    if (++users_ > most) {
      --users_;
      refuse(PyExc_RuntimeError, "another call is using this object");
    }
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  ~Use() { --users_; }

 private:
  std::atomic<int>& users_;
};

constexpr int kManyUsers = 1 << 30;

// A budget whose search can be interrupted. What runs in `run` gives the interpreter's lock up after a millisecond;
// every 20 ms signals are looked at and the caller is asked, with the lock.
class Allowance {
 public:
  Budget budget;
  Allowance(long long cells, long long rows, long long bytes, PyObject* poll) : poll_(poll) {
    if (poll != Py_None && !PyCallable_Check(poll)) refuse(PyExc_TypeError, "poll must be callable or None");
    budget.max_cells = cells;
    budget.max_rows = rows;
    budget.max_bytes = bytes;
    budget.poll = [this](int64_t spent, bool is_hard) { return pause(spent, is_hard); };
  }
  Allowance(const Allowance&) = delete;
  Allowance& operator=(const Allowance&) = delete;
  ~Allowance() { resume(); }

  // `work` must not touch anything of Python.
  template <typename F>
  auto run(F work) {
    struct Inside {
      Allowance& allowance;
      explicit Inside(Allowance& it) : allowance(it) { it.may_release_ = true; }
      ~Inside() { allowance.resume(); }
    } inside(*this);
    return work();
  }

 private:
  bool pause(int64_t spent, bool is_hard) {
    take_lock();
    bool goes_on = interpreted([] { return PyErr_CheckSignals(); }) == 0;
    if (goes_on && poll_ != Py_None) {
      PyObject* answer = interpreted(
          [&] { return PyObject_CallFunction(poll_, "LO", static_cast<long long>(spent), is_hard ? Py_True : Py_False); });
      Py_XDECREF(answer);
      goes_on = answer != nullptr;
    }
    if (goes_on && may_release_) state_ = PyEval_SaveThread();
    return goes_on;
  }
  void take_lock() {
    PyThreadState* state = state_;
    state_ = nullptr;
    if (state) interpreted([&] { PyEval_RestoreThread(state); });
  }
  void resume() {
    may_release_ = false;
    take_lock();
  }

  PyObject* poll_;
  PyThreadState* state_ = nullptr;
  bool may_release_ = false;
};

bool is_list(PyObject* object) { return PyList_Check(object) || PyTuple_Check(object); }

Py_ssize_t length(PyObject* object) { return PyList_Check(object) ? PyList_Size(object) : PyTuple_Size(object); }

PyObject* item(PyObject* object, Py_ssize_t i) {
  return PyList_Check(object) ? PyList_GetItem(object, i) : PyTuple_GetItem(object, i);
}

int64_t integer(PyObject* object) {
  // Neither bool nor numpy's integers: the Python path has the error messages for those.
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

// Calls with no limits of their own.
constexpr long long kUnlimited = int64_t{1} << 62;

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

}  // namespace
}  // namespace constrint
