#include "net/handshake/rendezvous.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <optional>
#include <thread>

#include "net/handshake/handshaker.h"
#include "net/socket.h"

namespace smdp {
namespace {

constexpr std::size_t kMaxBlob = 64U << 20U;
constexpr const char* kStoreKey = "smdp/rendezvous";
constexpr auto kStorePeriod = std::chrono::milliseconds(50);  // between two looks at the store
// Ranks that waited for a silent rank until the deadline get this long to report that.
constexpr auto kVerdictGrace = std::chrono::seconds(1);

constexpr std::size_t kMaxErrorText = 3000;  // bytes of an error's text
constexpr std::size_t kMostShown = 100;      // characters of an invalid entry

Bytes failure(const Status& status) {
  return Writer()
      .put(static_cast<std::uint8_t>(status.code()))
      .text(status.message().substr(0, kMaxErrorText))
      .take();
}

Bytes success(std::span<const std::byte> body) { return Writer().put(std::uint8_t{0}).raw(body).take(); }

// Decodes the result of failure() or success().
Result<Bytes> open_envelope(std::span<const std::byte> envelope) {
  Reader reader(envelope);
  const auto code = static_cast<Code>(reader.get<std::uint8_t>());
  if (code == Code::kOk && reader.ok()) {
    const auto body = reader.raw(envelope.size() - 1);
    return Bytes(body.begin(), body.end());
  }
  const std::string why = reader.text();
  if (code == Code::kOk || code > kLastCode || !reader.at_end() || why.empty()) {
    return Status(Code::kInternal, "what it sent in the rendezvous is damaged");
  }
  return Status(code, why);
}

// What a rank sent ahead of the next exchange: its error ends the wait of this rank, its success does not.
// Empty while the message is incomplete.
std::optional<Status> peek_failure(int fd) {
  std::array<std::byte, sizeof(std::uint32_t) + sizeof(std::uint8_t) + sizeof(std::uint32_t) + kMaxErrorText>
      data{};
  const ssize_t got = ::recv(fd, data.data(), data.size(), MSG_PEEK | MSG_DONTWAIT);
  Reader reader(std::span<const std::byte>(data.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))));
  const auto bytes = reader.get<std::uint32_t>();
  if (reader.ok() && bytes > data.size() - sizeof(bytes)) {
    return Status();  // errors are shorter
  }
  const auto envelope = reader.raw(bytes);
  return reader.ok() ? std::optional(open_envelope(envelope).status()) : std::nullopt;
}

std::string join(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) {
    text += (text.empty() ? "" : ",") + part;
  }
  return text;
}

// Decodes the result of sign_entry().
Result<std::vector<Address>> parse_entry(const std::string& entry) {
  const std::size_t first = entry.find('/');
  const std::size_t last = entry.rfind('/');
  const int port = std::atoi(entry.c_str());  // NOLINT: 0, and what is no number, is refused below
  if (first == last || port <= 0 || port > 65535) {
    return Status(Code::kInvalid, "the store's entry " + std::string(kStoreKey) + " is no address: " +
                                      plain_text(as_bytes_of(entry)).substr(0, kMostShown));
  }
  std::string rest = entry.substr(first + 1, last - first - 1);
  std::vector<Address> addresses;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    addresses.push_back({rest.substr(0, comma), static_cast<std::uint16_t>(port)});
    rest.erase(0, comma + 1);
  }
  return addresses;
}

bool is_signed(std::span<const std::byte> token, const std::string& entry) {
  const std::string ours = sign_entry(token, entry.substr(0, std::min(entry.rfind('/'), entry.size())));
  return ours.size() == entry.size() && equal_digests(as_bytes_of(ours), as_bytes_of(entry));
}

// Rank 0 sets the entry, and empties it when all ranks have met: the next rendezvous may use the same store
// and must not read the address of this one. An entry without a valid signature counts as missing for
// `grace_s`, since a process outside the job may have written it. After that its address is used, and the
// hello reports what differs.
class StoreEntry {
 public:
  StoreEntry(KeyValueStore& store, std::span<const std::byte> token, double grace_s, TimePoint deadline,
             std::function<void(const std::string&)> warn)
      : store_(store), token_(token), grace_s_(grace_s), deadline_(deadline), warn_(std::move(warn)) {}

  // Waits until there is one.
  Result<std::vector<Address>> await() {
    for (;;) {
      Result<std::vector<Address>> found = look();
      if (!found.ok() || !found->empty()) {
        return found;
      }
      if (Clock::now() >= deadline_) {
        return Status(Code::kTimeout, "rank 0 did not write its address to the store" +
                                          (foreign_since_ ? "; " + std::string(kForeign) : ""));
      }
      std::this_thread::sleep_for(kStorePeriod);
    }
  }
  // The current entry; no addresses when it is empty. Rank 0 may have restarted since the last look.
  Result<std::vector<Address>> look() {
    Result<std::string> entry = store_.get(kStoreKey, deadline_);
    if (!entry.ok()) {
      return Status(entry.status().code(), "waiting for rank 0's address: " + entry.status().message());
    }
    if (entry->empty()) {
      return std::vector<Address>{};
    }
    if (is_signed(token_, *entry)) {
      foreign_since_.reset();
      return parse_entry(*entry);
    }
    if (!foreign_since_) {
      foreign_since_ = Clock::now();
      warn_(std::string(kForeign) + "; waiting for rank 0's");
    }
    const bool is_doubted = Clock::now() - *foreign_since_ < seconds(grace_s_);
    return is_doubted ? std::vector<Address>{} : parse_entry(*entry);
  }

