// What tests need of strict_provider.cc in their own process.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

namespace smdp {

using StrictVariables = std::map<std::string, std::string>;

// Its variables, set for as long as the object lives.
class StrictEnvironment {
 public:
  explicit StrictEnvironment(StrictVariables variables) : variables_(std::move(variables)) {
    for (const auto& [name, value] : variables_) {
      ::setenv(name.c_str(), value.c_str(), 1);
    }
  }
  ~StrictEnvironment() {
    for (const auto& [name, value] : variables_) {
      ::unsetenv(name.c_str());
    }
  }
  StrictEnvironment(const StrictEnvironment&) = delete;
  StrictEnvironment& operator=(const StrictEnvironment&) = delete;

 private:
  StrictVariables variables_;
};

// How many of its endpoints are open on a device; null: on all.
inline std::size_t strict_open_endpoints(const char* device = nullptr) {
  void* const provider = ::dlopen(SMDP_STRICT_PROVIDER, RTLD_NOW);
  return reinterpret_cast<std::size_t (*)(const char*)>(::dlsym(provider, "strict_open_endpoints"))(device);
}

}  // namespace smdp
