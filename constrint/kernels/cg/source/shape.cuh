// Types and constants that the macros of a configuration stand for.
#pragma once
#if IS_DOUBLE
typedef double real;
#else
typedef float real;
#endif
#if !STENCIL
#if LONG_ROWS
typedef long long row_index;
#else
typedef int row_index;
#endif
#if LONG_COLUMNS
typedef long long column_index;
#else
typedef int column_index;
#endif
#endif
