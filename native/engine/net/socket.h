// Sockets, addresses and blocking transfers with a deadline, for the time before the loop runs.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace smdp {

// A numeric address and a port. With port 0 and a leading '@' in `host`: an abstract Unix socket of that
// name.
struct Address {
  std::string host;
  std::uint16_t port = 0;

  [[nodiscard]] std::string text() const;
  friend bool operator==(const Address&, const Address&) = default;
};

struct Listener {
  UniqueFd fd;
  std::uint16_t port = 0;
};

// Listens on `host` (empty: every address) and the first free port of `range` ("0" or "first-last").
Result<Listener> listen_tcp(const std::string& host, const std::string& range);
// Listens on the abstract name "@...", which other network namespaces cannot reach.
Result<UniqueFd> listen_abstract(const std::string& name);

// A non-blocking connect in progress; poll for writing, then call connect_error(). `congestion`: see
// set_congestion(); where the system does not have it, the default is used.
Result<UniqueFd> begin_connect(const Address& address, const std::string& congestion = "");
int connect_error(int fd);

// The numeric addresses of `name`; 127.0.1.1, which Debian gives to a machine's own name, comes last.
Result<std::vector<std::string>> resolve(const std::string& name);
// Numeric addresses of this machine's interfaces that are up, loopback ones last. `wanted`: only this
// interface, by name or by address.
Result<std::vector<std::string>> interface_addresses(const std::string& wanted, bool ipv6);
// The local and the remote address of the socket.
std::string local_host(int fd);
std::string peer_host(int fd);
bool is_loopback(const std::string& host);

// kTimeout at the deadline, kPeerLost when the other side closed.
Status send_all(int fd, std::span<const std::byte> data, TimePoint deadline);
Status receive_all(int fd, std::span<std::byte> data, TimePoint deadline);
// Length as u32, then the bytes; received lengths above `most` are refused.
Status send_block(int fd, std::span<const std::byte> data, TimePoint deadline);
Result<Bytes> receive_block(int fd, std::size_t most, TimePoint deadline);

// Sets the TCP congestion control; an error leaves the system's default. Call it before connecting, or on the
// listening socket: settings of the first algorithm may outlive a later change. With BBR that is the pacing,
// which delays the end of a message for milliseconds after an idle moment.
Status set_congestion(int fd, const std::string& name);

}  // namespace smdp
