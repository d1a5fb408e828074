#include "net/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <utility>

namespace smdp {
namespace {

constexpr int kBacklog = 1024;

struct RawAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

RawAddress abstract_address(const std::string& name) {
  RawAddress raw;
  auto* unix_address = reinterpret_cast<sockaddr_un*>(&raw.storage);
  unix_address->sun_family = AF_UNIX;
  const std::size_t length = std::min(name.size() - 1, sizeof(unix_address->sun_path) - 1);
  std::memcpy(unix_address->sun_path + 1, name.data() + 1,
              length);  // after the '@' comes the name, after a NUL here
  raw.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return raw;
}

Result<RawAddress> raw_address(const Address& address) {
  if (address.host.starts_with('@')) {
    return abstract_address(address.host);
  }
  RawAddress raw;
  if (auto* v4 = reinterpret_cast<sockaddr_in*>(&raw.storage);
      ::inet_pton(AF_INET, address.host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(address.port);
    raw.length = sizeof(sockaddr_in);
    return raw;
  }
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&raw.storage);
  if (::inet_pton(AF_INET6, address.host.c_str(), &v6->sin6_addr) != 1) {
    return Status(Code::kInvalid, "'" + address.host + "' is no numeric address");
  }
  v6->sin6_family = AF_INET6;
  v6->sin6_port = htons(address.port);
  raw.length = sizeof(sockaddr_in6);
  return raw;
}

std::string numeric(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* raw = nullptr;
  if (address->sa_family == AF_INET) {
    raw = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  } else if (address->sa_family == AF_INET6) {
    raw = &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  } else {
    return "";
  }
  if (::inet_ntop(address->sa_family, raw, text.data(), text.size()) == nullptr) {
    return "";
  }
  const std::string host = text.data();
  return host.starts_with("::ffff:") ? host.substr(7) : host;
}

using NameFunction = int (*)(int, sockaddr*, socklen_t*);

std::string host_of(int fd, NameFunction function) {
  RawAddress raw;
  raw.length = sizeof(raw.storage);
  if (function(fd, reinterpret_cast<sockaddr*>(&raw.storage), &raw.length) != 0) {
    return "";
  }
  return numeric(raw.get());
}

Result<Listener> try_listen(const std::string& host, std::uint16_t port) {
  const Result<RawAddress> raw = raw_address({host.empty() ? "0.0.0.0" : host, port});
  if (!raw.ok()) {
    return raw.status();
  }
  UniqueFd fd(::socket(raw->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  RawAddress bound;
  bound.length = sizeof(bound.storage);
  if (!fd.valid() || ::bind(fd.get(), raw->get(), raw->length) != 0 || ::listen(fd.get(), kBacklog) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound.storage), &bound.length) != 0) {
    return system_error("listening on " + host + " port " + std::to_string(port), errno);
  }
  const std::uint16_t network_port = bound.storage.ss_family == AF_INET
                                         ? reinterpret_cast<sockaddr_in*>(&bound.storage)->sin_port
                                         : reinterpret_cast<sockaddr_in6*>(&bound.storage)->sin6_port;
  return Listener{std::move(fd), ntohs(network_port)};
}

// Waits until `fd` is ready for `events` or the deadline passes.
Status await(int fd, short events, TimePoint deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, milliseconds_until(deadline));
    if (ready > 0) {
      return {};
    }
    if (ready < 0 && errno != EINTR) {
      return system_error("poll", errno);
    }
    if (Clock::now() >= deadline) {
      return {Code::kTimeout, "the deadline passed"};
    }
  }
}

}  // namespace

std::string Address::text() const {
  return host.starts_with('@')
             ? "abstract socket"
             : (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + std::to_string(port);
}

Result<Listener> listen_tcp(const std::string& host, const std::string& range) {
  unsigned first = 0;
  unsigned last = 0;
  const char* end = range.data() + range.size();
  const auto head = std::from_chars(range.data(), end, first);
  last = first;
  bool good = head.ec == std::errc();
  if (good && head.ptr != end) {
    const auto tail = std::from_chars(head.ptr + 1, end, last);
    good = *head.ptr == '-' && tail.ec == std::errc() && tail.ptr == end;
  }
  if (!good || last < first || last > 65535) {
    return Status(Code::kInvalid, "SMDP_PORT_RANGE='" + range + "': 0, a port, or first-last");
  }
  for (unsigned port = first; port <= last; ++port) {
    Result<Listener> listener = try_listen(host, static_cast<std::uint16_t>(port));
    if (listener.ok() || port == last) {
      return listener;
    }
  }
  return Status(Code::kInternal, "no port tried");
}

Result<UniqueFd> listen_abstract(const std::string& name) {
  const RawAddress raw = abstract_address(name);
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid() || ::bind(fd.get(), raw.get(), raw.length) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    return system_error("listening on an abstract Unix socket", errno);
  }
  return fd;
}

