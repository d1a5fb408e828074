// Replaces the allocation functions in programs that simulate failing allocations.
#include <cstdlib>
#include <new>

#include "lost_memory.h"

// All other allocation functions that the engine uses call these.
void* operator new(std::size_t bytes) {
  if (smdp::simulation::fails_this_allocation()) {
    throw std::bad_alloc();
  }
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) {  // NOLINT(cppcoreguidelines-no-malloc)
    return memory;
  }
  throw std::bad_alloc();
}

void* operator new(std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  try {
    return operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void* operator new[](std::size_t bytes) { return operator new(bytes); }

void operator delete(void* memory) noexcept { std::free(memory); }                 // NOLINT
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }    // NOLINT
void operator delete[](void* memory) noexcept { std::free(memory); }               // NOLINT
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }  // NOLINT
