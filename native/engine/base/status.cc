#include "base/status.h"

#include <cerrno>
#include <system_error>

namespace smdp {
namespace {

bool is_of_files(int error) { return error == EMFILE || error == ENFILE; }
bool is_exhaustion(int error) { return is_of_files(error) || error == ENOMEM || error == ENOBUFS; }

}  // namespace

Status system_error(const std::string& what, int error) {
  return {is_exhaustion(error) ? Code::kExhausted : Code::kSystem,
          what + ": " + std::generic_category().message(error) +
              (is_of_files(error) ? " (raise the limit: ulimit -n)" : "")};
}

}  // namespace smdp
