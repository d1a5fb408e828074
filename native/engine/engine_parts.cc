#include <utility>

#include "engine.h"
#include "net/loop.h"
#include "net/transport/stream_transport.h"
#include "shm/shm_transport.h"

namespace smdp {
namespace {

// Over TCP, or over TCP and a fabric.
std::unique_ptr<Transport> make_network(const EngineConfig& config, Loop& loop, Connections& connections) {
  const int rank = config.identity.rank;
  const double heartbeat_s = config.options.heartbeat_s;
  auto stream = std::make_unique<StreamTransport>(loop, rank, heartbeat_s, std::move(connections.network));
  if (connections.fabric.rails.empty()) {
    return stream;
  }
  return std::make_unique<OfiTransport>(loop, rank, heartbeat_s, std::move(stream),
                                        std::move(connections.fabric), config.log);
}

}  // namespace

EngineParts make_parts(const EngineConfig& config, Connections connections) {
  EngineParts parts;  // filled in the order in which its members depend on each other
  auto made = std::make_unique<Loop>();
  Loop& loop = *made;
  parts.executor = std::move(made);
  const int rank = config.identity.rank;
  const double heartbeat_s = config.options.heartbeat_s;
  parts.layout = std::move(connections.layout);
  parts.network =
      config.make_transport ? config.make_transport(loop, rank) : make_network(config, loop, connections);
  parts.arena = std::move(connections.arena);
  std::map<int, LocalPeer> local;
  for (auto& [peer, link] : connections.local) {
    parts.peer_arenas[peer] = link.arena.bytes();
    local[peer] = {std::move(link.socket), link.arena.bytes()};
    parts.mappings.push_back(std::move(link.arena));
  }
  parts.local = std::make_unique<ShmTransport>(loop, rank, heartbeat_s, parts.arena, std::move(local));
  return parts;
}

}  // namespace smdp
