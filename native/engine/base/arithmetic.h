// Sets the floating-point modes of the kernels, whatever the modes of the thread are: a script that flushes
// subnormals must not change sums.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#else
#include <fenv.h>
#endif

namespace smdp {

class Arithmetic {
 public:
#if defined(__x86_64__)
  Arithmetic() : before_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
  ~Arithmetic() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#else
  Arithmetic() {
    ::fegetenv(&before_);
    ::fesetenv(FE_DFL_ENV);
  }
  ~Arithmetic() { ::fesetenv(&before_); }

 private:
  fenv_t before_{};
#endif
 public:
  Arithmetic(const Arithmetic&) = delete;
  Arithmetic& operator=(const Arithmetic&) = delete;
};

}  // namespace smdp
