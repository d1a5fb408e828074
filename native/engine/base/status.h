// Errors are values: no exception crosses a thread, the loop or the C interface.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace smdp {

// The numbers are part of the C interface (smdp_code in smdp/engine.h).
enum class Code : std::uint8_t {
  kOk = 0,
  kInvalid = 1,      // an error of the caller: an argument, an option, a buffer
  kTimeout = 2,      // a deadline passed
  kPeerLost = 3,     // a rank died, left or its link was cut
  kMismatch = 4,     // the ranks of a group made different calls
  kRefused = 5,      // token, build, protocol, generation or layout differ
  kSystem = 6,       // the operating system returned an error
  kClosed = 7,       // the engine or the group was closed
  kUnsupported = 8,  // a combination the engine does not offer
  kInternal = 9,     // a bug of the engine
  kExhausted = 10,   // no descriptor or no memory was left
};

inline constexpr Code kLastCode = Code::kExhausted;

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  [[nodiscard]] bool ok() const { return code_ == Code::kOk; }
  [[nodiscard]] Code code() const { return code_; }
  [[nodiscard]] const std::string& message() const { return message_; }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

// A value, or the reason why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const { return value_.has_value(); }
  [[nodiscard]] const Status& status() const { return status_; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

// "<what>: <strerror(error)>" as kSystem, or as kExhausted with a hint.
Status system_error(const std::string& what, int error);

}  // namespace smdp
