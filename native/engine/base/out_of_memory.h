// What keeps the engine able to report that memory has run out.
#pragma once

#include <exception>
#include <new>

namespace smdp {

// The C library allocates a thread's storage for exceptions when the thread first throws, and ends the
// process when there is no memory for it. A thread that must report that memory has run out calls this while
// there is some; a later call costs one load.
inline void be_ready_to_throw() {
  [[maybe_unused]] volatile int thrown =
      std::uncaught_exceptions();  // volatile: the call may not be left out
}

// For what nothing else repeats: where memory runs out on the way, a second try completes it. Noexcept: where
// memory runs out in that one too, the process ends, and the other ranks notice that.
template <typename Action>
void with_second_try(const Action& action) {
  try {
    action();
  } catch (const std::bad_alloc&) {
    [&]() noexcept { action(); }();
  }
}

}  // namespace smdp
