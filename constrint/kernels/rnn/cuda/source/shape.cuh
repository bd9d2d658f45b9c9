// What the macros of a configuration mean: sizes that all parts of the kernels share.
//
// CELL_GATES, CELL_STATES, CELL_PARAMS; CELL_APART, whether the two parts of the last gate are slots of their own;
// CELL_READS_H, CELL_READS_NEW, whether a backward step reads h before and the others after it; IS_BACKWARD; DTYPE 0 fp16, 1 bf16, 2 fp32 through tf32,
// 3 fp32; HEAD_DIM; UNITS of a head that a
// block has; TILE_BATCH sequences of a tile; TILES that a block has, one after the other; PLACEMENT 0 one block,
// 1 a cluster, 2 the grid; WARPS_ROWS x WARPS_DEPTH warps; of each warp's pieces of the depth REGISTER_PAIRS have their
// weights in registers and STREAMED_PAIRS in global memory, the others in shared memory.
#pragma once

#ifndef DTYPE
#define DTYPE IS_BF16
#endif
constexpr bool IS_WIDE = DTYPE > 1;
#if DTYPE > 1
using element = float;
#else
using element = unsigned short;
#endif
// Elements of a vector of 16 bytes, and of a piece of the depth: one vector for each of a row's four lanes.
constexpr int VECTOR = 16 / sizeof(element), PIECE = 4 * VECTOR;

constexpr int D = HEAD_DIM, U = UNITS, BLOCKS = D / U, NB = TILE_BATCH, NT = (NB + 7) / 8;
// Four sequences take the eight columns of an instruction twice, so that a thread has one of them and not two.
constexpr bool DOUBLED = NB == 4;
constexpr int COLUMNS = DOUBLED ? 1 : 2;  // of a tile of eight that a thread has
constexpr int MW = WARPS_ROWS, KW = WARPS_DEPTH, WARPS = MW * KW, THREADS = 32 * WARPS;
constexpr int GATES = CELL_GATES, STATES = CELL_STATES;
constexpr bool APART = CELL_APART, READS_H = CELL_READS_H, READS_NEW = CELL_READS_NEW;
constexpr int SLOTS = GATES + APART;

// The product: ROWS of this block by NB sequences, DEPTH deep. What is exchanged is NB x DEPTH.
constexpr int ROWS = IS_BACKWARD ? U : GATES * U;
constexpr int DEPTH = IS_BACKWARD ? GATES * D : D;
constexpr int PARTS = IS_BACKWARD ? GATES : 1;  // what a unit gives to the exchange
constexpr int EIGHTS = ROWS / 8 / MW;           // groups of eight rows of a warp
constexpr int MT = (EIGHTS + 1) / 2;            // tiles of 16 rows of a warp; of the last one perhaps the first half
constexpr int PAIRS = DEPTH / PIECE, KP = (PAIRS + KW - 1) / KW;  // pieces of the depth, of all and of a warp
constexpr int RP = REGISTER_PAIRS < KP ? REGISTER_PAIRS : KP, LP = STREAMED_PAIRS < KP - RP ? STREAMED_PAIRS : KP - RP;
constexpr int SP = KP - RP - LP;
constexpr bool EVEN = PAIRS % KW == 0;
constexpr bool SUMS = KW > 1;  // partial sums of warps meet in shared memory
// Sums that a warp makes beside each other where few instructions do not depend on each other.
constexpr int CHAINS = MT * NT <= 2 ? 2 : 1;

// Rows in order of pairs of gates, 8 units each, so that a thread has all four gates of a unit; else gate after gate,
// 16 units each.
constexpr bool PAIRED = !IS_BACKWARD && GATES == 4;

