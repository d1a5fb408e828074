// Fuzzes the frame parser: a StreamTransport with one peer, over one or two socket pairs.
//
// An input is a script: what the peer sends, in which pieces, what is posted to it and cancelled, and when it
// reads. The frames that arrive are compared with what frame.h decodes from the same bytes in one piece, and
// the frames that the peer reads with the posted ones: every frame once, whole and in order on its
// connection.
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "frame_receiver.h"
#include "net/transport/stream_transport.h"
#include "targets.h"
#include "world.h"

namespace smdp::fuzzing {
namespace {

constexpr int kUs = 0;
constexpr std::uint64_t kOurGroup = 7;          // the group of frames posted to the peer
constexpr std::size_t kMostPosted = 1U << 20U;  // bytes in one input
constexpr std::size_t kMostPieces = 64;

// Mostly small, some larger than one read, few larger than a socket's buffer: large payloads need few inputs.
std::size_t size_of(std::uint16_t value) {
  return value < 0xf000U ? value & 0x3ffU : (value < 0xff00U ? value : value * 3U);
}

struct Posted {
  std::unique_ptr<Bytes> payload;
  FrameType type{};
  bool cancelled = false;
};

class Scene {
 public:
  explicit Scene(Input input) : input_(input) {
    const unsigned shape = input_.u8();
    std::map<int, std::vector<UniqueFd>> connections;
    for (unsigned rail = 0; rail < 1 + (shape & 1U); ++rail) {
      std::array<int, 2> pair{};
      require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.data()) == 0,
              "socketpair");
      if ((shape & 2U) != 0) {
        const int little = 4096;
        ::setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &little, sizeof(little));
      }
      connections[kPeer].emplace_back(pair[0]);
      theirs_.emplace_back(pair[1]);
    }
    transport_ = std::make_unique<StreamTransport>(loop_, kUs, 0.0, std::move(connections));
    transport_->start(receiver_);
  }

  void play() {
    while (!input_.empty()) {
      act();
      turn();
    }
    drain();
    World::current()->pass(std::chrono::seconds(1));
    transport_->tick();  // reports a torn connection after the frames of the others
    drain();
    check_arrivals();
    check_departures();
  }

 private:
  std::size_t rails() const { return theirs_.size(); }

  // One turn of the loop. It does not sleep, because there is a task.
  void turn() {
    bool turned = false;
    loop_.post_before_drive([&turned] { turned = true; });
    loop_.drive([&turned] { return turned; }, TimePoint::max());
  }

  void act() {
    const unsigned command = input_.u8();
    const std::size_t rail = (command >> 3U) % rails();
    switch (command & 7U) {
      case 0:
        feed(rail, input_.take(input_.u8()), 0);
        return;
      case 1:
        feed_frame(rail);
        return;
      case 2:
        post();
        return;
      case 3:
        cancel();
        return;
      case 4:
        finished_ = true;
        transport_->finish();
        return;
      case 5:
        hear(rail, input_.u16());
        return;
      case 6:
        leave(rail);
        return;
      default:
        transport_->tick();
    }
  }

  void feed(std::size_t rail, std::span<const std::byte> more, std::size_t piece) {
    receiver_.rail = rail;
    Bytes all = std::exchange(late_[rail], {});
    all.insert(all.end(), more.begin(), more.end());
    std::span<const std::byte> bytes = all;
    const std::size_t most = piece == 0 ? bytes.size() : std::max(piece, bytes.size() / kMostPieces + 1);
    for (int stuck = 0; !bytes.empty() && stuck < 3;) {
      const ssize_t sent =
          ::send(theirs_[rail].get(), bytes.data(), std::min(most, bytes.size()), MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN) {
        return;
      }
      stuck = sent < 0 ? stuck + 1 : 0;
      const auto taken = bytes.first(sent < 0 ? 0 : static_cast<std::size_t>(sent));
      fed_[rail].insert(fed_[rail].end(), taken.begin(), taken.end());
      bytes = bytes.subspan(taken.size());
      turn();
    }
  }

  // A valid frame of a peer, except for the fields that `odd` changes.
  void feed_frame(std::size_t rail) {
    FrameHeader header;
    header.type = static_cast<FrameType>(1 + input_.u8() % (kFrameTypes - 1U));
    const unsigned place = input_.u8();
    header.group = place & 3U;
    header.operation = place >> 2U & 15U;
    header.piece = input_.u8();
    header.sender = kPeer;
    const unsigned odd = input_.u8();
    const bool has_payload = header.type == FrameType::kHostSum || header.type == FrameType::kPublish;
    const std::uint64_t size = size_of(input_.u16());
    header.payload = has_payload ? size : (header.type == FrameType::kAbort ? size % (kMaxText + 1) : 0);
    header.bytes = has_payload ? header.payload << (odd & 1U) : size;
    header.sender += odd >> 1U & 1U;
    header.bytes += odd >> 2U & 1U;
    const auto payload = pattern(header.operation, header.payload);
    header.payload <<= (odd >> 3U & 1U) * 14;
    Bytes text = text_of(header, payload);
    if ((odd & 0x80U) != 0) {
      text[odd >> 4U & 7U] ^= std::byte{0x10};  // magic, type and call
    }
    const std::size_t first = (odd & 0x40U) != 0 ? input_.u16() % text.size() : text.size();
    const std::size_t piece = input_.u16();
    feed(rail, std::span(text).first(first), piece);
    late_[rail].assign(text.begin() + static_cast<std::ptrdiff_t>(first), text.end());
  }

  void post() {
    constexpr std::array kTypes{FrameType::kHostSum, FrameType::kPublish, FrameType::kCredit,
                                FrameType::kAbort};
    Message message;
    FrameHeader& header = message.header;
    const unsigned kind = input_.u8();
    header.type = kTypes[kind & 3U];
    header.call.count = kind >> 2U & 1U ? 1U << 20U : 1;
    header.group = kOurGroup;
    header.operation = posted_.size();
    std::size_t size = header.type == FrameType::kCredit ? 0 : size_of(input_.u16());
    size = header.type == FrameType::kAbort ? size % (kMaxText + 1) : size;
    if (finished_ || posted_bytes_ + size > kMostPosted) {
      return;
    }
    posted_bytes_ += size;
    header.bytes = size;
    const auto text = pattern(header.operation, size);
    auto payload = std::make_unique<Bytes>(text.begin(), text.end());
    message.payload = *payload;
    if (size > 0) {
      message.sent = [this, index = posted_.size()] {
        require(!posted_[index].cancelled, "a cancelled message is not reported as sent");
      };
    }
    posted_.push_back({std::move(payload), header.type, false});
    transport_->post(kPeer, std::move(message));
  }

  void cancel() {
    const unsigned which = input_.u8();
    if ((which & 1U) != 0 && !posted_.empty()) {
      const std::uint64_t operation = (which >> 1U) % posted_.size();
      Posted& posted = posted_[operation];
      transport_->cancel(kOurGroup, operation);
      if (posted.type != FrameType::kAbort) {
        posted.cancelled = true;
        posted.payload.reset();  // a sanitizer reports any later read
      }
      return;
    }
    const std::uint64_t group = which >> 1U & 3U;
    const std::uint64_t operation = which >> 3U & 15U;
    transport_->cancel(group, operation);
    receiver_.forget(group, operation);
  }

  std::size_t hear(std::size_t rail, std::size_t most) {
    std::array<std::byte, 1U << 14U> chunk;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    const ssize_t got = ::recv(theirs_[rail].get(), chunk.data(), std::min(most, chunk.size()), 0);
    if (got <= 0) {
      return 0;
    }
    seen_[rail].insert(seen_[rail].end(), chunk.begin(), chunk.begin() + got);
    return static_cast<std::size_t>(got);
  }

  void leave(std::size_t rail) {
    left_ = true;
    if ((input_.u8() & 1U) != 0) {
      theirs_[rail].reset();
    } else {
      ::shutdown(theirs_[rail].get(), SHUT_WR);
    }
  }

  void drain() {
    for (bool came = true; came;) {
      turn();
      came = false;
      for (std::size_t rail = 0; rail < rails(); ++rail) {
        came = hear(rail, 1U << 14U) > 0 || came;
      }
    }
  }

  void check_arrivals() {
    for (std::size_t rail = 0; rail < rails(); ++rail) {
      const Reading reading = read_frames(fed_[rail]);
      const auto& arrived = receiver_.on_rail[rail];
      std::size_t next = 0;
      bool said_goodbye = false;
      bool refused = reading.broken;
      for (std::size_t i = 0; i < reading.headers.size(); ++i) {
        const FrameHeader& header = reading.headers[i];
        const bool own = header.type == FrameType::kPing || header.type == FrameType::kGoodbye;
        if (header.sender != kPeer || (!own && !wanted(header))) {
          refused = true;
          break;
        }
        said_goodbye = said_goodbye || header.type == FrameType::kGoodbye;
        if (own) {
          continue;
        }
        if (next == arrived.size() && left_) {
          break;  // sending to this side failed first
        }
        require(next < arrived.size(), "every frame arrives");
        const auto& found = arrived[next++];
        const std::size_t whole = found.cancelled ? kFrameBytes : reading.texts[i].size();
        require(same(std::span(reading.texts[i]).first(whole),
                     std::span(found.text).first(std::min(whole, found.text.size()))),
                "a frame arrives as it was sent");
      }
      require(next == arrived.size(), "every frame that arrives was sent");
      require(!refused || said_goodbye || left_ || receiver_.is_lost,
              "a peer that breaks the protocol is lost");
    }
  }

  void check_departures() {
    std::set<std::uint64_t> seen;
    for (std::size_t rail = 0; rail < rails(); ++rail) {
      const Reading reading = read_frames(seen_[rail]);
      require(!reading.broken, "sent frames obey the protocol");
      std::uint64_t last = 0;
      for (std::size_t i = 0; i < reading.headers.size(); ++i) {
        const FrameHeader& header = reading.headers[i];
        if (header.group != kOurGroup) {
          continue;  // a ping or the goodbye
        }
        require(header.operation < posted_.size() && header.sender == kUs, "every sent frame was posted");
        require(seen.insert(header.operation).second, "a frame is sent once");
        require(header.operation >= last, "frames keep their order on a connection");
        last = header.operation;
        require(
            same(std::span(reading.texts[i]).subspan(kFrameBytes), pattern(header.operation, header.payload)),
            "a payload is sent as posted");
      }
    }
    for (std::size_t i = 0; i < posted_.size() && !receiver_.is_lost && !left_; ++i) {
      require(posted_[i].cancelled || seen.contains(i) || closed_early(), "every posted frame is sent");
    }
  }

  // One connection ended after its goodbye, which is not a loss while the other is open.
  bool closed_early() const {
    for (const auto& bytes : fed_) {
      for (const FrameHeader& header : read_frames(bytes).headers) {
        if (header.type == FrameType::kGoodbye) {
          return true;
        }
      }
    }
    return false;
  }

  Input input_;
  Loop loop_;
  Receiver receiver_;
  std::unique_ptr<StreamTransport> transport_;
  std::vector<UniqueFd> theirs_;
  std::array<Bytes, 2> fed_;
  std::array<Bytes, 2> late_;  // the rest of a partly sent frame
  std::array<Bytes, 2> seen_;
  std::vector<Posted> posted_;
  std::size_t posted_bytes_ = 0;
  bool finished_ = false;
  bool left_ = false;
};

}  // namespace

void fuzz_frame(std::span<const std::byte> input) {
  const World world([] { return false; });
  Scene(Input(input)).play();
}

}  // namespace smdp::fuzzing