 private:
  static constexpr const char* kForeign =
      "the store's entry smdp/rendezvous was not written with this rank's SMDP_JOB_TOKEN";

  KeyValueStore& store_;
  std::span<const std::byte> token_;
  double grace_s_;
  TimePoint deadline_;
  std::function<void(const std::string&)> warn_;
  std::optional<TimePoint> foreign_since_;
};

}  // namespace

std::string sign_entry(std::span<const std::byte> token, const std::string& addresses) {
  return addresses + "/" + to_hex(hmac_sha256(token, {as_bytes_of("smdp address"), as_bytes_of(addresses)}));
}

Result<std::unique_ptr<Rendezvous>> Rendezvous::meet(const Hello& self, std::vector<std::byte> token,
                                                     const Options& options, const std::string& master,
                                                     KeyValueStore* store, TimePoint deadline,
                                                     const std::function<void(const std::string&)>& warn) {
  const int rank = static_cast<int>(self.rank);
  const int world_size = static_cast<int>(self.world_size);
  std::unique_ptr<Rendezvous> rendezvous(new Rendezvous(rank, world_size));
  if (world_size == 1) {
    return rendezvous;
  }
  Handshaker handshaker(self, token, deadline);
  handshaker.set_refusal_grace(refusal_grace_s(options));
  handshaker.set_warning(warn);
  const auto fixed_port = static_cast<std::uint16_t>(options.rendezvous_port);
  Result<std::vector<std::string>> listed = interface_addresses(options.interface, options.ipv6);
  if (!listed.ok()) {
    return listed.status();
  }
  std::vector<std::string> candidates = std::move(*listed);
  if (rank != 0) {
    std::vector<Address> addresses;
    if (store != nullptr) {
      StoreEntry entry(*store, token, refusal_grace_s(options), deadline, warn);
      Result<std::vector<Address>> stored = entry.await();
      if (!stored.ok()) {
        return stored.status();
      }
      addresses = std::move(*stored);
      handshaker.set_lookup([entry]() mutable { return entry.look(); });
    } else {
      Result<std::vector<std::string>> hosts = resolve(master);
      if (!hosts.ok()) {
        return hosts.status();
      }
      for (const std::string& host : *hosts) {
        addresses.push_back({host, fixed_port});
      }
    }
    handshaker.connect(0, 0, std::move(addresses), true);
  } else {
    const std::string bind_to = options.interface.empty() || candidates.empty() ? "" : candidates.front();
    Result<Listener> listener = store != nullptr ? listen_tcp(bind_to, options.port_range)
                                                 : listen_tcp(bind_to, std::to_string(fixed_port));
    if (!listener.ok()) {
      return listener.status();
    }
    if (store != nullptr) {
      if (options.interface.empty()) {
        if (const auto hosts = resolve(master); !master.empty() && hosts.ok()) {
          candidates.insert(candidates.begin(), hosts->begin(), hosts->end());
        }
      }
      const std::string entry = sign_entry(token, std::to_string(listener->port) + "/" + join(candidates));
      if (Status status = store->set(kStoreKey, entry); !status.ok()) {
        return status;
      }
      // Other processes may overwrite the entry. Ranks that have read it do not need it, so errors are
      // ignored.
      handshaker.set_reminder([store, entry] { (void)store->set(kStoreKey, entry); });
    }
    handshaker.accept_on(listener->fd.get());
    for (int other = 1; other < world_size; ++other) {
      handshaker.expect(other, 0);
    }
    Status met = handshaker.run();
    if (store != nullptr) {
      (void)store->set(kStoreKey, "");
    }
    for (auto& [link, fd] : handshaker.connections()) {
      if (const std::string host = local_host(fd.get());
          std::ranges::find(rendezvous->local_addresses_, host) == rendezvous->local_addresses_.end()) {
        rendezvous->local_addresses_.push_back(host);
      }
      rendezvous->links_[link.first] = std::move(fd);
    }
    if (!met.ok()) {
      // The ranks that did arrive must not wait any longer.
      const Status why(met.code(), "rendezvous failed: " + met.message());
      for (auto& [other, fd] : rendezvous->links_) {
        (void)send_block(fd.get(), failure(why), after(1));
      }
      return why;
    }
    return rendezvous;
  }
  if (Status met = handshaker.run(); !met.ok()) {
    return Status(met.code(), "rendezvous with rank 0 failed: " + met.message());
  }
  rendezvous->links_[0] = std::move(handshaker.connections().begin()->second);
  rendezvous->local_addresses_.push_back(local_host(rendezvous->links_[0].get()));
  return rendezvous;
}

