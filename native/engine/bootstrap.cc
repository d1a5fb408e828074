#include "bootstrap.h"

#include <algorithm>
#include <functional>

#include "net/fabric/choice.h"
#include "net/handshake/handshaker.h"
#include "net/socket.h"

namespace smdp {
namespace {

constexpr double kProof = 10;  // seconds for ranks of one machine to prove that they share memory

// What a rank sends to the others in step 2.
struct Card {
  std::string build;
  std::uint64_t plan = 0;  // hash of the options that decide how buffers are divided
  bool has_token = false;
  std::string host_key;
  std::string local_name;  // abstract socket
  std::uint16_t port = 0;
  std::vector<std::string> addresses;
  std::string fabric;  // fabric_offer()
};

Bytes encode_card(const Card& card) {
  Writer writer;
  writer.text(card.build)
      .put(card.plan)
      .put(std::uint8_t{card.has_token})
      .text(card.host_key)
      .text(card.local_name);
  writer.put(card.port).put(static_cast<std::uint32_t>(card.addresses.size()));
  for (const std::string& address : card.addresses) {
    writer.text(address);
  }
  return writer.text(card.fabric).take();
}

Result<Card> decode_card(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  Card card;
  card.build = reader.text();
  card.plan = reader.get<std::uint64_t>();
  card.has_token = reader.get<std::uint8_t>() != 0;
  card.host_key = reader.text();
  card.local_name = reader.text();
  card.port = reader.get<std::uint16_t>();
  const auto count = reader.get<std::uint32_t>();
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) {
    card.addresses.push_back(reader.text());
  }
  card.fabric = reader.text();
  if (!reader.at_end()) {
    return Status(Code::kRefused, "a rank's card is damaged");
  }
  return card;
}

std::vector<std::byte> token_bytes(const std::string& hexadecimal) {
  std::vector<std::byte> token;
  for (std::size_t i = 0; i + 1 < hexadecimal.size(); i += 2) {
    token.push_back(static_cast<std::byte>(std::stoi(hexadecimal.substr(i, 2), nullptr, 16)));
  }
  return token;
}

// The options that must be equal on all ranks, because they decide how buffers are divided.
std::string plan_text(const Options& o) {
  return "SMDP_PIECE_KIB=" + std::to_string(o.piece_kib) + " SMDP_SMALL_KIB=" + std::to_string(o.small_kib) +
         " SMDP_BULK_KIB=" + std::to_string(o.bulk_kib) + " SMDP_WINDOW=" + std::to_string(o.window) +
         " SMDP_BUFFERS_IN_FLIGHT=" + std::to_string(o.buffers_in_flight) +
         " SMDP_STREAMS=" + std::to_string(o.streams) + " SMDP_WIRE_DTYPE=" + o.wire_dtype +
         " SMDP_LOCAL_REDUCER=" + o.local_reducer + " SMDP_TRANSPORT=" + o.transport +
         (o.fabric_writes ? "" : " SMDP_FABRIC_WRITES=0");
}

class Bootstrap {
 public:
  Bootstrap(const Identity& identity, const Options& options, const LogSink& log)
      : identity_(identity),
        options_(options),
        log_(log),
        warn_([log](const std::string& what) { log(LogLevel::kWarning, what); }),
        deadline_(after(options.rendezvous_timeout_s)) {
    self_.protocol = identity.protocol;
    self_.rank = static_cast<std::uint32_t>(identity.rank);
    self_.world_size = static_cast<std::uint32_t>(identity.world_size);
    self_.generation = static_cast<std::uint64_t>(options.generation);
    self_.build = identity.build;
    token_ = token_bytes(options.job_token);
    if (token_.empty()) {
      token_.assign(16, std::byte{0});
    }
  }

