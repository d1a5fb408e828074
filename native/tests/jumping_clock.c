/* Preloaded: the time of day jumps an hour forth and back every 50 ms. The steady clocks stay as they are. */
#define _GNU_SOURCE
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec* at) {
  const int result = (int)syscall(SYS_clock_gettime, clock, at);
  if (result == 0 && clock == CLOCK_REALTIME) {
    at->tv_sec += at->tv_nsec / 50000000 % 2 == 0 ? 3600 : -3600;
  }
  return result;
}

int gettimeofday(struct timeval* at, void* zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  at->tv_sec = now.tv_sec;
  at->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at != NULL) {
    *at = now.tv_sec;
  }
  return now.tv_sec;
}
