/* Preloaded: the time of day is SHIFT_S seconds ahead. The steady clocks stay as they are. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec* at) {
  const int result = (int)syscall(SYS_clock_gettime, clock, at);
  const char* shift = getenv("SHIFT_S");
  if (result == 0 && clock == CLOCK_REALTIME && shift != NULL) {
    at->tv_sec += atol(shift);
  }
  return result;
}
