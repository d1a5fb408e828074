#include "trace/text.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace smdp {
namespace {

std::uint8_t byte_at(std::string_view text, std::size_t index) {
  return static_cast<std::uint8_t>(text[index]);
}

// The length in bytes of the character that begins here; 0: none does.
std::size_t character_length(std::string_view text) {
  const std::uint8_t first = byte_at(text, 0);
  if (first < 0x80) {
    return 1;
  }
  const std::size_t length = first >= 0xc2 && first < 0xe0 ? 2 : (first < 0xf0 ? 3 : 4);
  if (first < 0xc2 || first > 0xf4 || text.size() < length) {
    return 0;
  }
  const bool follows = std::ranges::all_of(text.substr(1, length - 1), [](char next) {
    return (static_cast<std::uint8_t>(next) & 0xc0U) == 0x80;
  });
  const std::uint8_t second = byte_at(text, 1);
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool outside = (first == 0xed && second > 0x9f) || (first == 0xf4 && second > 0x8f);
  return follows && !overlong && !outside ? length : 0;
}

void append_escaped(std::string& out, std::string_view character) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const char first = character.front();
  if (first == '"' || first == '\\') {
    out += '\\';
    out += first;
  } else if (const auto code = static_cast<std::uint8_t>(first); code < 0x20 || code == 0x7f) {
    out += "\\u00";
    out += kDigits[code >> 4U];
    out += kDigits[code & 0xfU];
  } else {
    out += character;
  }
}

}  // namespace

std::string clean_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = character_length(text);
    out += length == 0 ? std::string_view("\xef\xbf\xbd") : text.substr(0, length);
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

std::string json_quoted(std::string_view text) {
  const std::string clean = clean_utf8(text);
  std::string_view rest = clean;
  std::string out = "\"";
  while (!rest.empty()) {
    const std::size_t length = std::max<std::size_t>(character_length(rest), 1);
    append_escaped(out, rest.substr(0, length));
    rest.remove_prefix(length);
  }
  return out + "\"";
}

}  // namespace smdp
