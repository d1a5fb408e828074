// From nothing to a layout and connections: what happens, on the opening thread, before an engine's loop
// runs.
//
//   1. meet rank 0 (net/rendezvous.h), everybody proving the token
//   2. everybody tells: build, host key, addresses; rank 0 refuses what differs, on all ranks
//   3. ranks with equal host keys prove that they share memory (shm/arena.h)
//   4. rank 0 makes the layout of hosts from the proofs, and all get it
//   5. ranks of different hosts connect, again proving token, build, generation and layout
//   6. all are ready, or all fail with the first reason
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/options.h"
#include "base/status.h"
#include "collectives/layout.h"
#include "net/frame.h"
#include "net/rendezvous.h"
#include "shm/arena.h"

namespace smdp {

struct Identity {
  int rank = 0;
  int world_size = 1;
  std::string build;
  std::string master = "127.0.0.1";
  KeyValueStore* store = nullptr;  // used while opening only
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
      network;  // ranks of other hosts; the connection for small frames first
};

// `connect_network` false leaves out step 5: another transport takes its place.
Result<Connections> bootstrap(const Identity& identity, const Options& options, bool connect_network,
                              const LogSink& log);

}  // namespace smdp
