// Converts text from outside (names of groups and hosts, reasons) for files that programs read.
#pragma once

#include <string>
#include <string_view>

namespace smdp {

// Valid UTF-8: replaces each byte that is not part of a character by U+FFFD. Surrogates and overlong forms
// are not characters.
std::string clean_utf8(std::string_view text);

// A JSON string with its quotation marks.
std::string json_quoted(std::string_view text);

}  // namespace smdp
