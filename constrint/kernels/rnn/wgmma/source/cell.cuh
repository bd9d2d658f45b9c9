// The cells, and what every recurrent kernel in CUDA C++ does alike: those of `rnn/cuda/source`.
//
// Their headers ask for a layout of blocks and warps, which nothing here uses: it is any one that they accept. The names
// that count here are those of the cell, DTYPE, and what follows: GATES, STATES, SLOTS, APART, `element`.
#pragma once

#define IS_BACKWARD 0
#define HEAD_DIM 32
#define UNITS 32
#define TILE_BATCH 8
#define TILES 1
#define PLACEMENT 2
#define WARPS_ROWS 1
#define WARPS_DEPTH 1
#define REGISTER_PAIRS 0
#define STREAMED_PAIRS 0
#define PREFETCH 2
#include "cells.cuh"

static_assert(DTYPE < 2, "elements of 16 bits, two in a word");