Result<UniqueFd> begin_connect(const Address& address, const std::string& congestion) {
  const Result<RawAddress> raw = raw_address(address);
  if (!raw.ok()) {
    return raw.status();
  }
  UniqueFd fd(::socket(raw->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) {
    return system_error("socket", errno);
  }
  if (!congestion.empty() && raw->storage.ss_family != AF_UNIX) {
    [[maybe_unused]] const Status kept = set_congestion(fd.get(), congestion);
  }
  if (::connect(fd.get(), raw->get(), raw->length) != 0 && errno != EINPROGRESS) {
    return system_error("connecting to " + address.text(), errno);
  }
  return fd;
}

int connect_error(int fd) {
  int error = 0;
  socklen_t size = sizeof(error);
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

Result<std::vector<std::string>> resolve(const std::string& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* raw = nullptr;
  if (const int error = ::getaddrinfo(name.c_str(), nullptr, &hints, &raw); error != 0) {
    return Status(Code::kSystem, "resolving '" + name + "': " + ::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> found(raw, &::freeaddrinfo);
  std::vector<std::string> hosts;
  for (const addrinfo* entry = found.get(); entry != nullptr; entry = entry->ai_next) {
    if (std::string host = numeric(entry->ai_addr);
        !host.empty() && std::ranges::find(hosts, host) == hosts.end()) {
      hosts.push_back(std::move(host));
    }
  }
  std::stable_partition(hosts.begin(), hosts.end(),
                        [](const std::string& host) { return host != "127.0.1.1"; });
  return hosts;
}

Result<std::vector<std::string>> interface_addresses(const std::string& wanted, bool ipv6) {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) {
    return system_error("listing the network interfaces", errno);
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> found(raw, &::freeifaddrs);
  std::vector<std::string> hosts;
  for (const ifaddrs* entry = found.get(); entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0 ||
        (entry->ifa_addr->sa_family == AF_INET6 && !ipv6)) {
      continue;
    }
    const std::string host = numeric(entry->ifa_addr);
    const bool link_local = host.starts_with("fe80:");
    if (!host.empty() && !link_local && host != "127.0.1.1" &&
        (wanted.empty() || wanted == entry->ifa_name || wanted == host)) {
      hosts.push_back(host);
    }
  }
  if (hosts.empty() && is_loopback(wanted)) {
    hosts.push_back(wanted);  // all of 127.0.0.0/8 is this machine, listed or not
  }
  std::stable_partition(hosts.begin(), hosts.end(),
                        [](const std::string& host) { return !is_loopback(host); });
  return hosts;
}

std::string local_host(int fd) { return host_of(fd, ::getsockname); }
std::string peer_host(int fd) { return host_of(fd, ::getpeername); }
bool is_loopback(const std::string& host) { return host.starts_with("127.") || host == "::1"; }

Status send_all(int fd, std::span<const std::byte> data, TimePoint deadline) {
  while (!data.empty()) {
    const ssize_t sent = ::send(fd, data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      data = data.subspan(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (Status status = await(fd, POLLOUT, deadline); !status.ok()) {
        return status;
      }
    } else if (errno != EINTR) {
      return {Code::kPeerLost, system_error("sending", errno).message()};
    }
  }
  return {};
}

Status receive_all(int fd, std::span<std::byte> data, TimePoint deadline) {
  while (!data.empty()) {
    const ssize_t got = ::recv(fd, data.data(), data.size(), MSG_DONTWAIT);
    if (got > 0) {
      data = data.subspan(static_cast<std::size_t>(got));
    } else if (got == 0) {
      return {Code::kPeerLost, "the connection was closed"};
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (Status status = await(fd, POLLIN, deadline); !status.ok()) {
        return status;
      }
    } else if (errno != EINTR) {
      return {Code::kPeerLost, system_error("receiving", errno).message()};
    }
  }
  return {};
}

Status send_block(int fd, std::span<const std::byte> data, TimePoint deadline) {
  const Bytes block = Writer().put(static_cast<std::uint32_t>(data.size())).raw(data).take();
  return send_all(fd, block, deadline);
}

Result<Bytes> receive_block(int fd, std::size_t most, TimePoint deadline) {
  std::uint32_t length = 0;
  if (Status status = receive_all(fd, std::as_writable_bytes(std::span(&length, 1)), deadline);
      !status.ok()) {
    return status;
  }
  if (length > most) {
    return Status(Code::kRefused, "a block of " + std::to_string(length) + " bytes where at most " +
                                      std::to_string(most) + " are allowed");
  }
  Bytes data(length);
  if (Status status = receive_all(fd, data, deadline); !status.ok()) {
    return status;
  }
  return data;
}

Status set_congestion(int fd, const std::string& name) {
  return ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size())) == 0
             ? Status()
             : system_error("SMDP_CONGESTION=" + name, errno);
}

}  // namespace smdp
