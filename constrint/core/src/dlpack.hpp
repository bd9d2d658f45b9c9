// Tensors without their library's headers: DLPack's exchange interface (its version 1), found on torch.Tensor.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>

namespace constrint {

// As `DLTensor` of dlpack.h.
struct DlTensor {
  void* data;
  struct {
    int32_t type, index;
  } device;
  int32_t num_axes;
  struct {
    uint8_t code, bits;
    uint16_t lanes;
  } element;
  int64_t* shape;
  int64_t* strides;
  uint64_t offset;
};

// As `DLPackExchangeAPI` of dlpack.h.
struct Exchange {
  struct {
    uint32_t major, minor;
  } version;
  void* older;
  void* allocate;
  void* export_managed;
  void* import_managed;
  int (*view)(void* object, DlTensor* into);  // owns nothing
  int (*stream)(int32_t device_type, int32_t device_index, void** into);
};

constexpr int32_t kCudaDevice = 2, kRocmDevice = 10;
constexpr uint8_t kFloatCode = 2;

inline uint64_t address_of(const DlTensor& tensor) {
  return reinterpret_cast<uint64_t>(tensor.data) + tensor.offset;
}

// Arguments of `use_tensors`: the exact tensor types without overridden behaviour, and their exchange functions.
const Exchange* exchange_of_tensors();
bool is_plain_tensor(PyObject* object);

}  // namespace constrint