  Result<Connections> run(bool connect_network) {
    auto met = Rendezvous::meet(self_, token_, options_, identity_.master, identity_.store, deadline_, warn_);
    if (!met.ok()) {
      return met.status();
    }
    rendezvous_ = std::move(*met);
    Result<Arena> arena =
        Arena::create(static_cast<std::size_t>(options_.arena_mib) << 20U, fabric_memory(options_));
    Status status = exchange_cards(arena.ok() ? Status() : arena.status());
    if (!status.ok()) {
      return status;
    }
    connections_.arena = std::move(*arena);
    if (status = agree_on_layout(prove_shared_memory()); !status.ok()) {
      return status;
    }
    if (connect_network) {
      status = connect_fabric();
      if (!status.ok()) {
        return status;
      }
      status = connect();
    }
    const auto ready = rendezvous_->decide(
        status.ok() ? Result<Bytes>(Bytes{}) : Result<Bytes>(status),
        [](const std::vector<Bytes>&) { return Result<Bytes>(Bytes{}); }, deadline_);
    if (!ready.ok()) {
      return ready.status();
    }
    return std::move(connections_);
  }

 private:
  // An error that all ranks report, with the rank that it comes from.
  [[nodiscard]] Result<Bytes> of_this_rank(const Status& failed) const {
    return Status(failed.code(), "rank " + std::to_string(identity_.rank) + ": " + failed.message());
  }

  // Accepted connections inherit it from the listening socket.
  void choose_congestion() {
    if (!options_.congestion.empty()) {
      if (const Status status = set_congestion(data_listener_.get(), options_.congestion); !status.ok()) {
        log_(LogLevel::kInfo, status.message() + "; the system's default is used");
      }
    }
  }

  // Step 2.
  Status exchange_cards(Status failed) {
    Card card;
    card.build = identity_.build;
    card.plan = hash64(as_bytes_of(plan_text(options_)));
    card.has_token = !options_.job_token.empty();
    card.host_key = host_key(options_.host_id);
    card.local_name = "@smdp-" + to_hex(random128());
    card.fabric = fabric_offer(options_);
    Result<std::vector<std::string>> addresses = interface_addresses(options_.interface, options_.ipv6);
    if (addresses.ok()) {
      card.addresses = std::move(*addresses);
    }
    if (!addresses.ok()) {
      failed = addresses.status();
    } else if (options_.interface.empty()) {
      for (const std::string& host : rendezvous_->local_addresses()) {
        if (host != "127.0.1.1") {
          std::erase(card.addresses, host);
          card.addresses.insert(card.addresses.begin(), host);
        }
      }
    } else if (card.addresses.empty()) {
      failed = {Code::kInvalid, "SMDP_INTERFACE='" + options_.interface + "': no such interface or address"};
    }
    const std::string bind_to =
        options_.interface.empty() || card.addresses.empty() ? "" : card.addresses.front();
    if (failed.ok() && identity_.world_size > 1) {
      Result<Listener> data = listen_tcp(bind_to, options_.port_range);
      Result<UniqueFd> local = listen_abstract(card.local_name);
      failed = !data.ok() ? data.status() : (local.ok() ? Status() : local.status());
      if (failed.ok()) {
        card.port = data->port;
        data_listener_ = std::move(data->fd);
        choose_congestion();
        local_listener_ = std::move(*local);
      }
    }
    const auto blobs = rendezvous_->exchange(
        failed.ok() ? Result<Bytes>(encode_card(card)) : of_this_rank(failed), deadline_);
    if (!blobs.ok()) {
      return blobs.status();
    }
    for (const Bytes& blob : *blobs) {
      Result<Card> decoded = decode_card(blob);
      if (!decoded.ok()) {
        return decoded.status();
      }
      cards_.push_back(std::move(*decoded));
    }
    return compare_cards();
  }

  // Every rank has the same table, so every rank gets the same result.
  Status compare_cards() {
    for (std::size_t rank = 1; rank < cards_.size(); ++rank) {
      const std::string who = "rank " + std::to_string(rank);
      if (cards_[rank].build != cards_[0].build) {
        return {Code::kRefused, "engine build differs: rank 0 has " + cards_[0].build + ", " + who + " has " +
                                    cards_[rank].build};
      }
      if (cards_[rank].plan != cards_[0].plan) {
        return {Code::kRefused,
                "options differ between rank 0 and " + who + "; this rank has: " + plan_text(options_)};
      }
    }
    return share_secret();
  }

