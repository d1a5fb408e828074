#include "trace/flight/pickle.h"

#include <utility>

#include "trace/text.h"

namespace smdp {

void PickleWriter::little_endian(std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) {
    out_ += static_cast<char>(static_cast<std::uint8_t>(value >> (8U * static_cast<unsigned>(i))));
  }
}

PickleWriter& PickleWriter::text(std::string_view value) {
  const std::string clean = clean_utf8(value);
  raw("X");
  little_endian(clean.size(), 4);
  return raw(clean);
}

PickleWriter& PickleWriter::number(std::int64_t value) {
  raw("\x8a\x08");  // LONG1, 8 bytes
  little_endian(static_cast<std::uint64_t>(value), 8);
  return *this;
}

PickleWriter& PickleWriter::large(std::uint64_t value) {
  raw("\x8a\x09");  // a ninth byte, because the highest bit would be a sign
  little_endian(value, 8);
  out_ += '\0';
  return *this;
}

std::string PickleWriter::take() {
  raw(".");
  return std::move(out_);
}

}  // namespace smdp
