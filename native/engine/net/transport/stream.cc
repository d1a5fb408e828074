#include "net/transport/stream.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace smdp {
namespace {

constexpr std::size_t kGather = 32;  // pieces of memory per system call
constexpr std::size_t kReadBudget =
    1U << 20;  // bytes per turn, so that one busy stream does not starve the others

// Bytes of a payload still to arrive. Below the first, one wake-up for all of them is not worth a system
// call; above the second, it comes too late.
constexpr std::size_t kLeastBatch = 16U << 10U;
constexpr std::size_t kMostBatch = 64U << 10U;

}  // namespace

Stream::Stream(Loop& loop, UniqueFd fd, Events& events) : loop_(loop), fd_(std::move(fd)), events_(events) {}

Stream::~Stream() {
  if (!failed_) {
    loop_.forget(fd_.get());
  }
}

void Stream::start() {
  loop_.watch(fd_.get(), EPOLLIN, [this](std::uint32_t events) { ready(events); });
}

void Stream::post(Message message) {
  if (failed_ || finishing_ || send_failed_) {
    return;
  }
  Out& out = out_.emplace_back();
  message.header.payload = message.payload.size();
  encode(message.header, out.header);
  queued_bytes_ += kFrameBytes + message.payload.size();
  out.message = std::move(message);
  if (out_.size() == 1) {
    write_some();
  }
}

void Stream::cancel(std::uint64_t group, std::uint64_t operation) {
  const auto belongs = [&](const FrameHeader& header) {
    return header.group == group && header.operation == operation && header.payload > 0 &&
           header.type != FrameType::kAbort;
  };
  for (auto out = out_.begin(); out != out_.end();) {
    if (!belongs(out->message.header)) {
      ++out;
    } else if (out->sent == 0) {
      queued_bytes_ -= kFrameBytes + out->message.payload.size();
      out = out_.erase(out);
    } else {
      auto copy =
          std::make_shared<std::vector<std::byte>>(out->message.payload.begin(), out->message.payload.end());
      out->message.payload = *copy;
      out->message.keep = std::move(copy);
      out->message.sent = nullptr;
      ++out;
    }
  }
  if (in_payload_ && belongs(current_) && landing_.owned == nullptr) {
    landing_ =
        Landing::fresh(current_.payload);  // the operation is gone: the bytes received so far are dropped
  }
}

void Stream::finish() {
  finishing_ = true;
  if (out_.empty()) {
    ::shutdown(fd_.get(), SHUT_WR);  // after a failure too: a peer that closed first waits for it
  }
}

void Stream::ready(std::uint32_t events) {
  if ((events & EPOLLOUT) != 0) {
    write_some();
  }
  if (!failed_ && (events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP)) != 0) {
    read_some();
  }
}

void Stream::want_writable(bool wanted) {
  if (wanted != writable_wanted_) {
    writable_wanted_ = wanted;
    loop_.change(fd_.get(), wanted ? EPOLLIN | EPOLLOUT : EPOLLIN);
  }
}

void Stream::write_some() {
  while (!out_.empty()) {
    std::array<iovec, kGather> parts{};
    std::size_t used = 0;
    for (const Out& out : out_) {
      if (used + 2 > kGather) {
        break;
      }
      const auto add = [&](std::span<const std::byte> memory, std::size_t skip) {
        if (skip < memory.size()) {
          parts[used++] = {const_cast<std::byte*>(memory.data() + skip), memory.size() - skip};  // NOLINT
        }
      };
      add(out.header, out.sent);
      add(out.message.payload, out.sent > kFrameBytes ? out.sent - kFrameBytes : 0);
    }
    msghdr call{};
    call.msg_iov = parts.data();
    call.msg_iovlen = used;
    ssize_t sent = ::sendmsg(fd_.get(), &call, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) {
        continue;
      }
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        want_writable(true);
        return;
      }
      stop_sending(system_error("sending failed", errno));
      return;
    }
    queued_bytes_ -= static_cast<std::uint64_t>(sent);
    while (!out_.empty()) {
      Out& out = out_.front();
      const std::size_t left = kFrameBytes + out.message.payload.size() - out.sent;
      if (static_cast<std::size_t>(sent) < left) {
        out.sent += static_cast<std::size_t>(sent);
        break;
      }
      sent -= static_cast<ssize_t>(left);
      const std::function<void()> done = std::move(out.message.sent);
      out_.pop_front();
      if (done) {
        done();  // may post more
      }
    }
  }
  want_writable(false);
  if (finishing_) {
    ::shutdown(fd_.get(), SHUT_WR);
  }
}

