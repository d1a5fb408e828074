// Injects faults into the processes of inject_faults.py (LD_PRELOAD): a process injects a fault into itself
// in the middle of a system call of the installed engine, which needs no change for that.
//
// The bytes of the calls show the state of the engine: a hello begins with its magic and ends with the
// welcome, and a frame contains its type. A fault is armed for the n-th call of one kind, and takes place
// before the call, after it, or when half of its bytes are sent. The record is shared with the process that
// judges.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

enum Point : int { kNowhere, kMeeting, kHello, kHostSum, kPublish, kGoodbye, kPoints };
enum Timing : int { kBefore, kAfter, kHalf };
enum Fault : int { kKill, kStop, kExit, kAbort, kMemory, kLink, kCut, kMute, kClose, kLeave, kPause, kSlow };

constexpr std::size_t kFrameBytes = 72;
constexpr std::size_t kTagBytes = 16;  // before the header of a frame over a fabric
constexpr std::size_t kMostParts = 64;
constexpr std::size_t kMostDescriptors = 4096;

struct Record {
  std::atomic<std::int64_t> injected_ns;  // CLOCK_MONOTONIC; 0: not yet
  std::atomic<std::int64_t> resumed_ns;   // of kPause and kSlow, by the judge; 0: not yet
  std::atomic<int> link_requested;        // the judge must cut the host's link ...
  std::atomic<int> link_cut;              // ... and has
  std::array<std::atomic<int>, kPoints> seen;
};

Record* record = nullptr;
std::atomic<int> armed_point = kNowhere;
std::atomic<int> calls_left = 0;
int armed_timing = kBefore;
int armed_fault = kKill;
std::array<std::atomic<bool>, kMostDescriptors> in_hello;

template <class Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

std::int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

[[noreturn]] void take_memory_until_killed() {
  constexpr std::size_t kStep = 1U << 20U;
  for (;;) {
    void* more = mmap(nullptr, kStep, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::memset(more, 1, kStep);
    record->injected_ns = now_ns();
  }
}

void cut_link() {
  record->link_requested = 1;
  while (record->link_cut == 0) {
    usleep(100);
  }
  record->injected_ns = now_ns();
}

// The judge lets the process continue.
void wait_until_resumed() {
  while (record->resumed_ns == 0) {
    usleep(100);
  }
}

// Drops incoming packets of the socket before TCP gets them, so that nothing is acknowledged any more.
void mute(int fd) {
  sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program = {1, &drop};
  if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) != 0) {
    std::abort();
  }
}

// Closes the descriptor. During the rendezvous the next connection would get the same number, and two would
// use it, which no program can detect: there the descriptor becomes another file.
void take_away(int fd) {
  if (armed_point == kMeeting || armed_point == kHello) {
    const int other = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup3(other, fd, O_CLOEXEC);
    close(other);
  } else {
    close(fd);
  }
}

void inject(int fault, int fd) {
  record->injected_ns = now_ns();
  switch (fault) {
    case kKill:
    case kStop:
      kill(getpid(), fault == kKill ? SIGKILL : SIGSTOP);
      for (;;) {
        pause();  // another thread may get the signal first
      }
    case kExit:
      _exit(0);
    case kAbort:
      std::abort();
    case kMemory:
      take_memory_until_killed();
    case kLink:
      cut_link();
      return;
    case kMute:
      mute(fd);
      return;
    case kClose:
      take_away(fd);
      return;
    case kLeave:
      return;  // the script closes its engine
    case kPause:
      kill(getpid(), SIGSTOP);
      wait_until_resumed();  // another thread may get the signal first
      return;
    case kSlow:
      wait_until_resumed();  // the other threads continue
      return;
    default:
      shutdown(fd, SHUT_RDWR);
  }
}

// Whether this call is the armed one.
bool is_due(int point) {
  if (record == nullptr) {
    return false;
  }
  record->seen[static_cast<std::size_t>(point)]++;
  return armed_point == point && calls_left.fetch_sub(1) == 1;
}

bool begins_hello(const void* data, std::size_t bytes) {
  return bytes >= 8 && std::memcmp(data, "SMDPHELO", 8) == 0;
}

bool is_welcome(const void* data, ssize_t bytes) {
  return bytes == 3 && std::memcmp(data, "\x03\0\0", 3) == 0;
}

void mark_hello(int fd, bool on) {
  if (fd >= 0 && static_cast<std::size_t>(fd) < kMostDescriptors) {
    in_hello[static_cast<std::size_t>(fd)] = on;
  }
}

int place_of(int fd) {
  return static_cast<std::size_t>(fd) < kMostDescriptors && in_hello[static_cast<std::size_t>(fd)] ? kHello
                                                                                                   : kMeeting;
}

int point_of_frame(const std::uint8_t type) {
  switch (type) {
    case 1:
      return kHostSum;
    case 2:
      return kPublish;
    case 9:
    case 12:
      return kGoodbye;
    default:
      return kNowhere;
  }
}

