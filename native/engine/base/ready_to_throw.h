// The C library allocates a thread's storage for exceptions when the thread first throws, and ends the
// process when there is no memory for it. A thread that must report that memory has run out calls this while
// there is some; a later call costs one load.
#pragma once

#include <exception>

namespace smdp {

inline void be_ready_to_throw() {
  [[maybe_unused]] volatile int thrown =
      std::uncaught_exceptions();  // volatile: the call may not be left out
}

}  // namespace smdp