// Frames that the peer sent before it closed are still read: they may say why. Later, as in fail().
void Stream::stop_sending(Status why) {
  send_failed_ = true;
  out_.clear();
  queued_bytes_ = 0;
  want_writable(false);
  loop_.post([this, why = std::move(why)] {
    while (read_some()) {
    }
    fail(why);
  });
}

// False: nothing is left to read.
bool Stream::read_some() {
  std::size_t budget = kReadBudget;
  bool drained = false;
  const std::span<std::byte> staging = loop_.scratch();
  while (budget > 0 && !failed_ && !drained) {
    std::array<iovec, 2> parts{};
    std::size_t used = 0;
    const std::size_t wanted = in_payload_ ? static_cast<std::size_t>(current_.payload) - landed_ : 0;
    if (wanted > 0) {
      parts[used++] = {landing_.data + landed_, wanted};
    }
    parts[used++] = {staging.data(), staging.size()};
    msghdr call{};
    call.msg_iov = parts.data();
    call.msg_iovlen = used;
    const ssize_t got = ::recvmsg(fd_.get(), &call, MSG_DONTWAIT);
    if (got == 0) {
      fail({Code::kPeerLost, "the connection was closed"});
      return false;
    }
    if (got < 0) {
      if (errno == EINTR) {
        continue;
      }
      if (errno != EAGAIN && errno != EWOULDBLOCK) {
        Status why = system_error("receiving failed", errno);
        fail({Code::kPeerLost, why.message()});
      }
      drained = true;
      break;
    }
    const auto bytes = static_cast<std::size_t>(got);
    drained = bytes < wanted + staging.size();
    budget -= std::min(budget, bytes);
    const std::size_t direct = std::min(bytes, wanted);
    if (direct > 0) {
      landed_ += direct;
      if (landed_ == current_.payload) {
        end_payload();
      }
    }
    if (!consume(staging.first(bytes - direct))) {
      fail({Code::kPeerLost, "a frame broke the protocol"});
    }
  }
  if (!failed_) {
    wait_for_much();
  }
  return !drained && !failed_;
}

// In the middle of a payload the kernel need not wake the loop for every packet.
void Stream::wait_for_much() {
  const std::size_t missing = in_payload_ ? static_cast<std::size_t>(current_.payload) - landed_ : 0;
  const int wanted = missing < kLeastBatch ? 1 : static_cast<int>(std::min(missing, kMostBatch));
  if (wanted != low_water_) {
    low_water_ = wanted;
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof(wanted));
  }
}

bool Stream::consume(std::span<const std::byte> data) {
  while (!data.empty() && !failed_) {
    if (in_payload_) {
      const std::size_t take = std::min(data.size(), static_cast<std::size_t>(current_.payload) - landed_);
      std::memcpy(landing_.data + landed_, data.data(), take);
      landed_ += take;
      data = data.subspan(take);
      if (landed_ == current_.payload) {
        end_payload();
      }
      continue;
    }
    const std::size_t take = std::min(data.size(), kFrameBytes - head_bytes_);
    std::memcpy(head_.data() + head_bytes_, data.data(), take);
    head_bytes_ += take;
    data = data.subspan(take);
    if (head_bytes_ == kFrameBytes && !begin_payload()) {
      return false;
    }
  }
  return true;
}

bool Stream::begin_payload() {
  head_bytes_ = 0;
  const auto header = decode(head_);
  if (!header) {
    return false;
  }
  auto landing = events_.place(*header);
  if (!landing) {
    return false;
  }
  current_ = *header;
  landing_ = std::move(*landing);
  landed_ = 0;
  in_payload_ = true;
  if (current_.payload == 0) {
    end_payload();
  }
  return true;
}

void Stream::end_payload() {
  in_payload_ = false;
  events_.arrived(current_, std::move(landing_));
  landing_ = {};
}

void Stream::fail(Status why) {
  if (failed_) {
    return;
  }
  failed_ = true;
  loop_.forget(fd_.get());
  out_.clear();
  // On the next turn: the caller may be an operation in the middle of its pieces.
  loop_.post([this, why = std::move(why)] { events_.lost(why); });
}

}  // namespace smdp
