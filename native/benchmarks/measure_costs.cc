// What the model of cost (native/simulation/model) has to know of this machine, one "NAME VALUE" a line.
//
// Each figure is the median of several rounds. Memory is larger than the caches, as a backward pass's
// gradients are. What TCP costs is the processor time of both threads over the machine's own interface.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "bench.h"
#include "kernels/copy.h"
#include "kernels/reduce.h"
#include "net/frame.h"

namespace {

using smdp::DType;
using smdp::ReduceOp;

constexpr int kRounds = 7;
constexpr int kReceiveTimeoutMs = 10000;
constexpr std::size_t kPiece = 256U << 10U;
constexpr std::size_t kMemory = 64U << 20U;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double thread_cpu_s() { return bench::cpu_seconds(RUSAGE_THREAD); }

double median_of(std::vector<double> taken) {
  std::ranges::sort(taken);
  return taken[taken.size() / 2];
}

double median_of(const std::function<double()>& measure) {
  std::vector<double> taken(kRounds);
  std::ranges::generate(taken, measure);
  return median_of(std::move(taken));
}

[[noreturn]] void give_up(const char* what) {
  std::perror(what);
  std::exit(1);
}

double copy_byte() {
  const std::vector<std::byte> from(kMemory, std::byte{1});
  std::vector<std::byte> to(kMemory, std::byte{2});
  return median_of([&] {
    const double began = now_s();
    for (std::size_t at = 0; at < kMemory; at += kPiece) {
      smdp::copy({from.data() + at, kPiece}, {to.data() + at, kPiece});
    }
    return (now_s() - began) / static_cast<double>(kMemory);
  });
}

// Of eight sources, as on a host with eight ranks.
double fold_byte() {
  constexpr std::size_t kSources = 8;
  const std::vector<std::vector<std::byte>> sources(kSources, std::vector<std::byte>(kMemory / kSources));
  std::vector<std::byte> sum(kMemory / kSources);
  const auto fold = smdp::kernels(smdp::best_isa()).reduce(DType::kFloat32, ReduceOp::kSum);
  return median_of([&] {
    const double began = now_s();
    for (std::size_t at = 0; at < sum.size(); at += kPiece) {
      std::array<const std::byte*, kSources> here{};
      for (std::size_t source = 0; source < kSources; ++source) {
        here.at(source) = sources[source].data() + at;
      }
      fold(here.data(), kSources, sum.data() + at, kPiece / sizeof(float), 1);
    }
    return (now_s() - began) / static_cast<double>(kMemory);
  });
}

struct Pair {
  int one = -1;
  int other = -1;
};

Pair connected() {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  Pair pair;
  pair.one = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener, 1) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      ::connect(pair.one, reinterpret_cast<sockaddr*>(&address), size) != 0) {
    give_up("loopback");
  }
  pair.other = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  ::close(listener);
  const int on = 1;
  ::setsockopt(pair.one, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return pair;
}

struct Cpu {
  double send = 0;
  double receive = 0;
};

// Of one message of `bytes`, `count` of which are sent one after the other.
Cpu tcp_cpu(std::size_t bytes, int count) {
  const Pair pair = connected();
  Cpu cpu;
  std::thread receiver([&] {
    std::vector<std::byte> memory(bytes);
    const double began = thread_cpu_s();
    for (int message = 0; message < count; ++message) {
      for (std::size_t got = 0; got < bytes;) {
        pollfd one{pair.other, POLLIN, 0};
        ::poll(&one, 1, kReceiveTimeoutMs);
        const ssize_t part = ::recv(pair.other, memory.data(), bytes - got, MSG_DONTWAIT);
        if (part <= 0) {
          give_up("receiving");
        }
        got += static_cast<std::size_t>(part);
      }
    }
    cpu.receive = (thread_cpu_s() - began) / count;
  });
  const std::vector<std::byte> memory(bytes);
  const double began = thread_cpu_s();
  for (int message = 0; message < count; ++message) {
    for (std::size_t sent = 0; sent < bytes;) {
      const ssize_t part = ::send(pair.one, memory.data() + sent, bytes - sent, MSG_NOSIGNAL);
      if (part <= 0) {
        give_up("sending");
      }
      sent += static_cast<std::size_t>(part);
    }
  }
  cpu.send = (thread_cpu_s() - began) / count;
  receiver.join();
  ::close(pair.one);
  ::close(pair.other);
  return cpu;
}

Cpu median_tcp_cpu(std::size_t bytes, int count) {
  std::vector<double> send;
  std::vector<double> receive;
  for (int round = 0; round < kRounds; ++round) {
    const Cpu cpu = tcp_cpu(bytes, count);
    send.push_back(cpu.send);
    receive.push_back(cpu.receive);
  }
  return {median_of(std::move(send)), median_of(std::move(receive))};
}

// From one thread's ring to the other's first instruction.
double wake() {
  constexpr int kTurns = 2000;
  const int ping = ::eventfd(0, EFD_CLOEXEC);
  const int pong = ::eventfd(0, EFD_CLOEXEC);
  std::uint64_t count = 1;
  const auto ring = [&](int bell) { return ::write(bell, &count, sizeof(count)) > 0; };
  const auto await = [&](int bell) {
    std::uint64_t rung = 0;
    return ::read(bell, &rung, sizeof(rung)) > 0;
  };
  std::thread other([&] {
    for (int turn = 0; turn < kTurns && await(ping) && ring(pong); ++turn) {
    }
  });
  const double began = now_s();
  for (int turn = 0; turn < kTurns && ring(ping) && await(pong); ++turn) {
  }
  const double took = now_s() - began;
  other.join();
  ::close(ping);
  ::close(pong);
  return took / (2 * kTurns);
}

}  // namespace

int main() {
  const Cpu frame = median_tcp_cpu(smdp::kFrameBytes, 20000);
  const Cpu piece = median_tcp_cpu(kPiece, 1000);
  const auto byte = [](double of_piece, double of_frame) {
    return std::max(0.0, of_piece - of_frame) / kPiece;
  };
  std::printf("cores %u\n", std::thread::hardware_concurrency());
  std::printf("wake %.3e\n", median_of(wake));
  std::printf("send_frame %.3e\n", frame.send);
  std::printf("send_byte %.3e\n", byte(piece.send, frame.send));
  std::printf("receive_frame %.3e\n", frame.receive);
  std::printf("receive_byte %.3e\n", byte(piece.receive, frame.receive));
  std::printf("copy_byte %.3e\n", copy_byte());
  std::printf("fold_byte %.3e\n", fold_byte());
}
