#include "trace/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "base/fd.h"

namespace smdp {

Status create_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  return error ? system_error("the folder " + folder + " cannot be created", error.value()) : Status();
}

Status write_fully(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t put = ::write(fd, content.data(), content.size());
    if (put < 0 && errno != EINTR) {
      return system_error("write", errno);
    }
    content.remove_prefix(put < 0 ? 0 : static_cast<std::size_t>(put));
  }
  return {};
}

Result<std::string> write_whole_file(const std::string& folder, const std::string& name,
                                     std::string_view content) {
  if (Status status = create_folder(folder); !status.ok()) {
    return status;
  }
  const std::string path = folder + "/" + name;
  // The draft has another name: torch's tools take every file with "flight_" in its name for a dump.
  static std::atomic<unsigned> drafts = 0;
  const std::string draft =
      folder + "/.smdp-" + std::to_string(::getpid()) + "-" + std::to_string(drafts++) + ".part";
  const UniqueFd file(::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file.valid()) {
    return system_error(draft, errno);
  }
  Status status = write_fully(file.get(), content);
  if (status.ok() && std::rename(draft.c_str(), path.c_str()) != 0) {
    status = system_error(path, errno);
  }
  if (!status.ok()) {
    ::unlink(draft.c_str());
    return status;
  }
  return path;
}

}  // namespace smdp
