#include "base/status.h"

#include <system_error>

namespace smdp {

Status system_error(const std::string& what, int error) {
  return {Code::kSystem, what + ": " + std::generic_category().message(error)};
}

}  // namespace smdp
