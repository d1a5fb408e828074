// Files for people: whole or not there.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace smdp {

// Writes `folder`/`name`, making the folder, and replaces an earlier file only by the whole new one. The
// path.
Result<std::string> write_whole_file(const std::string& folder, const std::string& name,
                                     std::string_view content);

// Makes the folder and those above it, unless they are there.
Status make_folder(const std::string& folder);

// Writes all of it, however many calls that takes.
Status write_fully(int fd, std::string_view content);

}  // namespace smdp
