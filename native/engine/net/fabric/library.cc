#include "net/fabric/library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cerrno>
#include <string>

namespace smdp {
namespace {

constexpr const char* kName = "libfabric.so.1";
constexpr const char* kAwsPath = "/opt/amazon/efa/lib64/libfabric.so.1";  // of AWS's EFA installer

std::string version_text(std::uint32_t version) {
  return std::to_string(version >> 16U) + "." + std::to_string(version & 0xffffU);
}

void* open_first(const std::string& path, std::string& why) {
  const auto try_open = [&why](const char* name) {
    void* const opened = ::dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (opened == nullptr && why.empty()) {
      why = ::dlerror();  // NOLINT(concurrency-mt-unsafe): of this thread
    }
    return opened;
  };
  if (!path.empty()) {
    return try_open(path.c_str());
  }
  void* const found = try_open(kName);
  return found == nullptr ? try_open(kAwsPath) : found;
}

template <class Function>
bool find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  return function != nullptr;
}

}  // namespace

Result<FabricLibrary> FabricLibrary::open(const std::string& path) {
  std::string why;
  void* const library = open_first(path, why);
  if (library == nullptr) {
    return Status(Code::kUnsupported, "libfabric cannot be opened: " + why +
                                          " (install it, name it in SMDP_LIBFABRIC, or set "
                                          "SMDP_TRANSPORT=tcp)");
  }
  FabricLibrary found{};
  if (!find(library, "fi_version", found.version) || !find(library, "fi_getinfo", found.getinfo) ||
      !find(library, "fi_freeinfo", found.freeinfo) || !find(library, "fi_dupinfo", found.dupinfo) ||
      !find(library, "fi_fabric", found.fabric) || !find(library, "fi_strerror", found.strerror)) {
    return Status(Code::kUnsupported,
                  (path.empty() ? kName : path) + " is no libfabric: it lacks a function");
  }
  if (found.version() < kOldestFabric) {
    return Status(Code::kUnsupported, "libfabric " + version_text(found.version()) +
                                          " is too old: the engine needs " + version_text(kOldestFabric) +
                                          " or newer (or SMDP_TRANSPORT=tcp)");
  }
  return found;
}

std::uint32_t FabricLibrary::interface_version() const { return std::min(version(), kNewestFabric); }

Status FabricLibrary::error(const std::string& what, long returned) const {
  const int error = static_cast<int>(-returned);
  return {error == ENOMEM ? Code::kExhausted : Code::kSystem, what + ": " + strerror(error)};
}

}  // namespace smdp
