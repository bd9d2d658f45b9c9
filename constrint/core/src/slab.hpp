// Memory of columns that grow together: long ones lie side by side on large pages, because the first write to each small
// page of fresh memory costs more than what is written there.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

#ifdef __linux__
#include <sys/mman.h>
#endif
#ifdef _WIN32
#include <malloc.h>
#endif

namespace constrint {

constexpr size_t kLargePage = size_t{1} << 21;

// Asks for large pages; it does not matter where this advice is not taken.
inline void expect_writes(void* data, size_t bytes) {
#ifdef MADV_HUGEPAGE
  madvise(data, bytes, MADV_HUGEPAGE);
#else
  (void)data, (void)bytes;
#endif
}

// A block with room for several allocations of one size, given back with the last of them.
class Slab {
 public:
  // During its lifetime, `parts` allocations of this thread with `bytes` bytes each share a block.
  class Shared {
   public:
    Shared(size_t parts, size_t bytes) {
      if (bytes < kLong || parts < 2) return;
      slab_ = make(parts, bytes);
      current() = slab_;
    }
    Shared(const Shared&) = delete;
    Shared& operator=(const Shared&) = delete;
    ~Shared() {
      if (!slab_) return;
      current() = nullptr;
      release(slab_);
    }

   private:
    Slab* slab_ = nullptr;
  };

  // Blocks of at least this many bytes go back to the system at once. From the heap a block is quicker to have again, but
  // what a growing table frees there is too small for its next size, and stays.
  static size_t& mapped_from() {
    static thread_local size_t bytes = kUsuallyMapped;
    return bytes;
  }
  static constexpr size_t kUsuallyMapped = size_t{1} << 25;

  static void* take(size_t bytes) {
    if (bytes < kLong) return ::operator new(bytes);
    Slab* slab = current();
    if (!slab || slab->part_ != bytes || slab->left_ == 0) {
      slab = make(1, bytes);
      void* only = slab->next();
      release(slab);
      return only;
    }
    return slab->next();
  }
  static void give(void* data, size_t bytes) {
    if (bytes < kLong) {
      ::operator delete(data);
    } else {
      release(*owner(data));
    }
  }

 private:
  static constexpr size_t kSmallPage = size_t{1} << 12;
  static constexpr size_t kLine = 64, kLong = size_t{1} << 16;

  static Slab* make(size_t parts, size_t bytes) {
    const size_t part = (bytes + 2 * kLine - 1) / kLine * kLine, least = kLine + parts * part;
    if (bytes > SIZE_MAX / 4 / parts) throw std::bad_alloc();
    const bool large = least >= kLargePage / 4 * 3;
    // A single column ends where it ends: for many of them the rest of a large page each would be more than they are.
    const size_t unit = parts > 1 && large ? kLargePage : large || kLong >= mapped_from() ? kSmallPage : kLine, all = (least + unit - 1) / unit * unit;
    const bool apart = all >= mapped_from();
    void* data = apart ? mapped(all, large ? kLargePage : kSmallPage) : aligned(unit, all);
    if (!data) throw std::bad_alloc();
    if (large) expect_writes(data, all);
    Slab* slab = new (data) Slab;
    slab->mapped_ = apart ? all : 0;
    slab->part_ = bytes;
    slab->left_ = parts;
    slab->free_ = static_cast<char*>(data) + kLine;
    slab->stride_ = part;
    return slab;
  }
  static void release(Slab* slab) {
    if (--slab->users_ > 0) return;
    const size_t mapped = slab->mapped_;
    slab->~Slab();
    if (mapped) {
      unmap(slab, mapped);
    } else {
      free_aligned(slab);
    }
  }
  void* next() {
    char* data = free_ + kLine;
    *owner(data) = this;
    free_ += stride_;
    --left_;
    ++users_;
    return data;
  }
  static Slab** owner(void* data) { return reinterpret_cast<Slab**>(static_cast<char*>(data) - kLine); }
  static Slab*& current() {
    static thread_local Slab* slab = nullptr;
    return slab;
  }
#ifdef __linux__
  static void* mapped(size_t bytes, size_t unit) {
    const size_t all = bytes + unit;
    char* data = static_cast<char*>(mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (data == MAP_FAILED) return nullptr;
    const size_t before = (unit - reinterpret_cast<uintptr_t>(data) % unit) % unit;
    if (before) munmap(data, before);
    if (before < unit) munmap(data + before + bytes, unit - before);
    return data + before;
  }
  static void unmap(void* data, size_t bytes) { munmap(data, bytes); }
#else
  static void* mapped(size_t bytes, size_t unit) { return aligned(unit, bytes); }
  static void unmap(void* data, size_t) { free_aligned(data); }
#endif
#ifdef _WIN32
  static void* aligned(size_t unit, size_t bytes) { return _aligned_malloc(bytes, unit); }
  static void free_aligned(void* data) { _aligned_free(data); }
#else
  static void* aligned(size_t unit, size_t bytes) {
    void* data = nullptr;
    return posix_memalign(&data, unit, bytes) == 0 ? data : nullptr;
  }
  static void free_aligned(void* data) { std::free(data); }
#endif

  // Its maker counts as a user until all parts are handed out.
  std::atomic<int> users_{1};
  size_t part_ = 0, stride_ = 0, left_ = 0, mapped_ = 0;
  char* free_ = nullptr;
};

template <typename T>
struct SlabAllocator {
  using value_type = T;
  SlabAllocator() = default;
  template <typename U>
  SlabAllocator(const SlabAllocator<U>&) {}
  T* allocate(size_t n) {
    if (n > SIZE_MAX / sizeof(T)) throw std::bad_alloc();
    return static_cast<T*>(Slab::take(n * sizeof(T)));
  }
  void deallocate(T* data, size_t n) { Slab::give(data, n * sizeof(T)); }
  template <typename U>
  bool operator==(const SlabAllocator<U>&) const {
    return true;
  }
  template <typename U>
  bool operator!=(const SlabAllocator<U>&) const {
    return false;
  }
};

template <typename T>
using SlabVector = std::vector<T, SlabAllocator<T>>;

}  // namespace constrint
