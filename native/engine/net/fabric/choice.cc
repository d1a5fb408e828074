#include "net/fabric/choice.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "base/sha256.h"
#include "net/fabric/report.h"
#include "net/fabric/signal_handlers_kept.h"

namespace smdp {
namespace {

constexpr double kProbe = 15;                         // seconds for a frame to every rank, and one from each
constexpr std::uint64_t kLeastPayload = 256U << 10U;  // bytes; also the parts of messages (point_to_point.cc)
constexpr std::uint64_t kMostPayload = 4U << 20U;     // larger frames use TCP

// A frame to each rank and one from each, before the engine relies on the fabric.
class Probe final : public FabricPort::Events {
 public:
  // `names`: by rank, for messages.
  Probe(int rank, FabricPort& port, const std::map<int, FabricConnections::Peer>& peers,
        const std::vector<std::string>& names, Rendezvous& rendezvous)
      : rank_(rank),
        port_(port),
        names_(names),
        rendezvous_(rendezvous),
        to_send_(peers),
        receiver_of_(port.tickets()) {
    for (const auto& [peer, remote] : peers) {
      silent_.insert(peer);
    }
  }

  // Empty, or what went wrong. Ends early when a rank leaves the rendezvous: departure().
  std::string run(double limit_s) {
    const TimePoint deadline = after(limit_s);
    while (departure_.ok() && why_.empty() &&
           !(to_send_.empty() && silent_.empty() && port_.in_flight() == 0)) {
      if (Clock::now() >= deadline) {
        departure_ = rendezvous_.departure();
        return silence(limit_s);
      }
      send();
      const Result<bool> worked = port_.poll(*this);
      if (!worked.ok()) {
        return worked.status().message();
      }
      if (!*worked) {
        departure_ = rendezvous_.departure();
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    }
    return why_;
  }
  [[nodiscard]] const Status& departure() const { return departure_; }

  void received(std::uint32_t from, const std::optional<FrameHeader>& header,
                std::span<std::byte> /*payload*/, std::size_t buffer) override {
    port_.give_back(buffer, -1);
    if (header) {
      silent_.erase(static_cast<int>(from));
    }
  }
  void sent(std::size_t ticket, const Status& why) override {
    if (!why.ok() && why_.empty()) {
      why_ = unreachable(receiver_of_[ticket], why);
    }
  }
  void reposted(int /*from*/, std::size_t /*buffer*/) override {}

 private:
  void send() {
    FrameHeader ping;
    ping.type = FrameType::kPing;
    ping.sender = static_cast<std::uint32_t>(rank_);
    while (!to_send_.empty()) {
      FabricConnections::Peer& peer = to_send_.begin()->second;
      if (port_.writes()) {
        peer.target.slot = peer.slots.front();  // free again when all ranks have been heard
      }
      const auto ticket = port_.send(peer.target, ping, {}, nullptr);
      const int receiver = to_send_.begin()->first;
      if (!ticket.ok()) {
        why_ = unreachable(receiver, ticket.status());
        return;
      }
      if (!*ticket) {
        return;
      }
      receiver_of_[**ticket] = receiver;
      to_send_.erase(to_send_.begin());
    }
  }
  [[nodiscard]] std::string unreachable(int receiver, const Status& why) const {
    return "no frame reaches " + names_[static_cast<std::size_t>(receiver)] + ": " + why.message();
  }
  [[nodiscard]] std::string silence(double limit_s) const {
    const std::string within = " within " + std::to_string(std::lround(limit_s)) + " s";
    if (silent_.empty()) {
      return "its frames to other ranks were not taken" + within;
    }
    return "nothing arrived over the fabric from " + names_[static_cast<std::size_t>(*silent_.begin())] +
           (silent_.size() > 1 ? " and " + std::to_string(silent_.size() - 1) + " others" : "") + within +
           " (on EC2, the security group must allow all traffic from and to itself)";
  }

  int rank_;
  FabricPort& port_;
  const std::vector<std::string>& names_;
  Rendezvous& rendezvous_;
  std::map<int, FabricConnections::Peer> to_send_;
  std::vector<int> receiver_of_;  // by ticket
  std::set<int> silent_;
  std::string why_;
  Status departure_;
};

class Choice {
 public:
  Choice(const FabricQuestion& question, Rendezvous& rendezvous, TimePoint deadline, const LogSink& log)
      : question_(question), rendezvous_(rendezvous), deadline_(deadline), log_(log) {}

  Result<FabricConnections> run() {
    const bool is_wanted = question_.options.transport != "tcp" && has_other_hosts();
    if (!is_wanted || std::ranges::all_of(question_.offers, &std::string::empty)) {
      return FabricConnections{};
    }
    if (const std::string lacking = without_offer(); !lacking.empty()) {
      return give_up("no EFA device on " + lacking);
    }
    Result<FabricConnections> opened = open();
    if (!opened.ok() || !opened->port) {
      return opened;
    }
    return probe(std::move(*opened));
  }

