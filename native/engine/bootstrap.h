// How an engine opens: the ranks find each other, agree on a layout and connect. Runs on the opening thread,
// before the engine's loop.
//
//   1. all ranks connect to rank 0 (net/handshake/rendezvous.h) and prove the token
//   2. each rank sends build, host key and addresses to all; differences are an error on all ranks
//   3. ranks with equal host keys prove that they share memory (shm/arena.h)
//   4. each rank sends its proofs to all, and computes the layout of hosts from them
//   5. where SMDP_TRANSPORT and the devices allow it, the ranks connect over a fabric (net/fabric/choice.h)
//   6. ranks of different hosts connect over TCP, again proving token, build, generation and layout
//   7. all ranks are ready, or all fail for the first reason
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/options.h"
#include "base/status.h"
#include "layout/layout.h"
#include "net/fabric/ofi_transport.h"
#include "net/frame.h"
#include "net/handshake/rendezvous.h"
#include "shm/arena.h"

namespace smdp {

struct Identity {
  int rank = 0;
  int world_size = 1;
  std::string build;
  std::string master = "127.0.0.1";
  KeyValueStore* store = nullptr;  // used only while the engine opens
  std::uint16_t protocol = kProtocolVersion;
};

struct LocalLink {
  UniqueFd socket;
  Mapping arena;  // the other rank's, read-only
};

struct Connections {
  Layout layout;
  Arena arena;
  std::map<int, LocalLink> local;  // ranks of this host
  std::map<int, std::vector<UniqueFd>>
      network;               // ranks of other hosts; the connection for small frames first
  FabricConnections fabric;  // no rail: bulk data uses TCP
};

// `connect_network` false skips the steps 5 and 6: another transport replaces TCP.
Result<Connections> bootstrap(const Identity& identity, const Options& options, bool connect_network,
                              const LogSink& log);

}  // namespace smdp
