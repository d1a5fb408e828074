#include "net/fabric/report.h"

#include <limits>
#include <utility>

namespace smdp {
namespace {

Status damaged(const std::string& what) {
  return {Code::kUnsupported, "its report of the fabric is damaged: " + what};
}

Status damaged(const std::string& field, std::uint64_t found, const std::string& expected) {
  return damaged(field + " is " + std::to_string(found) + ", expected " + expected);
}

// Reads fields, and knows the first one that is not whole.
class Fields {
 public:
  explicit Fields(std::span<const std::byte> bytes) : reader_(bytes) {}

  template <class T>
  T get(const char* field) {
    const T value = reader_.get<T>();
    note(field);
    return value;
  }
  std::string text(const char* field) {
    std::string value = reader_.text();
    note(field);
    return value;
  }
  Bytes bytes(const char* field) {
    const auto part = reader_.raw(reader_.get<std::uint32_t>());
    note(field);
    return {part.begin(), part.end()};
  }
  [[nodiscard]] Status end() const {
    if (!cut_.empty()) {
      return damaged("it ends within " + cut_);
    }
    return reader_.at_end() ? Status() : damaged("bytes follow its last field");
  }

 private:
  void note(const char* field) {
    if (!reader_.ok() && cut_.empty()) {
      cut_ = field;
    }
  }

  Reader reader_;
  std::string cut_;
};

Status check(const FabricReport::Rail& rail, bool writes, const FabricFacts& facts) {
  if (rail.window < 1 || rail.window > FabricPort::kMostWindow) {
    return damaged("the window", rail.window, "1 to " + std::to_string(FabricPort::kMostWindow));
  }
  if (rail.address.empty()) {
    return damaged("the length of the address", 0, "1 or more");
  }
  if (rail.address.size() != facts.address_bytes) {
    return damaged("the length of the address", rail.address.size(), std::to_string(facts.address_bytes));
  }
  if (rail.slots.count > FabricPort::kMostSlots) {
    return damaged("the number of slots", rail.slots.count,
                   "at most " + std::to_string(FabricPort::kMostSlots));
  }
  if (!writes) {
    return {};
  }
  if (rail.slots.count < rail.window * facts.writers) {
    return damaged("the number of slots", rail.slots.count,
                   "at least " + std::to_string(rail.window * facts.writers));
  }
  const std::uint64_t last = std::numeric_limits<std::uint64_t>::max() - rail.slots.count * facts.slot_bytes;
  if (rail.slots.base > last) {
    return damaged("the address of the slots", rail.slots.base, "at most " + std::to_string(last));
  }
  return {};
}

}  // namespace

Bytes encode(const FabricReport& report) {
  Writer writer;
  writer.put(kFabricReportVersion)
      .text(report.failure)
      .text(report.provider)
      .put(static_cast<std::uint8_t>(report.writes))
      .put(static_cast<std::uint8_t>(report.rails.size()));
  for (const FabricReport::Rail& rail : report.rails) {
    writer.put(rail.window)
        .put(rail.slots.base)
        .put(rail.slots.key)
        .put(rail.slots.count)
        .put(static_cast<std::uint32_t>(rail.address.size()))
        .raw(rail.address);
  }
  return writer.take();
}

Result<FabricReport> decode_fabric_report(std::span<const std::byte> bytes) {
  Fields fields(bytes);
  const auto version = fields.get<std::uint8_t>("the version");
  if (!bytes.empty() && version != kFabricReportVersion) {
    return damaged("the version", version, std::to_string(kFabricReportVersion));
  }
  FabricReport report;
  report.failure = fields.text("the failure");
  report.provider = fields.text("the provider");
  const auto writes = fields.get<std::uint8_t>("the way to send");
  report.writes = writes != 0;
  const auto rails = fields.get<std::uint8_t>("the number of rails");
  if (rails > kMostRails) {
    return damaged("the number of rails", rails, "at most " + std::to_string(kMostRails));
  }
  for (std::uint8_t i = 0; i < rails; ++i) {
    FabricReport::Rail rail;
    rail.window = fields.get<std::uint32_t>("the window");
    rail.slots.base = fields.get<std::uint64_t>("the address of the slots");
    rail.slots.key = fields.get<std::uint64_t>("the key of the slots");
    rail.slots.count = fields.get<std::uint32_t>("the number of slots");
    rail.address = fields.bytes("the address");
    report.rails.push_back(std::move(rail));
  }
  if (Status status = fields.end(); !status.ok()) {
    return status;
  }
  if (writes > 1) {
    return damaged("the way to send", writes, "0 or 1");
  }
  return report;
}

Status check(const FabricReport& report, const FabricFacts& facts) {
  if (report.rails.empty()) {
    return damaged("the number of rails", 0, "1 or more");
  }
  for (const FabricReport::Rail& rail : report.rails) {
    if (Status status = check(rail, report.writes, facts); !status.ok()) {
      return status;
    }
  }
  return {};
}

}  // namespace smdp