int point_of_part(const iovec& part) {
  if (part.iov_len != kFrameBytes && part.iov_len != kTagBytes + kFrameBytes) {
    return kNowhere;
  }
  const auto* header = static_cast<const std::uint8_t*>(part.iov_base) + (part.iov_len - kFrameBytes);
  return std::memcmp(header, "SMDP", 4) == 0 ? point_of_frame(header[4]) : kNowhere;
}

// Sends the parts before the frame at `parts[index]`, its header, and half of its payload, or half of the
// header.
ssize_t send_half(int fd, const msghdr& message, std::size_t index, int flags) {
  std::array<iovec, kMostParts> parts{};
  std::size_t used = 0;
  for (; used <= index; ++used) {
    parts[used] = message.msg_iov[used];
  }
  const bool has_payload = used < message.msg_iovlen && point_of_part(message.msg_iov[used]) == kNowhere;
  if (has_payload && used < kMostParts) {
    parts[used] = message.msg_iov[used];
    ++used;
  }
  parts[used - 1].iov_len /= 2;
  msghdr half{};
  half.msg_iov = parts.data();
  half.msg_iovlen = used;
  return real<decltype(&sendmsg)>("sendmsg")(fd, &half, flags);
}

// Makes a call of the rendezvous, and injects the armed fault before or after it.
template <class Call>
auto with_fault_while_meeting(int fd, Call&& call) {
  const bool due = is_due(kMeeting);
  if (due && armed_timing == kBefore) {
    inject(armed_fault, fd);
  }
  const auto result = call();
  if (due && armed_timing != kBefore) {
    inject(armed_fault, fd);
  }
  return result;
}

}  // namespace

extern "C" {

void fault_share(void* shared) { record = static_cast<Record*>(shared); }

void fault_arm(int point, int call, int timing, int fault) {
  armed_timing = timing;
  armed_fault = fault;
  calls_left = call;
  armed_point = point;
}

void fault_disarm() { armed_point = kNowhere; }

void fault_inject(int fault) { inject(fault, -1); }

// From another thread, at any point of the engine.
void fault_inject_later(long microseconds, int fault) {
  std::thread([=] {
    usleep(static_cast<useconds_t>(microseconds));
    inject(fault, -1);
  }).detach();
}

// --- The calls of the engine ---

ssize_t send(int fd, const void* data, size_t bytes, int flags) {
  static const auto call = real<decltype(&send)>("send");
  if (begins_hello(data, bytes)) {
    mark_hello(fd, true);
  }
  const bool due = bytes > 0 && is_due(place_of(fd));
  if (due && armed_timing == kBefore) {
    inject(armed_fault, fd);
  }
  const ssize_t sent = call(fd, data, due && armed_timing == kHalf ? (bytes + 1) / 2 : bytes, flags);
  if (is_welcome(data, sent)) {
    mark_hello(fd, false);
  }
  if (due && armed_timing != kBefore) {
    inject(armed_fault, fd);
  }
  return sent;
}

ssize_t recv(int fd, void* data, size_t bytes, int flags) {
  static const auto call = real<decltype(&recv)>("recv");
  const ssize_t got = call(fd, data, bytes, flags);
  if (got > 0) {
    if (begins_hello(data, static_cast<std::size_t>(got))) {
      mark_hello(fd, true);
    }
    const bool due = is_due(place_of(fd));
    if (is_welcome(data, got)) {
      mark_hello(fd, false);
    }
    if (due) {
      inject(armed_fault, fd);
    }
  }
  return got;
}

ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  static const auto call = real<decltype(&sendmsg)>("sendmsg");
  if (message->msg_controllen > 0) {  // shared memory is passed
    return with_fault_while_meeting(fd, [&] { return call(fd, message, flags); });
  }
  const std::size_t parts = std::min(message->msg_iovlen, kMostParts);
  std::size_t index = 0;
  for (; index < parts; ++index) {
    const int point = point_of_part(message->msg_iov[index]);
    if (point != kNowhere && is_due(point)) {
      break;
    }
  }
  if (index == parts) {
    return call(fd, message, flags);
  }
  if (armed_timing == kBefore) {
    inject(armed_fault, fd);
  }
  const ssize_t sent =
      armed_timing == kHalf ? send_half(fd, *message, index, flags) : call(fd, message, flags);
  if (armed_timing != kBefore) {
    inject(armed_fault, fd);
  }
  return sent;
}

int connect(int fd, const sockaddr* address, socklen_t length) {
  static const auto call = real<decltype(&connect)>("connect");
  mark_hello(fd, false);
  return with_fault_while_meeting(fd, [&] { return call(fd, address, length); });
}

int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  static const auto call = real<decltype(&accept4)>("accept4");
  const int accepted = call(fd, address, length, flags);
  if (accepted >= 0) {
    mark_hello(accepted, false);
    if (is_due(kMeeting)) {
      inject(armed_fault, accepted);
    }
  }
  return accepted;
}

}  // extern "C"
