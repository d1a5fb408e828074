#include "shm/arena.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/clock.h"
#include "net/socket.h"

namespace smdp {
namespace {

constexpr std::uint64_t kAlignment = 64;
constexpr std::uint64_t kProofBytes = 4096;  // the first page holds the number for the proof

Status send_with_fd(int socket, std::span<const std::byte> data, int fd) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  iovec part{const_cast<std::byte*>(data.data()),
             data.size()};  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(data.size())
             ? Status()
             : system_error("passing shared memory", errno);
}

Result<UniqueFd> receive_with_fd(int socket, std::span<std::byte> data, TimePoint deadline) {
  for (;;) {
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    iovec part{data.data(), data.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR) && Clock::now() < deadline) {
      ::usleep(500);
      continue;
    }
    if (got > 0 && (message.msg_flags & MSG_CTRUNC) != 0) {
      return system_error("receiving another rank's shared memory", EMFILE);
    }
    const cmsghdr* header = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
    if (header == nullptr || header->cmsg_type != SCM_RIGHTS || got != static_cast<ssize_t>(data.size())) {
      return Status(Code::kSystem, "the other rank passed no shared memory");
    }
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof(int));
    return UniqueFd(fd);
  }
}

}  // namespace

Arena::Arena(UniqueFd fd, Mapping mapping, std::size_t receiving)
    : fd_(std::move(fd)), mapping_(std::move(mapping)), receiving_(receiving) {
  free_[kProofBytes] = for_regions().size() - kProofBytes;
}

Result<Arena> Arena::create(std::size_t regions, std::size_t receiving) {
  const std::size_t bytes = regions + receiving;
  UniqueFd fd(::memfd_create("smdp-arena", MFD_CLOEXEC));
  if (!fd.valid() || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return system_error("creating shared memory", errno);
  }
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd.get(), 0);
  if (address == MAP_FAILED) {
    return system_error("mapping shared memory", errno);
  }
  ::madvise(address, bytes, MADV_DONTDUMP);
  return Arena(std::move(fd), Mapping(address, bytes), receiving);
}

Result<Arena> Arena::reserve(std::size_t bytes) {
  void* address = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    return system_error("reserving addresses", errno);
  }
  return Arena({}, Mapping(address, bytes), 0);
}

std::optional<std::uint64_t> Arena::allocate(std::uint64_t bytes) {
  const std::uint64_t need = ((bytes == 0 ? 1 : bytes) + kAlignment - 1) / kAlignment * kAlignment;
  for (auto region = free_.begin(); region != free_.end(); ++region) {
    const auto [offset, length] = *region;
    if (length < need) {
      continue;
    }
    if (length > need) {
      free_.emplace(offset + need, length - need);
    }
    auto taken = free_.extract(region);
    taken.mapped() = need;
    used_.insert(std::move(taken));
    return offset;
  }
  return std::nullopt;
}

// Allocates nothing: destructors call it, also when memory has run out.
void Arena::free(std::uint64_t offset) {
  auto region = used_.extract(offset);
  if (region.empty() || region.mapped() == 0) {
    return;
  }
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && offset + region.mapped() == next->first) {
    region.mapped() += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    if (auto before = std::prev(next); before->first + before->second == offset) {
      before->second += region.mapped();
      return;
    }
  }
  free_.insert(std::move(region));
}

void Arena::discard(std::span<std::byte> pages) {
  if (!pages.empty()) {
    ::madvise(pages.data(), pages.size(), MADV_REMOVE);
  }
}

Result<Mapping> map_read_only(int fd) {
  struct stat info{};
  if (fd < 0 || ::fstat(fd, &info) != 0) {
    return system_error("reading the size of shared memory", errno);
  }
  const auto bytes = static_cast<std::size_t>(info.st_size);
  void* address = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (address == MAP_FAILED) {
    return system_error("mapping another rank's shared memory", errno);
  }
  ::madvise(address, bytes, MADV_DONTDUMP);
  return Mapping(address, bytes);
}

Result<Mapping> exchange_arenas(int socket, Arena& mine, TimePoint deadline) {
  const auto number = random128();
  // Each peer gets a place of its own in the first page: two exchanges may be under way at once.
  const std::uint64_t place = hash64(number) % (kProofBytes / 16) * 16;
  std::memcpy(mine.bytes().data() + place, number.data(), number.size());
  const Bytes sent = Writer().put(place).raw(number).take();
  if (Status status = send_with_fd(socket, sent, mine.fd()); !status.ok()) {
    return status;
  }
  Bytes got(sent.size());
  Result<UniqueFd> theirs = receive_with_fd(socket, got, deadline);
  if (!theirs.ok()) {
    return theirs.status();
  }
  Result<Mapping> mapping = map_read_only(theirs->get());
  if (!mapping.ok()) {
    return mapping;
  }
  Reader reader(got);
  const auto offset = reader.get<std::uint64_t>();
  const auto expected = reader.raw(number.size());
  if (offset > kProofBytes - number.size() || mapping->bytes().size() < kProofBytes ||
      std::memcmp(mapping->bytes().data() + offset, expected.data(), expected.size()) != 0) {
    return Status(Code::kSystem, "the other rank's shared memory does not hold the number it sent");
  }
  // Neither may overwrite its number before the other has read it.
  std::byte done{1};
  if (Status status = send_all(socket, std::span(&done, 1), deadline); !status.ok()) {
    return status;
  }
  if (Status status = receive_all(socket, std::span(&done, 1), deadline); !status.ok()) {
    return status;
  }
  return mapping;
}

}  // namespace smdp