// Partial sums stand by unit and sequence with all gates beside each other; where a unit has one row, by row.
constexpr bool GATHERED = !IS_BACKWARD && GATES > 1;
constexpr int UNIT_TILES = IS_BACKWARD ? 1 : PAIRED ? 2 : GATES;  // tiles of rows that have all of a unit
constexpr int SUM_STRIDE = DOUBLED ? 4 : NT == 1 ? 8 : NB + 8;    // floats between rows: what a chunk reads is in different banks
constexpr int SUM_FLOATS = !SUMS ? 0 : GATHERED ? KW * U * NB * 4 : KW * ROWS * SUM_STRIDE;
// Elements between sequences of what is exchanged: eight sequences, 64 bytes each, are in different banks.
constexpr int OPERAND_STRIDE = DEPTH + (DEPTH % (2 * PIECE) == 0 ? PIECE : 0);
constexpr int OPERAND_COPIES = PLACEMENT == 2 ? 0 : PLACEMENT == 1 || !SUMS ? 2 : 1;
constexpr int OPERAND_ELEMENTS = NB * OPERAND_STRIDE;

// What a step reads: projected inputs; or pre-activations, states before and after, and gradients of the states.
constexpr int INPUTS = IS_BACKWARD ? SLOTS + READS_H + (READS_NEW ? 2 : 1) * (STATES - 1) + STATES : GATES;
constexpr int INPUT_COPIES = PREFETCH + 1;
// What a step writes: states and pre-activations; or the gradients of the slots.
constexpr int OUTPUTS = IS_BACKWARD ? SLOTS : STATES + GATES;
constexpr int OUTPUT_COPIES = SUMS || PLACEMENT == 2 ? 1 : 2;  // where two barriers divide writing from reading, one will do
// Elements between the units of neighbouring sequences in both: eight sequences by four units are in different banks.
constexpr int STEP_STRIDE = U + VECTOR;

// Elements of the pointwise part that a thread has.
constexpr int CHUNK_UNITS = DOUBLED ? 8 : 4, CHUNKS = U / CHUNK_UNITS * NT;  // a unit and a sequence for each lane
constexpr int UNIT_EIGHTS = U / 8 / MW;  // groups of eight units of a warp
constexpr int ITEMS = SUMS ? (CHUNKS + WARPS - 1) / WARPS : UNIT_EIGHTS * NT * COLUMNS;

static_assert(D % U == 0 && D % PIECE == 0, "blocks have whole units, and the depth is made of pieces");
static_assert(U % (8 * MW) == 0 && (IS_BACKWARD || PAIRED || U % (16 * MW) == 0), "warps have whole units");
static_assert(NB == 8 * NT && (NT == 1 || NT == 2 || NT == 4) || DOUBLED, "tiles of 8, 16, 32 sequences, or 4");
static_assert(PREFETCH > 1, "a step's inputs are there when the step before it has met");
static_assert(PLACEMENT != 0 || U == D, "one block has the whole head");

// Shared memory, in bytes from its start.
constexpr int WEIGHT_BYTES = WARPS * SP * EIGHTS * 512;
constexpr int OPERAND_BYTES = TILES * OPERAND_COPIES * OPERAND_ELEMENTS * sizeof(element);
constexpr int SUM_BYTES = SUM_FLOATS * 4;
constexpr int CARRY_BYTES = TILES > 1 ? TILES * STATES * ITEMS * THREADS * 4 : 0;
constexpr int OPERAND_AT = WEIGHT_BYTES, SUM_AT = OPERAND_AT + OPERAND_BYTES;
constexpr int INPUT_BYTES = INPUT_COPIES * INPUTS * NB * STEP_STRIDE * sizeof(element);
constexpr int OUTPUT_BYTES = OUTPUT_COPIES * OUTPUTS * NB * STEP_STRIDE * sizeof(element);
constexpr int CARRY_AT = SUM_AT + SUM_BYTES, INPUT_AT = CARRY_AT + CARRY_BYTES, OUTPUT_AT = INPUT_AT + INPUT_BYTES;
constexpr int BARRIER_AT = OUTPUT_AT + OUTPUT_BYTES;
constexpr int TABLE_AT = BARRIER_AT + (PLACEMENT == 1 ? 16 * TILES : 0), SHARED_BYTES = TABLE_AT + TILES * NB * 8;
#ifdef EXPECTED_SHARED_BYTES
static_assert(SHARED_BYTES == EXPECTED_SHARED_BYTES, "the host predicts the shared memory of a block");
#endif
