#include "net/fabric/choice.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <filesystem>
#include <functional>
#include <iterator>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "base/sha256.h"
#include "net/fabric/rails.h"
#include "net/fabric/report.h"
#include "net/fabric/signal_handlers_kept.h"

namespace smdp {
namespace {

constexpr double kProbe = 15;                         // seconds for a frame to every rank, and one from each
constexpr std::uint64_t kLeastPayload = 256U << 10U;  // bytes; also the parts of messages (point_to_point.cc)
constexpr std::uint64_t kMostPayload = 4U << 20U;     // larger frames use TCP
// The receive buffers of all rails: at most 64 of 4 MiB (of 8 rails), each with a page for its header
// (port.cc).
constexpr std::size_t kSharedBytes = 257U << 20U;

// A frame over one rail to each rank and one from each, before the engine relies on the fabric.
class RailProbe final : public FabricPort::Events {
 public:
  // `names`: by rank, for messages. `where`: the same for the rail; empty: there is only one.
  RailProbe(int rank, FabricPort& port, const std::vector<std::string>& names, std::string where)
      : rank_(rank), port_(port), names_(names), where_(std::move(where)), receiver_of_(port.tickets()) {}
  void add(int peer, FabricConnections::Link link) {
    to_send_[peer] = std::move(link);
    silent_.insert(peer);
  }

  // False: nothing had happened.
  bool step() {
    send();
    const Result<bool> worked = port_.poll(*this);
    if (!worked.ok() && why_.empty()) {
      why_ = worked.status().message() + where_;
    }
    return worked.ok() && *worked;
  }
  [[nodiscard]] bool is_complete() const {
    return to_send_.empty() && silent_.empty() && port_.in_flight() == 0;
  }
  // Empty, or what went wrong.
  [[nodiscard]] const std::string& why() const { return why_; }
  // What went wrong if it is not complete after `limit_s`.
  [[nodiscard]] std::string silence(double limit_s) const {
    const std::string within = where_ + " within " + std::to_string(std::lround(limit_s)) + " s";
    if (silent_.empty()) {
      return "its frames to other ranks were not taken" + within;
    }
    return "nothing arrived over the fabric from " + names_[static_cast<std::size_t>(*silent_.begin())] +
           (silent_.size() > 1 ? " and " + std::to_string(silent_.size() - 1) + " others" : "") + within +
           " (on EC2, the security group must allow all traffic from and to itself)";
  }

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
    while (!to_send_.empty() && why_.empty()) {
      FabricConnections::Link& link = to_send_.begin()->second;
      if (port_.writes()) {
        link.target.slot = link.slots.front();  // free again when all ranks have been heard
      }
      const auto ticket = port_.send(link.target, ping, {}, nullptr);
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
    return "no frame reaches " + names_[static_cast<std::size_t>(receiver)] + where_ + ": " + why.message();
  }

