// Owners of a descriptor and of a memory mapping.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <span>
#include <utility>

#include "base/fork_guard.h"

namespace smdp {

// Closes its descriptor, and has it closed in forked children (fork_guard.h says why).
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {
    if (fd_ >= 0) {
      fork_guard::add(fd_);
    }
  }
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  void reset() {
    if (fd_ >= 0) {
      fork_guard::remove_and_close(fd_);
      fd_ = -1;
    }
  }

 private:
  int fd_ = -1;
};

// Unmaps its range.
class Mapping {
 public:
  Mapping() = default;
  Mapping(void* address, std::size_t bytes) : address_(address), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        kept_(other.kept_) {}
  Mapping& operator=(Mapping&& other) noexcept {
    if (this != &other) {
      reset();
      address_ = std::exchange(other.address_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
      kept_ = other.kept_;
    }
    return *this;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { reset(); }

  [[nodiscard]] std::span<std::byte> bytes() const { return {static_cast<std::byte*>(address_), bytes_}; }
  void reset() {
    if (address_ != nullptr && !kept_) {
      ::munmap(address_, bytes_);
    }
    address_ = nullptr;
  }
  // The memory stays mapped until the process ends.
  void keep() { kept_ = true; }

 private:
  void* address_ = nullptr;
  std::size_t bytes_ = 0;
  bool kept_ = false;
};

}  // namespace smdp
