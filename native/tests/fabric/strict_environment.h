// Variables of strict_provider.cc, set for as long as the object lives.
#pragma once

#include <cstdlib>
#include <map>
#include <string>
#include <utility>

namespace smdp {

class StrictEnvironment {
 public:
  explicit StrictEnvironment(std::map<std::string, std::string> variables)
      : variables_(std::move(variables)) {
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
  std::map<std::string, std::string> variables_;
};

}  // namespace smdp
