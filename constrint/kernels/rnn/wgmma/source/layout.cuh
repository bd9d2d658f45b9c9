// What the macros of a configuration mean, and where things are.
//
// LAYER_DIM units of a head, LAYER_UNITS of them in a block; LAYER_ROWS sequences of a block; LAYER_DEPTHS warpgroups that
// share the depth of the product; LAYER_WINDOW vectors of the exchange that a thread asks for at once, LAYER_CHUNK of them
// between two waits, LAYER_PROBE whether the first of these are waited for alone; RING steps of the exchange, and FENCE steps between two fences.
//
// The product of a block has a row for each sequence and a column for each gate of each of its units. A thread of the
// matrix unit's result has, of each eight columns, two neighbours 2q and 2q+1 in two rows that are eight apart. Columns
// come as [eight units][gate][unit], so that a thread has all gates of its units, and units are dealt so that all of a
// thread's units of a block are neighbours in memory: of eight e, columns 2q and 2q+1 are units 2E q + 2e and one more.
#pragma once
#include "instructions.cuh"

constexpr int kDim = LAYER_DIM, kUnits = LAYER_UNITS, kBlocks = kDim / kUnits;
constexpr int kEights = kUnits / 8, kPairs = kEights;  // groups of eight units; pairs of units that a thread has
// Forward a column for each gate of each unit of the block, and h goes through the product; backward a column for each
// unit, and the gradients of all gates go through it.
#ifndef LAYER_BACKWARD
#define LAYER_BACKWARD 0
#endif
constexpr int kColumnGates = LAYER_BACKWARD ? 1 : GATES, kDepthGates = LAYER_BACKWARD ? GATES : 1;
constexpr int kColumns = kColumnGates * kUnits, kSums = kColumns / 2;
constexpr int kGiven = kDepthGates * kEights;  // groups of eight along the depth that a block gives to the exchange

// Sequences: tiles of 16 for each warp, of which a warpgroup has four.
constexpr int kRows = LAYER_ROWS, kTiles = kRows / 16, kRowGroups = (kTiles + 3) / 4;
constexpr int kDepthGroups = LAYER_DEPTHS, kThreads = 128 * kRowGroups * kDepthGroups;
// Of a thread's two rows, those that it computes: with two depth groups each has one.
constexpr int kOwnRows = 2 / kDepthGroups;

// The depth, in matrix instructions of 16, and those of a warpgroup.
constexpr int kDepth = kDepthGates * kDim, kSteps = kDepth / 16, kOwnSteps = kSteps / kDepthGroups;
constexpr int kChunk = LAYER_CHUNK, kChunks = kOwnSteps / kChunk;
constexpr bool kProbes = LAYER_PROBE;
constexpr int kSlots = LAYER_WINDOW / kChunk < kChunks ? LAYER_WINDOW / kChunk : kChunks;

// Weights in shared memory: slices of 64 along the depth, a line of 128 bytes for each column.
constexpr int kSliceBytes = kColumns * 128, kSlices = (kSteps + 3) / 4;
constexpr int kWeightBytes = kSlices * kSliceBytes;
// Sums that warpgroups hand to each other: two copies of two floats for every eight columns and thread.
constexpr int kHandedFloats = kDepthGroups > 1 ? kSums / 2 * kThreads : 0;
constexpr int kHandedBytes = 2 * 4 * kHandedFloats, kBiasBytes = LAYER_BACKWARD ? 0 : 4 * kColumns;
constexpr int kHandedAt = kWeightBytes, kBiasAt = kHandedAt + kHandedBytes, kSharedBytes = kBiasAt + kBiasBytes;

// The exchange: vectors of a step of a group of blocks.
constexpr int kStepVectors = kSteps * kTiles * 32;

static_assert(kDim % 16 == 0 && kDim % kUnits == 0 && kUnits % 8 == 0, "blocks have whole eights of units");
static_assert(kColumns <= 256, "what wgmma takes");
static_assert(kRows % 16 == 0 && kThreads <= 1024, "warps have whole tiles of 16 sequences");
static_assert(kDepthGroups == 1 || 4 * kRowGroups <= 15, "two warps that meet have a barrier of their own, besides 0");
static_assert(kDepthGroups == 1 || kDepthGroups == 2 && kSteps % 8 == 0, "halves of the depth have whole slices");
static_assert(kOwnSteps % kChunk == 0, "the depth has whole chunks");
static_assert(kSlots == kChunks || kSlots > 1, "a chunk is asked for while another one is multiplied");
static_assert(RING >= 2 * FENCE + 2, "a word is written again after both of its sides have passed a fence");
#ifdef LAYER_SHARED_BYTES
static_assert(kSharedBytes == LAYER_SHARED_BYTES, "the host predicts the shared memory of a block");
#endif

// The first unit of a block's pair: units of a thread are neighbours.
__device__ __forceinline__ constexpr int unit_of_pair(int q, int eight) { return 2 * kEights * q + 2 * eight; }

// Where a gate of a unit of the head stands along the depth of the product; forward there is one, h.
__device__ __forceinline__ constexpr int depth_of_unit(int unit, int gate) {
  const int within = unit % kUnits, q = within / (2 * kEights), eight = within % (2 * kEights) / 2;
  return (unit - within) * kDepthGates + 8 * (kDepthGates * eight + gate) + 2 * q + within % 2;
}

// The column of a gate of a unit of the block.
__device__ __forceinline__ constexpr int column_of(int gate, int unit) {
  const int q = unit / (2 * kEights), eight = unit % (2 * kEights) / 2;
  return 8 * (kColumnGates * eight + gate) + 2 * q + unit % 2;
}
