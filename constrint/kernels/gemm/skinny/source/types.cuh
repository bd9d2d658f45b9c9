// Elements and sums by the dtype, for the GPU and for the CPU that stands in for it in tests.
#pragma once

// DTYPE: 0 fp16, 1 bf16, 2 fp32, 3 e4m3, 4 int8.
#if DTYPE == 4
typedef int sum_t;
#else
typedef float sum_t;
#endif
constexpr int kElement = DTYPE < 2 ? 2 : DTYPE == 2 ? 4 : 1;
