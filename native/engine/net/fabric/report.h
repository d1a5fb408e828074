// What each rank reports of its fabric to all others while the engine opens (choice.h).
// docs/reference/wire-format.md describes the bytes. A rank writes to the memory that another one reports, so
// every field is checked first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "net/fabric/port.h"
#include "net/fabric/rails.h"

namespace smdp {

inline constexpr std::uint8_t kFabricReportVersion = 2;

struct FabricReport {
  std::string failure;  // empty: none
  std::string provider;
  bool writes = false;
  struct Rail {
    std::uint32_t window = 0;
    FabricPort::Slots slots;
    Bytes address;
  };
  std::vector<Rail> rails;  // at most kMostRails
};

Bytes encode(const FabricReport& report);
// An error names the damaged field.
Result<FabricReport> decode_fabric_report(std::span<const std::byte> bytes);

// What the report of a rank with an endpoint must agree with. All ranks have the same build and options.
struct FabricFacts {
  std::size_t writers = 0;        // ranks that send to the reporting one
  std::size_t address_bytes = 0;  // of rank 0: all addresses of a provider have one length
  std::uint64_t slot_bytes = 0;
};
// Not ok: the damaged field.
Status check(const FabricReport& report, const FabricFacts& facts);

}  // namespace smdp