 private:
  [[nodiscard]] int host(int rank) const { return question_.host_of[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int world_size() const { return static_cast<int>(question_.host_of.size()); }
  [[nodiscard]] const std::string& name(std::size_t rank) const { return question_.names[rank]; }
  [[nodiscard]] bool has_other_hosts() const {
    return std::ranges::any_of(question_.host_of, [this](int one) { return one != host(question_.rank); });
  }

  // The hosts of the ranks that offer nothing, by their first rank.
  [[nodiscard]] std::string without_offer() const {
    std::set<int> hosts;
    std::string text;
    for (std::size_t rank = 0; rank < question_.offers.size(); ++rank) {
      if (question_.offers[rank].empty() && hosts.insert(host(static_cast<int>(rank))).second) {
        text += (text.empty() ? "" : ", ") + name(rank);
      }
    }
    return text;
  }

  // Every rank comes here for the same reason.
  Result<FabricConnections> give_up(const std::string& why) {
    if (question_.options.transport == "ofi") {
      return Status(Code::kUnsupported,
                    "SMDP_TRANSPORT=ofi: " + why + "; SMDP_TRANSPORT=tcp needs no fabric");
    }
    if (question_.rank == 0) {
      log_(LogLevel::kWarning,
           why + ": all hosts of the job exchange over TCP (SMDP_TRANSPORT=tcp asks for no fabric)");
    }
    return FabricConnections{};
  }

  // The first rank that failed, with its reason.
  Result<std::vector<FabricReport>> exchange(const FabricReport& mine, std::string& failure) {
    const auto blobs = rendezvous_.exchange(encode(mine), deadline_);
    if (!blobs.ok()) {
      return blobs.status();
    }
    std::vector<FabricReport> reports;
    for (const Bytes& blob : *blobs) {
      Result<FabricReport> report = decode_fabric_report(blob);
      const std::string why = report.ok() ? report->failure : report.status().message();
      if (failure.empty() && !why.empty()) {
        failure = name(reports.size()) + ": " + why;
      }
      reports.push_back(report.ok() ? std::move(*report) : FabricReport{});
    }
    return reports;
  }

  // Step 2.
  Result<FabricConnections> open() {
    FabricConnections made;
    FabricReport mine;
    Result<std::unique_ptr<FabricPort>> port = open_port();
    if (port.ok()) {
      Result<Bytes> address = (*port)->endpoint().address();
      mine.provider = (*port)->endpoint().provider();
      mine.failure = address.status().message();
      mine.address = address.ok() ? std::move(*address) : Bytes{};
      mine.writes = (*port)->writes();
      mine.window = static_cast<std::uint32_t>((*port)->window());
      mine.slots = (*port)->slots();
    } else {
      mine.failure = port.status().message();
    }
    std::string failure;
    const auto reports = exchange(mine, failure);
    if (!reports.ok()) {
      return reports.status();
    }
    if (failure.empty() && !mine.failure.empty()) {
      failure = name(static_cast<std::size_t>(question_.rank)) + ": " + mine.failure;
    }
    const auto other = std::ranges::find_if(
        *reports, [&](const FabricReport& one) { return one.provider != reports->front().provider; });
    if (failure.empty() && other != reports->end()) {
      failure = "the fabrics differ: " + name(0) + " has " + reports->front().provider + ", " +
                name(static_cast<std::size_t>(other - reports->begin())) + " has " + other->provider;
    }
    for (std::size_t rank = 0; rank < reports->size() && failure.empty(); ++rank) {
      const FabricFacts facts{writers_of(rank), reports->front().address.size(), (*port)->slot_bytes()};
      if (const Status status = check((*reports)[rank], facts); !status.ok()) {
        failure = name(rank) + ": " + status.message();
      }
    }
    if (!failure.empty()) {
      return give_up(failure);
    }
    made.port = std::move(*port);
    reports_ = *reports;
    return made;
  }

  // How many ranks send to this one over the fabric.
  [[nodiscard]] std::size_t writers_of(std::size_t rank) const {
    const auto mates = std::ranges::count(question_.host_of, question_.host_of[rank]);
    return question_.host_of.size() - static_cast<std::size_t>(mates);
  }

  // Frames are sent in the same way between all ranks. Not ok: as exchange().
  Status agree(FabricPort& port, std::string& failure) {
    const auto writers = std::ranges::count_if(reports_, &FabricReport::writes);
    if (writers == 0 || std::cmp_equal(writers, reports_.size())) {
      return {};
    }
    FabricReport mine;  // no rank sends a message before all have buffers for it
    mine.failure = port.use_messages().message();
    return exchange(mine, failure).status();
  }

  Result<std::unique_ptr<FabricPort>> open_port() {
    const SignalHandlersKept kept;
    Result<FabricLibrary> library = FabricLibrary::open(question_.options.libfabric);
    if (!library.ok()) {
      return library.status();
    }
    int local = 0;  // place of this rank among those of its host
    std::vector<int> others;
    for (int rank = 0; rank < world_size(); ++rank) {
      const bool is_mate = host(rank) == host(question_.rank);
      local += is_mate && rank < question_.rank ? 1 : 0;
      if (!is_mate) {
        others.push_back(rank);
      }
    }
    FabricPort::Wanted wanted;
    wanted.provider = question_.options.transport == "auto" ? "efa" : "";
    wanted.source = question_.source;
    wanted.rail = static_cast<std::size_t>(local);
    wanted.peers = others.size();
    wanted.writers = question_.options.fabric_writes ? others : std::vector<int>();
    wanted.payload_bytes = std::clamp(static_cast<std::uint64_t>(question_.options.piece_kib) << 10U,
                                      kLeastPayload, kMostPayload);
    wanted.tag = question_.tag;
    return FabricPort::open(*library, wanted);
  }

  // What the rank `to` lets this one send.
  Result<FabricConnections::Peer> peer(FabricPort& port, int to) const {
    const FabricReport& report = reports_[static_cast<std::size_t>(to)];
    const Result<std::uint64_t> place = port.endpoint().insert(report.address);
    if (!place.ok()) {
      return place.status();
    }
    FabricConnections::Peer made{{*place, report.slots, 0}, report.window, {}};
    std::uint32_t index = 0;  // of this rank among the writers of `to`
    for (int rank = 0; rank < question_.rank; ++rank) {
      index += host(rank) == host(to) ? 0 : 1;
    }
    for (std::uint32_t i = 0; i < report.window && port.writes(); ++i) {
      made.slots.push_back(index * report.window + i);
    }
    return made;
  }

  // Step 3.
  Result<FabricConnections> probe(FabricConnections made) {
    FabricReport mine;
    std::string failure;
    if (Status status = agree(*made.port, failure); !status.ok()) {
      return status;
    }
    if (!failure.empty()) {
      made.port.reset();
      return give_up(failure);
    }
    for (int rank = 0; rank < world_size() && mine.failure.empty(); ++rank) {
      if (host(rank) != host(question_.rank)) {
        Result<FabricConnections::Peer> reached = peer(*made.port, rank);
        if (!reached.ok()) {
          mine.failure =
              "the address of " + name(static_cast<std::size_t>(rank)) + ": " + reached.status().message();
        }
        made.peers[rank] = reached.ok() ? std::move(*reached) : FabricConnections::Peer{};
      }
    }
    if (mine.failure.empty()) {
      const double left = std::chrono::duration<double>(deadline_ - Clock::now()).count();
      Probe probe(question_.rank, *made.port, made.peers, question_.names, rendezvous_);
      mine.failure = probe.run(std::clamp(left, 0.0, kProbe));
      if (const Status& departure = probe.departure(); !departure.ok()) {
        const Status verdict = rendezvous_.exchange(departure, deadline_).status();
        return verdict.ok() ? departure : verdict;
      }
    }
    if (const auto reports = exchange(mine, failure); !reports.ok()) {
      return reports.status();
    }
    if (!failure.empty()) {
      made.port.reset();
      return give_up(failure);
    }
    if (question_.rank == 0) {
      const std::string device = made.port->endpoint().device();
      log_(LogLevel::kNotice, "the hosts exchange over the fabric " + made.port->endpoint().provider() +
                                  (device.empty() ? "" : " (device " + device + " on this rank)") +
                                  (made.port->writes() ? ", by writes" : ", by messages"));
    }
    return made;
  }

  const FabricQuestion& question_;
  Rendezvous& rendezvous_;
  TimePoint deadline_;
  const LogSink& log_;
  std::vector<FabricReport> reports_;
};

bool is_efa(const std::filesystem::path& device) {
  std::error_code ignored;
  const auto driver = std::filesystem::read_symlink(device / "device" / "driver", ignored);
  return driver.filename() == "efa";
}

}  // namespace

std::string fabric_offer(const Options& options, const std::string& devices) {
  if (options.transport != "auto") {
    return options.transport == "ofi" ? "any" : "";
  }
  if (!options.libfabric.empty()) {
    return "efa";  // the library is named, so it is asked
  }
  std::error_code none;
  for (const auto& device : std::filesystem::directory_iterator(devices, none)) {
    if (is_efa(device.path())) {
      return "efa";
    }
  }
  return "";
}

FabricPort::Tag fabric_tag(std::span<const std::byte> token, std::uint64_t session) {
  const Digest digest =
      hmac_sha256(token, {as_bytes_of("smdp fabric"), std::as_bytes(std::span(&session, 1))});
  FabricPort::Tag tag{};
  std::copy_n(digest.begin(), tag.size(), tag.begin());
  return tag;
}

Result<FabricConnections> choose_fabric(const FabricQuestion& question, Rendezvous& rendezvous,
                                        TimePoint deadline, const LogSink& log) {
  return Choice(question, rendezvous, deadline, log).run();
}

}  // namespace smdp
