// What gcc 12's static libstdc++ takes from the glibc that it was built with, for a library that runs with glibc 2.31.
#include <stdint.h>
#include <sys/random.h>

// False: the library always assumes other threads.
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;

// Behind std::random_device.
__attribute__((visibility("hidden"))) uint32_t arc4random(void) {
  uint32_t value;
  while (getrandom(&value, sizeof(value), 0) != sizeof(value)) {
  }
  return value;
}