  int rank_;
  FabricPort& port_;
  const std::vector<std::string>& names_;
  std::string where_;
  std::map<int, FabricConnections::Link> to_send_;
  std::vector<int> receiver_of_;  // by ticket
  std::set<int> silent_;
  std::string why_;
};

// Probes all rails at once. Returns nothing, or what went wrong. Ends early when a rank leaves the
// rendezvous: `departure` says why.
std::string probe_rails(std::deque<RailProbe>& rails, double limit_s, Rendezvous& rendezvous,
                        Status& departure) {
  const TimePoint deadline = after(limit_s);
  const auto open = [&] { return std::ranges::find_if(rails, std::not_fn(&RailProbe::is_complete)); };
  while (departure.ok() && open() != rails.end()) {
    if (Clock::now() >= deadline) {
      departure = rendezvous.departure();
      return open()->silence(limit_s);
    }
    bool worked = false;
    for (RailProbe& rail : rails) {
      worked = rail.step() || worked;
      if (!rail.why().empty()) {
        return rail.why();
      }
    }
    if (!worked) {
      departure = rendezvous.departure();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  return "";
}

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
    if (!opened.ok() || opened->rails.empty()) {
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
           why + ": all hosts of the job exchange over TCP (SMDP_TRANSPORT=tcp hides this warning)");
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
    Result<std::vector<std::unique_ptr<FabricPort>>> rails = open_rails();
    const Status described = rails.ok() ? describe(*rails, mine) : rails.status();
    mine.failure = described.message();
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
    // All addresses of a provider have one length.
    const auto& first = reports->front().rails;
    const std::size_t address_bytes = first.empty() ? 0 : first.front().address.size();
    std::size_t fewest = kMostRails;
    for (std::size_t rank = 0; rank < reports->size() && failure.empty(); ++rank) {
      const FabricFacts facts{writers_of(rank), address_bytes, rails->front()->slot_bytes()};
      if (const Status status = check((*reports)[rank], facts); !status.ok()) {
        failure = name(rank) + ": " + status.message();
      }
      fewest = std::min(fewest, (*reports)[rank].rails.size());
    }
    if (!failure.empty()) {
      return give_up(failure);
    }
    rails->resize(fewest);
    made.rails = std::move(*rails);
    reports_ = *reports;
    return made;
  }

  // What the other ranks need to reach this one.
  static Status describe(std::vector<std::unique_ptr<FabricPort>>& rails, FabricReport& report) {
    report.provider = rails.front()->endpoint().provider();
    report.writes = rails.front()->writes();
    for (const auto& rail : rails) {
      Result<Bytes> address = rail->endpoint().address();
      if (!address.ok()) {
        return address.status();
      }
      report.rails.push_back(
          {static_cast<std::uint32_t>(rail->window()), rail->slots(), std::move(*address)});
    }
    return {};
  }

  // How many ranks send to this one over the fabric.
  [[nodiscard]] std::size_t writers_of(std::size_t rank) const {
    const auto mates = std::ranges::count(question_.host_of, question_.host_of[rank]);
    return question_.host_of.size() - static_cast<std::size_t>(mates);
  }

  // Frames are sent in the same way between all ranks. Not ok: as exchange().
  Status agree(FabricConnections& made, std::string& failure) {
    const auto writers = std::ranges::count_if(reports_, &FabricReport::writes);
    if (writers == 0 || std::cmp_equal(writers, reports_.size())) {
      return {};
    }
    FabricReport mine;  // no rank sends a message before all have buffers for it
    mine.failure = use_messages(made.rails).message();
    return exchange(mine, failure).status();
  }

  static Status use_messages(std::vector<std::unique_ptr<FabricPort>>& rails) {
    for (const auto& rail : rails) {
      if (Status status = rail->use_messages(); !status.ok()) {
        return status;
      }
    }
    return {};
  }

  // At least one, and all send in the same way.
  Result<std::vector<std::unique_ptr<FabricPort>>> open_rails() {
    const SignalHandlersKept kept;
    Result<FabricLibrary> library = FabricLibrary::open(question_.options.libfabric);
    if (!library.ok()) {
      return library.status();
    }
    std::vector<int> others;
    for (int rank = 0; rank < world_size(); ++rank) {
      if (host(rank) != host(question_.rank)) {
        others.push_back(rank);
      }
    }
    FabricPort::Wanted wanted;
    wanted.provider = question_.options.transport == "auto" ? "efa" : "";
    wanted.source = question_.source;
    wanted.peers = others.size();
    wanted.writers = question_.options.fabric_writes ? others : std::vector<int>();
    wanted.payload_bytes = std::clamp(static_cast<std::uint64_t>(question_.options.piece_kib) << 10U,
                                      kLeastPayload, kMostPayload);
    wanted.tag = question_.tag;
    wanted.shared = question_.shared;
    const auto devices = FabricPort::devices(*library, wanted);
    if (!devices.ok()) {
      return devices.status();
    }
    Result<std::vector<std::unique_ptr<FabricPort>>> opened = open_devices(*library, wanted, *devices);
    if (!opened.ok()) {
      return opened;
    }
    const bool all_write = std::ranges::all_of(*opened, [](const auto& rail) { return rail->writes(); });
    if (Status status = all_write ? Status() : use_messages(*opened); !status.ok()) {
      return status;
    }
    return opened;
  }

  // The chosen devices; where none of them opens, another one of the host.
  Result<std::vector<std::unique_ptr<FabricPort>>> open_devices(
      const FabricLibrary& library, FabricPort::Wanted wanted,
      const std::vector<std::string>& devices) const {
    const std::vector<std::size_t> chosen = choose_rails(devices);
    wanted.rails = chosen.size();
    std::vector<std::unique_ptr<FabricPort>> rails;
    const auto add = [&](std::size_t device) {
      wanted.device = devices[device];
      auto rail = FabricPort::open(library, wanted);
      if (rail.ok()) {
        wanted.shared = wanted.shared.subspan((*rail)->shared_bytes());
        rails.push_back(std::move(*rail));
      }
      return rail.status();
    };
    std::string refused;  // the devices that did not open
    Status first;
    for (const std::size_t device : chosen) {
      if (Status status = add(device); !status.ok()) {
        refused += (refused.empty() ? "" : ", ") + wanted.device;
        first = first.ok() ? std::move(status) : first;
      }
    }
    // Of the other devices one is enough: all ranks then use one.
    const bool has_own = !rails.empty();
    wanted.rails = has_own ? wanted.rails : 1;
    for (std::size_t device = 0; device < devices.size() && rails.empty(); ++device) {
      if (std::ranges::find(chosen, device) == chosen.end()) {
        (void)add(device);
      }
    }
    if (rails.empty()) {
      return first;
    }
    if (!refused.empty()) {
      const std::string instead = has_own ? "uses " + std::to_string(rails.size()) + " of its " +
                                                std::to_string(chosen.size()) + " devices"
                                          : "uses " + rails.front()->endpoint().device() + " instead";
      log_(LogLevel::kWarning, refused + " did not open (" + first.message() + "): this rank " + instead);
    }
    return rails;
  }

  [[nodiscard]] std::vector<std::size_t> choose_rails(const std::vector<std::string>& devices) const {
    std::vector<PciPlace> places(devices.size());
    std::ranges::transform(devices, places.begin(), [this](const std::string& device) {
      return place_of_device(question_.sysfs, device);
    });
    std::size_t mates = 0;  // ranks of this host
    std::size_t local = 0;  // place of this rank among them
    for (int rank = 0; rank < world_size(); ++rank) {
      if (host(rank) == host(question_.rank)) {
        local = rank == question_.rank ? mates : local;
        ++mates;
      }
    }
    return assign_rails(places, gpus_of(question_.sysfs), mates,
                        static_cast<std::size_t>(question_.options.fabric_rails))[local];
  }

  // What the rank `to` lets this one send over the rail.
  Result<FabricConnections::Link> link(FabricPort& port, std::size_t rail, int to) const {
    const FabricReport::Rail& report = reports_[static_cast<std::size_t>(to)].rails[rail];
    const Result<std::uint64_t> place = port.endpoint().insert(report.address);
    if (!place.ok()) {
      return place.status();
    }
    FabricConnections::Link made{{*place, report.slots, 0}, report.window, {}};
    std::uint32_t index = 0;  // of this rank among the writers of `to`
    for (int rank = 0; rank < question_.rank; ++rank) {
      index += host(rank) == host(to) ? 0 : 1;
    }
    for (std::uint32_t i = 0; i < report.window && port.writes(); ++i) {
      made.slots.push_back(index * report.window + i);
    }
    return made;
  }

  // The links to all ranks of other hosts. Not empty: what went wrong.
  std::string add_links(FabricConnections& made) const {
    for (int rank = 0; rank < world_size(); ++rank) {
      for (std::size_t rail = 0; rail < made.rails.size() && host(rank) != host(question_.rank); ++rail) {
        Result<FabricConnections::Link> reached = link(*made.rails[rail], rail, rank);
        if (!reached.ok()) {
          return "the address of " + name(static_cast<std::size_t>(rank)) + ": " + reached.status().message();
        }
        made.peers[rank].push_back(std::move(*reached));
      }
    }
    return "";
  }

  std::string probe_links(const FabricConnections& made, Status& departure) const {
    std::deque<RailProbe> probes;
    for (std::size_t rail = 0; rail < made.rails.size(); ++rail) {
      FabricPort& port = *made.rails[rail];
      const std::string where =
          made.rails.size() == 1
              ? ""
              : " over rail " + std::to_string(rail) + " (here the device " + port.endpoint().device() + ")";
      RailProbe& probe = probes.emplace_back(question_.rank, port, question_.names, where);
      for (const auto& [peer, links] : made.peers) {
        probe.add(peer, links[rail]);
      }
    }
    const double left = std::chrono::duration<double>(deadline_ - Clock::now()).count();
    return probe_rails(probes, std::clamp(left, 0.0, kProbe), rendezvous_, departure);
  }

  static void close(FabricConnections& made) {
    std::vector<FabricPort*> ports;
    std::ranges::transform(made.rails, std::back_inserter(ports), &std::unique_ptr<FabricPort>::get);
    FabricPort::drain(ports);
    made.rails.clear();
  }

  // Step 3.
  Result<FabricConnections> probe(FabricConnections made) {
    FabricReport mine;
    std::string failure;
    if (Status status = agree(made, failure); !status.ok()) {
      return status;
    }
    if (!failure.empty()) {
      close(made);
      return give_up(failure);
    }
    mine.failure = add_links(made);
    if (mine.failure.empty()) {
      Status departure;
      mine.failure = probe_links(made, departure);
      if (!departure.ok()) {
        const Status verdict = rendezvous_.exchange(departure, deadline_).status();
        return verdict.ok() ? departure : verdict;
      }
    }
    if (const auto reports = exchange(mine, failure); !reports.ok()) {
      return reports.status();
    }
    if (!failure.empty()) {
      close(made);
      return give_up(failure);
    }
    if (question_.rank == 0) {
      log_(LogLevel::kNotice, "the hosts exchange over the fabric " +
                                  made.rails.front()->endpoint().provider() + devices_of(made) +
                                  (made.rails.front()->writes() ? ", by writes" : ", by messages"));
    }
    return made;
  }

  // For a message; empty if the provider names no device.
  static std::string devices_of(const FabricConnections& made) {
    std::string names;
    for (const auto& rail : made.rails) {
      const std::string device = rail->endpoint().device();
      names += (names.empty() || device.empty() ? "" : ", ") + device;
    }
    const std::string what = made.rails.size() == 1 ? "device " : "devices ";
    return names.empty() ? "" : " (" + what + names + " on this rank)";
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

std::size_t fabric_memory(const Options& options) { return fabric_offer(options).empty() ? 0 : kSharedBytes; }

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
