// How parts of a tile's K are added. Included by kernel.cu, whose constants it needs.
#pragma once

// Adds some of a part's sums, from a number on, which are loaded together. Four of a thread lie next to each other.
template <int kNumber>
__device__ __forceinline__ void add_stored(sum_t (&sums)[kBlocks][kSums], const sum_t* stored, int first) {
  constexpr int kAll = kBlocks * kSums;
#pragma unroll
  for (int i = first; i < kAll && i < first + kNumber; i += 4) {
    sum_t four[4];
    load_partials(stored + i * kWarpgroup, four);
#pragma unroll
    for (int j = 0; j < 4; ++j) sums[i / kSums][i % kSums + j] += four[j];
  }
}

// Adds all sums of some parts, which are loaded together; those beyond the last one are passed over.
constexpr int kMostTogether = 16;
template <int kNumber>
__device__ __forceinline__ void add_together(
    sum_t (&sums)[kBlocks][kSums], const sum_t* stored, int first, int parts) {
  constexpr int kAll = kBlocks * kSums;
  sum_t found[kNumber][kAll / 4][4];
#pragma unroll
  for (int part = 0; part < kNumber; ++part) {
#pragma unroll
    for (int i = 0; i < kAll / 4; ++i) {
      // Any part's will do where there is none: they are not added.
      load_partials(stored + (min(first + part, parts - 1) * kAll + 4 * i) * kWarpgroup, found[part][i]);
    }
  }
#pragma unroll
  for (int part = 0; part < kNumber; ++part) {
    if (first + part < parts) {
#pragma unroll
      for (int i = 0; i < kAll; ++i) sums[i / kSums][i % kSums] += found[part][i / 4][i % 4];
    }
  }
}

// Two counters of whoever computes parts of the same sums: how many have begun, and how many have left theirs in memory.
__device__ __forceinline__ unsigned* counters_of(const Unit& u, unsigned* counters, int consumer) {
  return counters + 2 * (u.slot * kByRows * kByColumns + (IN_TURNS ? 0 : consumer));
}

// Parts along K leave their sums in memory. Whoever began last waits for the others and adds all, in order, so that
// results do not depend on who it is; of two it adds the other's to its own. Says whether this one did. Whoever is waited
// for has begun, and waits for none but units with smaller numbers: this ends however many blocks are resident.
__device__ __forceinline__ bool add_parts(
    sum_t (&sums)[kBlocks][kSums], const Unit& u, sum_t* workspace, unsigned* counters, unsigned begun,
    int consumer) {
  // Registers that are left beside all sums hold what is under way: of one part, or of two at a time.
  // The assembler asks for all loads of the other part at once, and about one kernel in 400 spills a few of its other
  // registers for that: such a one is compiled again, sparing.
  constexpr int kAll = kBlocks * kSums, kFree = kConsumerRegisters - kAll - (IS_PLAIN ? 48 : 64) - 16 * SPARES;
  constexpr bool kKeeps = !SPARES && kFree >= 48;  // its own of two parts
  constexpr int kBatch = kFree < 32 ? 8 : kFree > 128 ? 64 : kFree / 16 * 8;
  // Where all sums come at once, those of more than two parts may: every wait is as long as one for a single vector.
  constexpr int kMost = kFree / (2 * kAll), kTogether = kAll > kBatch ? 2 : kMost > kMostTogether ? kMostTogether : kMost;
  const int thread = thread_anew() % kWarpgroup, user = u.slot * kByRows * kByColumns + (IN_TURNS ? 0 : consumer);
  sum_t* const all = workspace + static_cast<long long>(user) * u.parts * kAll * kWarpgroup + thread * 4;
  const bool is_last = named_any(1 + consumer, kWarpgroup, thread == 0 && begun == u.parts - 1);
  if (!is_last || !kKeeps || u.parts > 2) {
#pragma unroll
    for (int i = 0; i < kAll; i += 4) {
      const int block = i / kSums, at = i % kSums;
      const sum_t four[4] = {sums[block][at], sums[block][at + 1], sums[block][at + 2], sums[block][at + 3]};
      store_partials(all + (u.part * kAll + i) * kWarpgroup, four);
    }
  }
  if (!is_last) {
    // One thread speaks for all that it has synchronised with.
    named_sync(1 + consumer, kWarpgroup);
    if (thread == 0) tell(counters_of(u, counters, consumer) + 1);
    return false;
  }
  if (thread == 0) {
    unsigned* const mine = counters_of(u, counters, consumer);
    while (told(mine + 1) != u.parts - 1) {
    }
    mine[0] = mine[1] = 0;
  }
  named_sync(1 + consumer, kWarpgroup);
  if (kKeeps && u.parts == 2) {
    const sum_t* const other = all + (1 - u.part) * kAll * kWarpgroup;
#pragma unroll
    for (int first = 0; first < kAll; first += 48) add_stored<48>(sums, other, first);
    return true;
  }
#pragma unroll
  for (int first = 0; first < kAll; first += kBatch) {
#pragma unroll
    for (int i = first; i < kAll && i < first + kBatch; ++i) sums[i / kSums][i % kSums] = 0;
    if constexpr (kTogether > 2) {
#pragma unroll 1
      for (int part = 0; part < u.parts; part += kTogether) add_together<kTogether>(sums, all, part, u.parts);
    } else {
#pragma unroll 2
      for (int part = 0; part < u.parts; ++part) add_stored<kBatch>(sums, all + part * kAll * kWarpgroup, first);
    }
  }
  return true;
}
