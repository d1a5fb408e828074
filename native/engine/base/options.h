// The engine's options: one typed table. Each has a name, a unit, a default, bounds and a description;
// the environment variable is SMDP_<NAME>. docs/explanation/engine.md prints this table, and
// smdp_option_info() returns it to programs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace smdp {

struct Options {
  std::string transport = "tcp";
  std::string libfabric;
  bool fabric_writes = true;
  std::int64_t fabric_rails = 0;
  std::string interface;
  std::string port_range = "0";
  bool ipv6 = false;
  std::int64_t rendezvous_port = 7592;
  double rendezvous_timeout_s = 300;
  double refusal_grace_s = -1;
  double operation_timeout_s = 1800;
  double warn_s = 4.5;
  double heartbeat_s = 10;
  double close_timeout_s = 5;
  std::int64_t streams = 1;
  std::int64_t piece_kib = 256;
  std::int64_t small_kib = 96;
  std::int64_t bulk_kib = 4096;
  std::int64_t window = 16;
  std::int64_t buffers_in_flight = 4;
  std::int64_t arena_mib = 1024;
  std::int64_t registered_mib = 256;
  std::string local_reducer = "shm";
  std::string wire_dtype;
  std::string congestion = "cubic";
  std::int64_t pin_cpu = -1;
  std::int64_t copy_threads = -1;
  std::int64_t spin_us = 100;
  std::string kernels = "auto";
  std::string host_id;
  std::string job_token;
  std::int64_t generation = 0;
  std::int64_t flight_records = 2000;
  std::string trace_dir;
  std::string trace_signal;
  std::string timeline;
  std::int64_t timeline_mib = 64;
  double counters_s = 0;
  bool verbose = false;
};

// The time, in seconds, for which a refusal without proof is not believed.
double refusal_grace_s(const Options& options);

struct OptionInfo {
  std::string_view name;  // the environment variable
  std::string_view type;  // "text", "integer", "number", "switch"
  std::string_view unit;  // "" when it has none
  std::string_view default_text;
  std::string_view doc;
};

[[nodiscard]] std::span<const OptionInfo> option_table();

// Returns the value of a variable; std::getenv in production.
using Environment = std::function<std::optional<std::string>(const std::string&)>;
Environment process_environment();

// Every option that `environment` sets, the others at their defaults. kInvalid when a value has the wrong
// type or is out of bounds; the text names the variable, the value and what is allowed.
Result<Options> read_options(const Environment& environment);

// kInvalid when two options do not fit together.
Status check_together(const Options& options);

// Sets one option by its variable's name.
Status set_option(Options& options, std::string_view name, const std::string& value);

}  // namespace smdp
