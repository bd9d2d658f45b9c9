// Products by the BLAS library that torch has loaded, stated here without its headers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace constrint {

// C = op(A) op(B) of column-major matrices, as cublasGemmEx takes it: C has m rows and n columns.
struct Product {
  int32_t operations[2];  // cublasOperation_t of A and B
  int32_t sizes[3];       // m, n, k
  int32_t types[3];       // cudaDataType_t of A, B and C
  int32_t strides[3];     // from column to column of A, B and C
};

// Addresses of cublasGemmEx and cublasSetMathMode; set once.
void use_blas(void* multiply, void* set_math_mode);
bool has_blas();

// Enqueues a product whose sums are of 32 bits, those of parts of K too, on the handle's stream; throws DriverError.
void multiply(const Product& product, void* handle, const void* a, const void* b, void* c);

// D = epilogue(alpha op(A) op(B) + beta C + bias) by cublasLtMatmul, with an algorithm that was chosen before.
struct Matmul {
  void* handle;          // cublasLtHandle_t
  void* description;     // cublasLtMatmulDesc_t
  void* layouts[4];      // cublasLtMatrixLayout_t of A, B, C and D
  uint32_t alpha, beta;   // bits of a float, or of an integer where sums are integers
  uint64_t algorithm[8];  // cublasLtMatmulAlgo_t
  size_t workspace_bytes;
  bool has_bias;
};

// Addresses of cublasLtMatmul and cublasLtMatmulDescSetAttribute; set once.
void use_matmul(void* multiply, void* set_attribute);
bool has_matmul();

// Enqueues a product with its epilogue; `operands` are A, B, C, D, the bias and the workspace. Throws DriverError.
void multiply(const Matmul& matmul, void* stream, void* const (&operands)[6]);

}  // namespace constrint
