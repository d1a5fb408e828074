// What C++ knows of a thread's exceptions lies in storage that the C library makes when the thread first
// throws, and without memory it ends the process there. A thread that must be able to say that there is no
// memory left calls this while there is some; again it costs a load.
#pragma once

#include <exception>

namespace smdp {

inline void be_ready_to_throw() {
  [[maybe_unused]] volatile int thrown =
      std::uncaught_exceptions();  // volatile: the call may not be left out
}

}  // namespace smdp