std::string Rendezvous::describe_peer(int rank) {
  const std::string host = peer_host(links_[rank].get());
  return "rank " + std::to_string(rank) + (host.empty() ? "" : " (at " + host + ")");
}

Status Rendezvous::departure() {
  for (auto& [other, fd] : links_) {
    // Rank 0 sends nothing before all others have sent, except an error. They send when they are ready.
    const auto events = static_cast<short>(POLLRDHUP | (rank_ == 0 ? 0 : POLLIN));
    pollfd entry{fd.get(), events, 0};
    if (::poll(&entry, 1, 0) > 0) {
      return {Code::kPeerLost, describe_peer(other) + " left the rendezvous: the connection was closed"};
    }
  }
  return {};
}

void Rendezvous::watch_during(Handshaker& handshaker) {
  for (auto& [other, fd] : links_) {
    handshaker.watch(fd.get(), describe_peer(other), rank_ != 0);
  }
  handshaker.set_error_reader(peek_failure);
}

Result<Bytes> Rendezvous::decide(const Result<Bytes>& mine,
                                 const std::function<Result<Bytes>(const std::vector<Bytes>&)>& judge,
                                 TimePoint deadline) {
  const TimePoint last_call = deadline + kVerdictGrace;
  const Bytes envelope = mine.ok() ? success(*mine) : failure(mine.status());
  if (rank_ != 0) {
    UniqueFd& link = links_[0];
    // Rank 0 may have sent its verdict already and closed: read before reporting a failed send.
    const Status sent = send_block(link.get(), envelope, deadline);
    // Rank 0 decides at its deadline, which is about ours: its verdict gets some seconds to arrive.
    Result<Bytes> answer = receive_block(link.get(), kMaxBlob, deadline + std::chrono::seconds(5));
    if (!answer.ok()) {
      const Status& why = mine.ok() ? answer.status() : mine.status();
      return Status(why.code(),
                    mine.ok() ? describe_peer(0) + " left the rendezvous: " + why.message() : why.message());
    }
    (void)sent;
    return open_envelope(*answer);
  }
  std::vector<Bytes> blobs(static_cast<std::size_t>(world_size_));
  Status failed = mine.ok() ? Status() : mine.status();
  if (mine.ok()) {
    blobs[0] = *mine;
  }
  std::map<int, int> waiting;  // rank to descriptor
  for (auto& [other, fd] : links_) {
    waiting[other] = fd.get();
  }
  while (!waiting.empty() && failed.ok()) {
    std::vector<pollfd> entries;
    std::vector<int> ranks;
    for (const auto& [other, fd] : waiting) {
      entries.push_back({fd, POLLIN, 0});
      ranks.push_back(other);
    }
    ::poll(entries.data(), entries.size(), milliseconds_until(last_call));
    for (std::size_t i = 0; i < entries.size() && failed.ok(); ++i) {
      if (entries[i].revents == 0) {
        continue;
      }
      const int other = ranks[i];
      waiting.erase(other);
      Result<Bytes> block = receive_block(entries[i].fd, kMaxBlob, last_call);
      Result<Bytes> opened = block.ok() ? open_envelope(*block) : block;
      if (opened.ok()) {
        blobs[static_cast<std::size_t>(other)] = std::move(*opened);
      } else {
        const std::string& why = opened.status().message();
        failed = {opened.status().code(),
                  block.ok() ? why : describe_peer(other) + " left the rendezvous: " + why};
      }
    }
    if (Clock::now() >= last_call && !waiting.empty() && failed.ok()) {
      std::string silent;
      for (const auto& [other, fd] : waiting) {
        silent += (silent.empty() ? "" : ", ") + describe_peer(other);
      }
      failed = {Code::kTimeout, silent + " sent nothing in the rendezvous"};
    }
  }
  Result<Bytes> verdict = failed.ok() ? judge(blobs) : Result<Bytes>(failed);
  const Bytes answer = verdict.ok() ? success(*verdict) : failure(verdict.status());
  for (auto& [other, fd] : links_) {
    (void)send_block(fd.get(), answer, after(5));
  }
  return verdict;
}

Result<std::vector<Bytes>> Rendezvous::exchange(const Result<Bytes>& mine, TimePoint deadline) {
  const auto table = decide(
      mine,
      [](const std::vector<Bytes>& blobs) -> Result<Bytes> {
        Writer writer;
        for (const Bytes& blob : blobs) {
          writer.put(static_cast<std::uint32_t>(blob.size())).raw(blob);
        }
        return writer.take();
      },
      deadline);
  if (!table.ok()) {
    return table.status();
  }
  Reader reader(*table);
  std::vector<Bytes> blobs;
  for (int i = 0; i < world_size_; ++i) {
    const auto blob = reader.raw(reader.get<std::uint32_t>());
    blobs.emplace_back(blob.begin(), blob.end());
  }
  if (!reader.at_end()) {
    return Status(Code::kInternal, "rank 0's table is damaged");
  }
  return blobs;
}

}  // namespace smdp