  // Rank 0 draws the session's number, and the token where the environment has none.
  Status share_secret() {
    const auto drawn = rendezvous_->decide(
        Bytes{},
        [](const std::vector<Bytes>&) -> Result<Bytes> {
          return Writer().raw(random128()).raw(random128()).take();
        },
        deadline_);
    if (!drawn.ok()) {
      return drawn.status();
    }
    Reader reader(*drawn);
    const auto token = reader.raw(16);
    self_.session = reader.get<std::uint64_t>() | 1U;
    if (!cards_[0].has_token) {
      token_.assign(token.begin(), token.end());
      if (identity_.rank == 0 && identity_.world_size > 1) {
        log_(LogLevel::kInfo,
             "SMDP_JOB_TOKEN is not set: rank 0 drew one, and the rendezvous itself was not authenticated");
      }
    }
    return {};
  }

  // Step 3. A rank that cannot prove shared memory counts as another host; the only error is that descriptors
  // or memory have run out.
  Status prove_shared_memory() {
    const Card& mine = cards_[static_cast<std::size_t>(identity_.rank)];
    Hello self = self_;
    self.purpose = Purpose::kLocal;
    const TimePoint ends = std::min(deadline_, after(kProof));
    Handshaker handshaker(self, token_, ends);
    bool alone = true;
    for (int other = 0; other < identity_.world_size; ++other) {
      const Card& card = cards_[static_cast<std::size_t>(other)];
      if (other == identity_.rank || card.host_key != mine.host_key) {
        continue;
      }
      alone = false;
      if (other < identity_.rank) {
        handshaker.connect(other, 0, {{card.local_name, 0}}, false);
      } else {
        handshaker.expect(other, 0);
      }
    }
    if (alone) {
      return {};
    }
    handshaker.accept_on(local_listener_.get());
    rendezvous_->watch_during(handshaker);
    // Ranks that cannot reach each other both fail soon: the connecting side is refused at once, and the
    // accepting side stops when the time of every rank that may still connect has passed.
    handshaker.set_refusal_grace(0);
    Status met = handshaker.run();
    local_listener_.reset();
    if (handshaker.ended_by_peer()) {
      return {};  // the next exchange reports the error on all ranks
    }
    if (met.code() == Code::kExhausted) {
      return met;
    }
    const TimePoint exchanged_by = std::min(deadline_, after(kProof));
    for (auto& [link, fd] : handshaker.connections()) {
      Result<Mapping> theirs = exchange_arenas(fd.get(), connections_.arena, exchanged_by);
      if (theirs.ok()) {
        connections_.local[link.first] = {std::move(fd), std::move(*theirs)};
      } else if (theirs.status().code() == Code::kExhausted) {
        return theirs.status();
      }
    }
    return {};
  }

  // Step 4.
  Status agree_on_layout(const Status& status) {
    Writer proofs;
    for (const auto& [other, link] : connections_.local) {
      proofs.put(static_cast<std::uint32_t>(other));
    }
    const auto blobs =
        rendezvous_->exchange(status.ok() ? Result<Bytes>(proofs.take()) : of_this_rank(status), deadline_);
    if (!blobs.ok()) {
      return blobs.status();
    }
    std::vector<std::string> keys;
    std::vector<std::vector<int>> proved;
    for (std::size_t rank = 0; rank < cards_.size(); ++rank) {
      keys.push_back(cards_[rank].host_key);
      Reader reader((*blobs)[rank]);
      auto& list = proved.emplace_back();
      for (std::size_t i = 0; i < (*blobs)[rank].size() / 4; ++i) {
        list.push_back(static_cast<int>(reader.get<std::uint32_t>()));
      }
    }
    connections_.layout = make_layout(keys, proved);
    const int host = connections_.layout.host_of[static_cast<std::size_t>(identity_.rank)];
    std::erase_if(connections_.local, [&](const auto& entry) {
      return connections_.layout.host_of[static_cast<std::size_t>(entry.first)] != host;
    });
    if (identity_.rank == 0) {
      report_splits(keys);
    }
    self_.layout_hash = connections_.layout.hash(hash64(as_bytes_of(plan_text(options_))));
    return {};
  }

