// Elements, sums and results by the dtype, for the GPU and for the CPU that stands in for it.
#pragma once

// DTYPE: 0 fp16, 1 bf16, 2 fp32, 3 e4m3, 4 int8.
#if DTYPE == 4
typedef int sum_t;
typedef int out_t;
#elif DTYPE >= 2
typedef float sum_t;
typedef float out_t;
#else
typedef float sum_t;
typedef unsigned short out_t;
#endif
constexpr int kElement = DTYPE < 2 ? 2 : DTYPE == 2 ? 4 : 1;
