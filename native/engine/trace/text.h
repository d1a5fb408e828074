// Text of others (names of groups and hosts, reasons) made fit for a file that programs read.
#pragma once

#include <string>
#include <string_view>

namespace smdp {

// Valid UTF-8: each byte that is part of no character becomes U+FFFD. Surrogates and overlong forms are none.
std::string clean_utf8(std::string_view text);

// A JSON string with its quotation marks.
std::string json_quoted(std::string_view text);

}  // namespace smdp
