// libfabric, opened at run time: the engine has no link to it and works without it.
#pragma once

#include <string>

#include "base/status.h"
#include "net/fabric/abi.h"

namespace smdp {

struct FabricLibrary {
  std::uint32_t (*version)();
  int (*getinfo)(std::uint32_t version, const char* node, const char* service, std::uint64_t flags,
                 const fi::Info* hints, fi::Info** info);
  void (*freeinfo)(fi::Info* info);
  fi::Info* (*dupinfo)(const fi::Info* info);
  int (*fabric)(fi::FabricAttr* attr, fi::Fabric** fabric, void* context);
  const char* (*strerror)(int error);

  // The library stays open until the process ends: its providers have handlers that run at a fork.
  // `path`: SMDP_LIBFABRIC; empty: libfabric.so.1 as the dynamic linker finds it, or AWS's folder.
  static Result<FabricLibrary> open(const std::string& path);

  // The interface to ask for.
  [[nodiscard]] std::uint32_t interface_version() const;

  // "<what>: <reason>", for a negative return value.
  [[nodiscard]] Status error(const std::string& what, long returned) const;
};

// Older libraries are refused.
inline constexpr std::uint32_t kOldestFabric = fi::version(1, 14);
// The newest interface that the engine asks for. Asked for an older one, EFA's provider leaves the RDMA of
// some devices unused, those of ml.p4d and ml.p5 among them.
inline constexpr std::uint32_t kNewestFabric = fi::version(1, 18);

}  // namespace smdp
