// What tests need of strict_provider.cc in their own process.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>

namespace smdp {

using StrictVariables = std::map<std::string, std::string>;

// Its variables, set for as long as the object lives.
class StrictEnvironment {
 public:
  explicit StrictEnvironment(const StrictVariables& variables) {
    for (const auto& [name, value] : variables) {
      const char* const before = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe)
      before_[name] = before == nullptr ? std::nullopt : std::optional<std::string>(before);
      ::setenv(name.c_str(), value.c_str(), 1);
    }
  }
  ~StrictEnvironment() {
    for (const auto& [name, value] : before_) {
      if (value) {
        ::setenv(name.c_str(), value->c_str(), 1);
      } else {
        ::unsetenv(name.c_str());
      }
    }
  }
  StrictEnvironment(const StrictEnvironment&) = delete;
  StrictEnvironment& operator=(const StrictEnvironment&) = delete;

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

// The name of its provider, where none is asked for.
inline std::string strict_name() {
  const char* const name = std::getenv("STRICT_NAME");  // NOLINT(concurrency-mt-unsafe)
  return name == nullptr ? "strict" : name;
}

// How many of its endpoints are open on a device; null: on all.
inline std::size_t strict_open_endpoints(const char* device = nullptr) {
  void* const provider = ::dlopen(SMDP_STRICT_PROVIDER, RTLD_NOW);
  return reinterpret_cast<std::size_t (*)(const char*)>(::dlsym(provider, "strict_open_endpoints"))(device);
}

}  // namespace smdp
