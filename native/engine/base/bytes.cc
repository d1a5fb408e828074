#include "base/bytes.h"

#include <sys/random.h>

#include <cstdlib>

namespace smdp {

std::array<std::byte, 16> random128() {
  std::array<std::byte, 16> drawn{};
  if (::getrandom(drawn.data(), drawn.size(), 0) != static_cast<ssize_t>(drawn.size())) {
    std::abort();
  }
  return drawn;
}

std::string to_hex(std::span<const std::byte> data) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte b : data) {
    text += kDigits[std::to_integer<std::size_t>(b) >> 4U];
    text += kDigits[std::to_integer<std::size_t>(b) & 15U];
  }
  return text;
}

std::string plain_text(std::span<const std::byte> data) {
  std::string text;
  for (const std::byte b : data) {
    if (const auto character = static_cast<char>(b); character >= ' ' && character <= '~') {
      text += character;
    }
  }
  return text;
}

}  // namespace smdp
