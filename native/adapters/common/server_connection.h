// A TCP connection over which nothing is sent: it ends when the server does.
#pragma once

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string>

namespace smdp_adapters {

class ServerConnection {
 public:
  // Not open where no server answers within `timeout`.
  ServerConnection(const std::string& host, uint16_t port, std::chrono::milliseconds timeout) {
    addrinfo wanted{};
    wanted.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found) != 0) {
      return;
    }
    for (const addrinfo* address = found; address != nullptr && socket_ < 0; address = address->ai_next) {
      connect(*address, static_cast<int>(timeout.count()));
    }
    ::freeaddrinfo(found);
  }
  ~ServerConnection() { close(); }
  ServerConnection(const ServerConnection&) = delete;
  ServerConnection& operator=(const ServerConnection&) = delete;

  [[nodiscard]] bool is_open() const {
    pollfd event{socket_, POLLIN | POLLRDHUP, 0};
    return socket_ >= 0 && ::poll(&event, 1, 0) <= 0;  // below 0: a signal came
  }

 private:
  void connect(const addrinfo& address, int timeout_ms) {
    socket_ = ::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (socket_ < 0) {
      return;
    }
    if (::connect(socket_, address.ai_addr, address.ai_addrlen) != 0) {
      pollfd event{socket_, POLLOUT, 0};
      int error = errno;
      socklen_t size = sizeof(error);
      const bool answered = error == EINPROGRESS && ::poll(&event, 1, timeout_ms) == 1 &&
                            ::getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
      if (!answered) {
        close();
      }
    }
  }
  void close() {
    if (socket_ >= 0) {
      ::close(socket_);
      socket_ = -1;
    }
  }

  int socket_ = -1;
};

}  // namespace smdp_adapters
