// Plain values in Python's pickle format, protocol 2: the form that torch's flight recorder tools read.
//
// Values are written in order; a dict's are keys and values in turn. Loading such a file runs no code,
// because it names no class.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace smdp {

class PickleWriter {
 public:
  PickleWriter() : out_("\x80\x02") {}

  PickleWriter& begin_dict() { return raw("}("); }
  PickleWriter& end_dict() { return raw("u"); }
  PickleWriter& begin_list() { return raw("]("); }
  PickleWriter& end_list() { return raw("e"); }
  PickleWriter& begin_tuple() { return raw("("); }
  PickleWriter& end_tuple() { return raw("t"); }
  PickleWriter& text(std::string_view value);  // bytes that are not UTF-8 become U+FFFD
  PickleWriter& number(std::int64_t value);
  PickleWriter& large(std::uint64_t value);
  PickleWriter& boolean(bool value) { return raw(value ? "\x88" : "\x89"); }
  PickleWriter& none() { return raw("N"); }
  // The whole file; nothing may follow.
  [[nodiscard]] std::string take();

 private:
  PickleWriter& raw(std::string_view bytes) {
    out_ += bytes;
    return *this;
  }
  void little_endian(std::uint64_t value, int bytes);

  std::string out_;
};

}  // namespace smdp
