// Operands whose rows in memory start anywhere, though the TMA unit loads from multiples of 16 bytes alone.
//
// A slice of an operand is lines of 128 bytes, as in `../../source/kernel.cu`. Each line begins at some address in
// memory. A warp copies the nine aligned units of 16 bytes around it to shared memory as they are ("raw"), without a
// register; later each lane takes a line of its own, moves its bytes to where the line begins, and stores the eight
// units where the swizzle wants them. Copies of later slices are under way meanwhile.
//
// What is computed here is plain arithmetic: `tests/kernels/gemm/test_unaligned_lines.py` compiles this file for the CPU.
#pragma once

constexpr int kLine = 128, kUnit = 16, kUnits = kLine / kUnit;
constexpr int kBlockLines = 32;                                      // of a warp, whose lanes have a line each
constexpr int kRawLine = kLine + kUnit, kRawBlock = kBlockLines * kRawLine;

// A matrix as it lies in memory: rows of elements that follow each other.
struct Matrix {
  const unsigned char* first;  // of its first element
  long long pitch, bytes;      // from one row to the next, and from the first element to the end of the last
  int rows;
};

// Where a line of a slice begins in memory. Along K a line belongs to a row of the operand; across K lines are rows of K,
// slab after slab. `first` and `k` are where the slice begins.
template <bool kIsKMajor, int kElementBytes>
__device__ __forceinline__ const unsigned char* line_start(const Matrix& m, int line, int first, int k) {
  constexpr int kWide = kLine / kElementBytes;  // elements of a line, and rows of K of a slab
  const int row = kIsKMajor ? first + line : k + line % kWide;
  const int at = kIsKMajor ? k : first + line / kWide * kWide;
  return m.first + row * m.pitch + static_cast<long long>(at) * kElementBytes;
}

__device__ __forceinline__ unsigned start_in_unit(const unsigned char* start) {
  return static_cast<unsigned>(reinterpret_cast<unsigned long long>(start)) % kUnit;
}

// The aligned unit that an address lies in.
__device__ __forceinline__ const unsigned char* unit_of_address(const unsigned char* at) {
  return reinterpret_cast<const unsigned char*>(reinterpret_cast<unsigned long long>(at) / kUnit * kUnit);
}

// Asks for an aligned unit near the end of a matrix: what lies beyond is not read, and zeros come in its place.
__device__ __forceinline__ void ask_within(const Matrix& m, const unsigned char* from, unsigned raw) {
  const long long left = m.first + m.bytes - from;
  const int size = left >= kUnit ? kUnit : left > 0 ? static_cast<int>(left) : 0;
  copy_unit(raw, size > 0 ? from : unit_of_address(m.first), size);
}

// Asks for what 32 lines are made of: eight lanes for a line, then each for the last unit of a line. A unit may begin
// before its row, or before the matrix, within the 16 bytes that the row begins in. Rows beyond the last one lie beyond
// the matrix.
template <bool kIsKMajor, int kElementBytes>
__device__ __forceinline__ void ask_block(const Matrix& m, unsigned raw, int block, int first, int k, int lane) {
  constexpr int kAtOnce = kBlockLines / kUnits;
  const int line = block * kBlockLines;
  const unsigned char* from =
      line_start<kIsKMajor, kElementBytes>(m, line + lane / kUnits, first, k) + lane % kUnits * kUnit;
  const unsigned char* const own = line_start<kIsKMajor, kElementBytes>(m, line + lane, first, k) + kLine;
  const unsigned to = raw + lane / kUnits * kRawLine + lane % kUnits * kUnit, last = raw + lane * kRawLine + kLine;
  const unsigned char* const end = line_start<kIsKMajor, kElementBytes>(m, line + kBlockLines - 1, first, k) + kRawLine;
  if (end <= m.first + m.bytes) {
#pragma unroll
    for (int turn = 0; turn < kUnits; ++turn, from += kAtOnce * m.pitch)
      copy_unit(to + turn * (kAtOnce * kRawLine), unit_of_address(from));
    copy_unit(last, unit_of_address(own));
  } else {
#pragma unroll 1
    for (int turn = 0; turn < kUnits; ++turn, from += kAtOnce * m.pitch)
      ask_within(m, unit_of_address(from), to + turn * (kAtOnce * kRawLine));
    ask_within(m, unit_of_address(own), last);
  }
}

// The 16 bytes that begin `start` bytes into two units that follow each other.
__device__ __forceinline__ Words moved(const Words& low, const Words& high, unsigned start) {
  unsigned a[8], b[6], c[5];
#pragma unroll
  for (int i = 0; i < 4; ++i) a[i] = low.word[i], a[i + 4] = high.word[i];
#pragma unroll
  for (int i = 0; i < 6; ++i) b[i] = start & 8 ? a[i + 2] : a[i];
#pragma unroll
  for (int i = 0; i < 5; ++i) c[i] = start & 4 ? b[i + 1] : b[i];
  Words out;
#pragma unroll
  for (int i = 0; i < 4; ++i) out.word[i] = upper_of(c[i], c[i + 1], start % 4 * 8);
  return out;
}

// The first bytes of a unit, zeros in the place of the others.
__device__ __forceinline__ Words first_bytes(const Words& unit, int bytes) {
  Words out;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int own = bytes - 4 * i;
    out.word[i] = own >= 4 ? unit.word[i] : own > 0 ? unit.word[i] & ((1u << 8 * own) - 1) : 0u;
  }
  return out;
}

// Moves a line to where wgmma reads it, `to`: 16 bytes of it lie in place u ^ line % 8. Some units are under way together.
template <int kTogether>
__device__ __forceinline__ void move_line(unsigned from, unsigned to, unsigned start, int line) {
  Words low = load_words(from);
#pragma unroll
  for (int first = 0; first < kUnits; first += kTogether) {
    Words high[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) high[i] = load_words(from + (first + i + 1) * kUnit);
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      store_words(to + ((first + i ^ line % 8) * kUnit), rounded(moved(low, high[i], start)));
      low = high[i];
    }
  }
}

// The same with zeros after so many bytes.
__device__ __forceinline__ void move_first_bytes(unsigned from, unsigned to, unsigned start, int line, int bytes) {
#pragma unroll 1
  for (int unit = 0; unit < kUnits; ++unit) {
    const Words whole = moved(load_words(from + unit * kUnit), load_words(from + (unit + 1) * kUnit), start);
    store_words(to + ((unit ^ line % 8) * kUnit), rounded(first_bytes(whole, bytes - unit * kUnit)));
  }
}

// Moves 32 lines; `lines` are all of the slice, and `depth` is K. Beyond K come zeros: in memory it is the next row, and
// a NaN in it would not vanish beside the other operand's zeros.
template <bool kIsKMajor, int kElementBytes, int kTogether>
__device__ __forceinline__ void move_block(
    const Matrix& m, unsigned raw, unsigned slice, int block, int lines, int first, int k, int depth, int lane) {
  constexpr int kWide = kLine / kElementBytes;
  const int line = block * kBlockLines + lane;
  if (line >= lines) return;
  const unsigned start = start_in_unit(line_start<kIsKMajor, kElementBytes>(m, line, first, k));
  const int bytes = kIsKMajor ? (depth - k) * kElementBytes : k + line % kWide < depth ? kLine : 0;
  const unsigned from = raw + lane * kRawLine, to = slice + line * kLine;
  if (bytes >= kLine) {
    move_line<kTogether>(from, to, start, line);
  } else {
    move_first_bytes(from, to, start, line, bytes);
  }
}