  void report_splits(const std::vector<std::string>& keys) {
    for (std::size_t host = 0; host < connections_.layout.host_names.size(); ++host) {
      const std::string& name = connections_.layout.host_names[host];
      if (std::ranges::find(keys, name) == keys.end()) {
        log_(LogLevel::kWarning, "ranks with the host key " + name.substr(0, name.rfind('#')) +
                                     " cannot share memory; they are treated as separate hosts (" + name +
                                     ")");
      }
    }
  }

  // Step 5.
  Status connect_fabric() {
    FabricQuestion question{.options = options_,
                            .rank = identity_.rank,
                            .offers = {},
                            .host_of = connections_.layout.host_of,
                            .names = {},
                            .source = {},
                            .tag = fabric_tag(token_, self_.session),
                            .shared = connections_.arena.for_receiving()};
    for (std::size_t rank = 0; rank < cards_.size(); ++rank) {
      question.offers.push_back(cards_[rank].fabric);
      question.names.push_back(connections_.layout.describe(static_cast<int>(rank)));
    }
    const auto& addresses = cards_[static_cast<std::size_t>(identity_.rank)].addresses;
    question.source = addresses.empty() ? "" : addresses.front();
    Result<FabricConnections> chosen = choose_fabric(question, *rendezvous_, deadline_, log_);
    std::size_t used = 0;
    if (chosen.ok()) {
      connections_.fabric = std::move(*chosen);
      for (const auto& rail : connections_.fabric.rails) {
        used += rail->shared_bytes();
      }
    }
    // Ports that were closed again may have used more.
    Arena::discard(connections_.arena.for_receiving().subspan(used));
    return chosen.status();
  }

  // Step 6: the higher rank connects to the lower.
  Status connect() {
    Hello self = self_;
    self.purpose = Purpose::kData;
    Handshaker handshaker(self, token_, deadline_);
    const auto rails = !connections_.fabric.rails.empty() ? 1 : static_cast<int>(options_.streams) + 1;
    const auto& host_of = connections_.layout.host_of;
    for (int other = 0; other < identity_.world_size; ++other) {
      const auto index = static_cast<std::size_t>(other);
      if (host_of[index] == host_of[static_cast<std::size_t>(identity_.rank)]) {
        continue;
      }
      std::vector<Address> addresses;
      for (const std::string& host : cards_[index].addresses) {
        addresses.push_back({host, cards_[index].port});
      }
      for (int rail = 0; rail < rails; ++rail) {
        if (other < identity_.rank) {
          handshaker.connect(other, rail, addresses, false);
        } else {
          handshaker.expect(other, rail);
        }
      }
    }
    handshaker.accept_on(data_listener_.get());
    rendezvous_->watch_during(handshaker);
    handshaker.set_congestion(options_.congestion);
    handshaker.set_refusal_grace(refusal_grace_s(options_));
    handshaker.set_warning(warn_);
    Status status = handshaker.run();
    data_listener_.reset();  // all ranks are connected
    if (handshaker.ended_by_peer()) {
      return status;
    }
    if (!status.ok()) {
      return {status.code(), "connecting the hosts failed on rank " + std::to_string(identity_.rank) + ": " +
                                 status.message()};
    }
    for (auto& [link, fd] : handshaker.connections()) {
      connections_.network[link.first].push_back(std::move(fd));  // the map is ordered by rail
    }
    return {};
  }

  const Identity& identity_;
  const Options& options_;
  const LogSink& log_;
  std::function<void(const std::string&)> warn_;
  TimePoint deadline_;
  Hello self_;
  std::vector<std::byte> token_;
  std::unique_ptr<Rendezvous> rendezvous_;
  std::vector<Card> cards_;
  UniqueFd data_listener_;
  UniqueFd local_listener_;
  Connections connections_;
};

}  // namespace

Result<Connections> bootstrap(const Identity& identity, const Options& options, bool connect_network,
                              const LogSink& log) {
  return Bootstrap(identity, options, log).run(connect_network);
}

}  // namespace smdp
