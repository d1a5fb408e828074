// Files that are written completely or not at all.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace smdp {

// Writes `folder`/`name`, creates the folder if needed, and replaces an earlier file atomically. Returns the
// path.
Result<std::string> write_whole_file(const std::string& folder, const std::string& name,
                                     std::string_view content);

// Creates the folder and its parents where they are missing.
Status create_folder(const std::string& folder);

// Writes all of `content`, with as many calls as that takes.
Status write_fully(int fd, std::string_view content);

}  // namespace smdp
