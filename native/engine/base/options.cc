#include "base/options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

namespace smdp {
namespace {

using Field =
    std::variant<std::string Options::*, bool Options::*, std::int64_t Options::*, double Options::*>;

struct Row {
  OptionInfo info;
  Field field;
  double least;
  double most;
};

constexpr double kNoBound = 9e15;
// Bounds of times, in seconds, as in the job file.
constexpr double kLongest = 30 * 86400.0;  // more than the maximum run time of a SageMaker job
constexpr double kLongestHeartbeat = 3600;

// clang-format off
const std::array kRows = {
    Row{{"SMDP_INTERFACE", "text", "", "", "name or address of the network interface to use; empty: the interface through which rank 0 is reached"}, &Options::interface, 0, 0},
    Row{{"SMDP_TRANSPORT", "text", "", "tcp", "how the hosts exchange bulk data; tcp: over TCP; ofi: over any fabric of libfabric, and the job ends if a rank has none; auto: over EFA if every rank has it, otherwise over TCP"}, &Options::transport, 0, 0},
    Row{{"SMDP_LIBFABRIC", "text", "", "", "path of libfabric, 1.14 or newer; empty: libfabric.so.1 of the system, or of AWS's EFA installer"}, &Options::libfabric, 0, 0},
    Row{{"SMDP_FABRIC_WRITES", "switch", "", "1", "write frames over a fabric into the receiver's memory (RDMA) where every rank can; 0: send them as messages"}, &Options::fabric_writes, 0, 0},
    Row{{"SMDP_FABRIC_RAILS", "integer", "", "0", "devices of a fabric that each rank uses at once; 0: the devices of the host divided by its ranks, at least 1 and at most 8; the ranks use the smallest number that any of them has"}, &Options::fabric_rails, 0, 8},
    Row{{"SMDP_PORT_RANGE", "text", "", "0", "ports to listen on, as first-last; 0: any free port"}, &Options::port_range, 0, 0},
    Row{{"SMDP_IPV6", "switch", "", "0", "advertise IPv6 addresses in addition to IPv4 addresses"}, &Options::ipv6, 0, 0},
    Row{{"SMDP_RENDEZVOUS_PORT", "integer", "", "7592", "port of rank 0's rendezvous if the ranks have no store for its address"}, &Options::rendezvous_port, 1, 65535},
    Row{{"SMDP_RENDEZVOUS_TIMEOUT_S", "number", "s", "300", "how long ranks wait for each other at the start; if it is not set, a process group of PyTorch waits for its timeout"}, &Options::rendezvous_timeout_s, 0.01, kLongest},
    Row{{"SMDP_REFUSAL_GRACE_S", "number", "s", "-1", "at the start, how long to retry after a refusal that is not proved with the job's token; -1: until SMDP_RENDEZVOUS_TIMEOUT_S, or 5 s without a token"}, &Options::refusal_grace_s, -1, kLongest},
    Row{{"SMDP_OPERATION_TIMEOUT_S", "number", "s", "1800", "deadline of an operation without its own deadline"}, &Options::operation_timeout_s, 0.01, kLongest},
    Row{{"SMDP_WARN_S", "number", "s", "4.5", "after a wait of this time, a rank prints one line that names the ranks that it waits for"}, &Options::warn_s, 0.01, kLongest},
    Row{{"SMDP_HEARTBEAT_S", "number", "s", "10", "a link is lost if the peer acknowledges nothing for this time"}, &Options::heartbeat_s, 0.1, kLongestHeartbeat},
    Row{{"SMDP_CLOSE_TIMEOUT_S", "number", "s", "5", "how long a rank that closes its engine waits until the other ranks close theirs"}, &Options::close_timeout_s, 0, kLongest},
    Row{{"SMDP_STREAMS", "integer", "", "1", "connections for bulk data between two ranks of different hosts, in addition to the one for small frames"}, &Options::streams, 1, 16},
    Row{{"SMDP_PIECE_KIB", "integer", "KiB", "256", "unit in which buffers are reduced and sent; at most a sixteenth of SMDP_ARENA_MIB"}, &Options::piece_kib, 4, 65536},
    Row{{"SMDP_SMALL_KIB", "integer", "KiB", "96", "up to four hosts exchange whole sums instead of shards if each host sends at most this; at most a sixteenth of SMDP_ARENA_MIB"}, &Options::small_kib, 0, 65536},
    Row{{"SMDP_BULK_KIB", "integer", "KiB", "4096", "most bulk data that a host has in flight to other hosts; with more than 16 hosts, the limit is an eighth of this value times the number of hosts"}, &Options::bulk_kib, 64, 1 << 20},
    Row{{"SMDP_WINDOW", "integer", "", "16", "pieces of one broadcast or all_gather that a rank keeps in flight, but at least two per host"}, &Options::window, 1, 4096},
    Row{{"SMDP_BUFFERS_IN_FLIGHT", "integer", "", "4", "operations of one group that run at once; with more than 16 hosts twice as many"}, &Options::buffers_in_flight, 1, 1024},
    Row{{"SMDP_ARENA_MIB", "integer", "MiB", "1024", "address space of a rank's shared memory; over TCP, only pages that are written use memory; with a fabric, 257 MiB more for receive buffers"}, &Options::arena_mib, 16, 1 << 20},
    Row{{"SMDP_REGISTERED_MIB", "integer", "MiB", "256", "the part of a rank's shared memory that a GPU copies to and from directly, at most half of the shared memory; 0: none"}, &Options::registered_mib, 0, 1 << 20},
    Row{{"SMDP_LOCAL_REDUCER", "text", "", "shm", "how PyTorch's all_reduce sums within a host; shm: shared memory; nccl, gloo or smddp: a process group of the host's ranks with that backend"}, &Options::local_reducer, 0, 0},
    Row{{"SMDP_WIRE_DTYPE", "text", "", "", "bfloat16 or float16: the type in which float32 sums and averages are sent between hosts, with half the bytes; empty: float32"}, &Options::wire_dtype, 0, 0},
    Row{{"SMDP_CONGESTION", "text", "", "cubic", "TCP congestion control between hosts; empty: the setting of the system"}, &Options::congestion, 0, 0},
    Row{{"SMDP_PIN_CPU", "integer", "", "-1", "processor for the engine's thread; -1: no pinning"}, &Options::pin_cpu, -1, 4095},
    Row{{"SMDP_COPY_THREADS", "integer", "", "-1", "threads of a rank that copy and sum, in addition to the thread that sends; -1: by the number of processors, 0 to 4"}, &Options::copy_threads, -1, 64},
    Row{{"SMDP_SPIN_US", "integer", "us", "100", "how long a thread with running operations polls for work before it sleeps; between two polls it yields the processor"}, &Options::spin_us, 0, 1000000},
    Row{{"SMDP_KERNELS", "text", "", "auto", "auto, portable, avx2, avx512 or neon; all give the same bits"}, &Options::kernels, 0, 0},
    Row{{"SMDP_HOST_ID", "text", "", "", "name of the host; ranks with different names never share memory; empty: boot id and network namespace"}, &Options::host_id, 0, 0},
    Row{{"SMDP_JOB_TOKEN", "text", "", "", "the job's secret, 32 hexadecimal digits; empty on every rank: rank 0 creates one"}, &Options::job_token, 0, 0},
    Row{{"SMDP_GENERATION", "integer", "", "0", "attempt of the job; ranks of different attempts refuse each other"}, &Options::generation, 0, kNoBound},
    Row{{"SMDP_FLIGHT_RECORDS", "integer", "", "2000", "number of operations that the flight recorder keeps; 0: none"}, &Options::flight_records, 0, 1000000},
    Row{{"SMDP_TRACE_DIR", "text", "", "", "folder for the flight records, one file per rank, written when a group fails or a script ends by an exception; empty: none are written"}, &Options::trace_dir, 0, 0},
    Row{{"SMDP_TRACE_SIGNAL", "text", "", "", "signal at which a process writes its flight records to SMDP_TRACE_DIR: USR1, USR2, QUIT, HUP or empty"}, &Options::trace_signal, 0, 0},
    Row{{"SMDP_TIMELINE", "text", "", "", "folder for the timeline, one file per rank; empty: no timeline"}, &Options::timeline, 0, 0},
    Row{{"SMDP_TIMELINE_MIB", "integer", "MiB", "64", "size at which the timeline of a rank ends"}, &Options::timeline_mib, 1, 1 << 20},
    Row{{"SMDP_COUNTERS_S", "number", "s", "0", "interval at which a rank sends the counters of its engine as an event; 0: never"}, &Options::counters_s, 0, kLongest},
    Row{{"SMDP_VERBOSE", "switch", "", "0", "also print information, not only warnings"}, &Options::verbose, 0, 0},
};
// clang-format on

// Options with a fixed set of values.
struct Choice {
  std::string_view option;
  std::span<const std::string_view> words;
  std::string_view allowed;
};
constexpr std::array<std::string_view, 5> kKernels = {"auto", "portable", "avx2", "avx512", "neon"};
constexpr std::array<std::string_view, 5> kTraceSignals = {"", "USR1", "USR2", "QUIT", "HUP"};
constexpr std::array<std::string_view, 3> kWireDTypes = {"", "bfloat16", "float16"};
constexpr std::array<std::string_view, 4> kLocalReducers = {"shm", "nccl", "gloo", "smddp"};
constexpr std::array<std::string_view, 3> kTransports = {"auto", "tcp", "ofi"};
constexpr std::array kChoices = {
    Choice{"SMDP_TRANSPORT", kTransports, "one of auto, tcp, ofi"},
    Choice{"SMDP_KERNELS", kKernels, "one of auto, portable, avx2, avx512, neon"},
    Choice{"SMDP_TRACE_SIGNAL", kTraceSignals, "USR1, USR2, QUIT, HUP or empty"},
    Choice{"SMDP_LOCAL_REDUCER", kLocalReducers, "one of shm, nccl, gloo, smddp"},
    Choice{"SMDP_WIRE_DTYPE", kWireDTypes, "bfloat16, float16 or empty"},
};

Status bad(const Row& row, const std::string& value, const std::string& allowed) {
  return {Code::kInvalid, std::string(row.info.name) + "='" + value + "': " + allowed};
}

template <class T>
std::optional<T> number(const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

std::string plain(double value) {
  std::string text = std::to_string(value);
  text.erase(text.find_last_not_of('0') + 1);
  return text.ends_with('.') ? text.substr(0, text.size() - 1) : text;
}

std::string bounds(const Row& row) {
  return row.most >= kNoBound ? plain(row.least) + " or more" : plain(row.least) + " to " + plain(row.most);
}

Status store(Options& options, const Row& row, const std::string& value) {
  if (const auto* text = std::get_if<std::string Options::*>(&row.field)) {
    const auto* const choice = std::ranges::find(kChoices, row.info.name, &Choice::option);
    if (choice != kChoices.end() && std::ranges::find(choice->words, value) == choice->words.end()) {
      return bad(row, value, std::string(choice->allowed));
    }
    const bool hexadecimal = value.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
    if (row.info.name == "SMDP_JOB_TOKEN" && !value.empty() && (value.size() != 32 || !hexadecimal)) {
      return {Code::kInvalid,
              "SMDP_JOB_TOKEN: must be 32 hexadecimal digits"};  // the message does not repeat the secret
    }
    options.*(*text) = value;
  } else if (const auto* on = std::get_if<bool Options::*>(&row.field)) {
    if (value != "0" && value != "1") {
      return bad(row, value, "0 or 1");
    }
    options.*(*on) = value == "1";
  } else if (const auto* whole = std::get_if<std::int64_t Options::*>(&row.field)) {
    const auto parsed = number<std::int64_t>(value);
    if (!parsed || static_cast<double>(*parsed) < row.least || static_cast<double>(*parsed) > row.most) {
      return bad(row, value, "an integer, " + bounds(row));
    }
    options.*(*whole) = *parsed;
  } else {
    const auto parsed = number<double>(value);
    if (!parsed || !(*parsed >= row.least && *parsed <= row.most)) {
      return bad(row, value, "a number, " + bounds(row));
    }
    options.*(std::get<double Options::*>(row.field)) = *parsed;
  }
  return {};
}

}  // namespace

std::span<const OptionInfo> option_table() {
  static const auto table = [] {
    std::array<OptionInfo, kRows.size()> infos{};
    for (std::size_t i = 0; i < kRows.size(); ++i) {
      infos[i] = kRows[i].info;
    }
    return infos;
  }();
  return table;
}

double refusal_grace_s(const Options& options) {
  constexpr double kOpen = 5;
  const double chosen = options.job_token.empty() ? kOpen : options.rendezvous_timeout_s;
  return options.refusal_grace_s < 0 ? chosen : options.refusal_grace_s;
}

// Concurrent operations hold pieces of their values and wait for memory for pieces of their results. With
// pieces of a larger share they would hold all memory and wait for each other. A small sum is one piece.
Status check_together(const Options& options) {
  constexpr std::int64_t kPieces = 16;
  constexpr std::int64_t kKibInMib = 1024;
  const std::int64_t most_kib = options.arena_mib * kKibInMib / kPieces;
  for (const auto& [name, kib] :
       {std::pair("SMDP_PIECE_KIB", options.piece_kib), std::pair("SMDP_SMALL_KIB", options.small_kib)}) {
    if (kib > most_kib) {
      const std::int64_t least_mib = (kib * kPieces + kKibInMib - 1) / kKibInMib;
      return {Code::kInvalid, std::string(name) + "='" + std::to_string(kib) +
                                  "': more than a sixteenth of SMDP_ARENA_MIB='" +
                                  std::to_string(options.arena_mib) + "', a rank's shared memory: set " +
                                  name + " to at most " + std::to_string(most_kib) +
                                  ", or SMDP_ARENA_MIB to at least " + std::to_string(least_mib)};
    }
  }
  return {};
}

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe): read while opening only
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

Result<Options> read_options(const Environment& environment) {
  Options options;
  for (const Row& row : kRows) {
    if (const auto value = environment(std::string(row.info.name))) {
      if (Status status = store(options, row, *value); !status.ok()) {
        return status;
      }
    }
  }
  return options;
}

Status set_option(Options& options, std::string_view name, const std::string& value) {
  for (const Row& row : kRows) {
    if (row.info.name == name) {
      return store(options, row, value);
    }
  }
  return {Code::kInvalid, std::string(name) + ": no such option"};
}

}  // namespace smdp
