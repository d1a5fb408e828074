// A library with libfabric's interface and one provider, for endpoints of one process, that allows what the
// specification allows and demands what it lets a provider demand:
//
//   memory       every vector lies in live memory that is registered with the device of its endpoint, and
//                comes with its descriptor; provider keys
//   messages     at most two vectors; a message arrives in pieces over several progress calls, and never
//                without a posted receive buffer (the engine's credits are to prevent that)
//   writes       only with the key that the provider drew, within memory that is open to writes, and with an
//                immediate of 4 bytes; the bytes arrive in random order, the immediate after them, and the
//                receiver hears neither of the length nor of the context. Under the name efa, a write of two
//                vectors is always emulated, and every write unless STRICT_EFA_WRITES is 1 and the interface
//                that was asked for is 1.18 or newer. An emulated write breaks a rule
//   completions  in random order, delayed, on both sides; the memory of a send is read until its completion
//   calls        return -EAGAIN at random, also where there is room; progress only in the queue's read()
//   addresses    of 32 bytes
//   waits        none: a completion queue with a wait object is refused
//
// A broken rule ends the process with its text. STRICT_NAME: its name where none is asked for. STRICT_SEED:
// the seed of the random choices. STRICT_WRITES: 0, no endpoint has writes; some, every other one; a device,
// only those of the device. STRICT_DEVICES: how many devices there are. STRICT_READY: no call returns -EAGAIN
// while there is room. A device each: STRICT_SLOW, its endpoints need many progress calls for a message;
// STRICT_UNPLUGGED, no message leaves them; STRICT_REFUSES, it opens none.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "net/fabric/abi.h"

namespace {

namespace fi = smdp::fi;

constexpr std::size_t kAddressBytes = 32;
constexpr std::size_t kMostParts = 2;
constexpr std::size_t kDepth = 512;
constexpr std::size_t kMessageBytes = 8U << 20U;
constexpr int kUnreachable = EHOSTUNREACH;

[[noreturn]] void broken(const std::string& rule) {
  std::fprintf(stderr, "strict provider: %s\n", rule.c_str());
  std::abort();
}

struct Random {
  std::mt19937 engine{static_cast<std::uint32_t>(
      std::getenv("STRICT_SEED") == nullptr ? 1 : std::atoi(std::getenv("STRICT_SEED")))};  // NOLINT
  bool one_in(unsigned many) { return engine() % many == 0; }
  std::size_t below(std::size_t bound) { return engine() % bound; }
};

struct Endpoint;
struct Region;

bool has_value(const char* variable, const char* text) {
  const char* const value = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe)
  return value != nullptr && std::strcmp(value, text) == 0;
}

struct World {
  std::mutex mutex;  // guards everything of the provider
  Random random;
  std::map<std::uint64_t, Endpoint*> endpoints;
  std::uint64_t next_endpoint = 1;
  std::set<const void*> regions;
  std::map<std::uint64_t, const Region*> keys;
  bool offers_writes = false;  // at the last question
};

World& world() {
  static World& only = *new World;
  return only;
}

struct Region {
  fi::Mr mr{};
  const fi::Domain* domain = nullptr;
  const std::byte* begin = nullptr;
  std::size_t bytes = 0;
  std::uint64_t access = 0;
};

void check(const fi::Domain* domain, const void* memory, std::size_t bytes, void* descriptor,
           std::uint64_t access) {
  if (!world().regions.contains(descriptor)) {
    broken("a vector has no descriptor of registered memory");
  }
  const auto& region = *static_cast<const Region*>(descriptor);
  if (region.domain != domain) {
    broken("a vector has a descriptor of another device");
  }
  const auto* const begin = static_cast<const std::byte*>(memory);
  if (begin < region.begin || begin + bytes > region.begin + region.bytes) {
    broken("a vector lies outside the memory of its descriptor");
  }
  if ((region.access & access) != access) {
    broken("a vector in memory that was not registered for this");
  }
}

struct Addresses {
  fi::Av av{};
  std::vector<std::uint64_t> known;
};

struct Done {
  void* context = nullptr;
  std::uint64_t flags = 0;
  std::size_t length = 0;
  int error = 0;
  std::uint64_t data = 0;
};

struct Queue {
  fi::Cq cq{};
  std::vector<Done> done;
  std::vector<Done> failed;
  Endpoint* endpoint = nullptr;
};

struct Receive {
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
  void* context = nullptr;
};

struct Send {
  std::vector<std::pair<const std::byte*, std::size_t>> parts;
  std::size_t bytes = 0;
  std::size_t copied = 0;
  std::uint64_t to = 0;
  void* context = nullptr;
  bool has_receive = false;
  Receive into;
  // Of a write.
  bool is_write = false;
  fi::RemotePart remote{};
  std::uint64_t data = 0;
  std::vector<std::pair<std::size_t, std::size_t>> left;  // from, to: the bytes that have not arrived
};

struct Endpoint {
  fi::Ep ep{};
  bool is_efa = false;
  bool emulates_writes = false;
  const fi::Domain* domain = nullptr;
  std::string device;
  std::uint64_t name = 0;
  bool is_slow = false;
  bool is_unplugged = false;
  Queue* queue = nullptr;
  Addresses* addresses = nullptr;
  std::vector<Receive> receives;
  std::vector<Send> sends;
};

// Copies up to `most` further bytes of a message.
void copy_some(Send& send, std::size_t most) {
  std::size_t skip = send.copied;
  for (const auto& [memory, bytes] : send.parts) {
    if (skip >= bytes) {
      skip -= bytes;
      continue;
    }
    const std::size_t now = std::min(bytes - skip, most);
    std::memcpy(send.into.memory + send.copied, memory + skip, now);
    send.copied += now;
    most -= now;
    skip = 0;
    if (most == 0) {
      return;
    }
  }
}

std::byte* memory_of(const fi::Domain* domain, const fi::RemotePart& remote) {
  const auto found = world().keys.find(remote.key);
  if (found == world().keys.end()) {
    broken("a write with a key of no memory");
  }
  const Region& region = *found->second;
  if (region.domain != domain) {
    broken("a write with a key of another device");
  }
  auto* const begin = reinterpret_cast<std::byte*>(remote.address);  // NOLINT: addresses are virtual
  if ((region.access & fi::kRemoteWrite) == 0) {
    broken("a write to memory that is not open to writes");
  }
  if (begin < region.begin || begin + remote.bytes > region.begin + region.bytes) {
    broken("a write outside the memory of its key");
  }
  return begin;
}

// The bytes `from` to `to` of a write.
void copy_range(const Send& send, std::byte* into, std::size_t from, std::size_t to) {
  std::size_t at = 0;
  for (const auto& [memory, bytes] : send.parts) {
    const std::size_t begin = std::max(at, from);
    const std::size_t end = std::min(at + bytes, to);
    if (begin < end) {
      std::memcpy(into + begin, memory + (begin - at), end - begin);
    }
    at += bytes;
  }
}

// True when all bytes of a write have arrived.
bool write_some(const Endpoint& receiver, Send& send) {
  std::byte* const into = memory_of(receiver.domain, send.remote);
  const std::size_t which = world().random.below(send.left.size());
  std::swap(send.left[which], send.left.back());
  const auto [from, to] = send.left.back();
  send.left.pop_back();
  if (to - from > 1 && world().random.one_in(2)) {
    const std::size_t cut = from + 1 + world().random.below(to - from - 1);
    send.left.emplace_back(from, cut);
    copy_range(send, into, cut, to);
  } else {
    copy_range(send, into, from, to);
  }
  return send.left.empty();
}

// True when the send is over.
bool advance(Endpoint& from, Send& send) {
  const auto found = world().endpoints.find(send.to);
  if (found == world().endpoints.end() || from.is_unplugged) {
    from.queue->failed.push_back({send.context, fi::kSend, 0, kUnreachable});
    return true;
  }
  Endpoint& to = *found->second;
  if (send.is_write) {
    if (!write_some(to, send)) {
      return false;
    }
    to.queue->done.push_back({&to, fi::kRemoteWrite | fi::kRma | fi::kRemoteCqData, 0, 0, send.data});
    from.queue->done.push_back({send.context, fi::kWrite | fi::kRma, 0, 0, 0});
    return true;
  }
  if (!send.has_receive) {
    if (to.receives.empty()) {
      broken("a message finds no receive buffer");
    }
    std::swap(to.receives[world().random.below(to.receives.size())], to.receives.back());
    send.into = to.receives.back();
    to.receives.pop_back();
    send.has_receive = true;
    if (send.into.bytes < send.bytes) {
      to.queue->failed.push_back({send.into.context, fi::kRecv, send.bytes, fi::kErrorTruncated});
      from.queue->done.push_back({send.context, fi::kSend, send.bytes, 0});
      return true;
    }
  }
  copy_some(send, world().random.one_in(2) ? send.bytes : 1 + world().random.below(send.bytes));
  if (send.copied < send.bytes) {
    return false;
  }
  to.queue->done.push_back({send.into.context, fi::kRecv | fi::kMsg, send.bytes, 0});
  from.queue->done.push_back({send.context, fi::kSend | fi::kMsg, send.bytes, 0});
  return true;
}

void progress(Endpoint& endpoint) {
  for (std::size_t i = 0; i < endpoint.sends.size();) {
    const std::size_t which = i + world().random.below(endpoint.sends.size() - i);
    std::swap(endpoint.sends[i], endpoint.sends[which]);
    const bool waits = endpoint.is_slow ? !world().random.one_in(500) : world().random.one_in(3);
    if (!waits && advance(endpoint, endpoint.sends[i])) {
      endpoint.sends.erase(endpoint.sends.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
}

// --- The interface ---

template <class Object>
int destroy(fi::Fid* fid) {
  const std::lock_guard lock(world().mutex);
  delete reinterpret_cast<Object*>(fid);
  return 0;
}

int close_region(fi::Fid* fid) {
  const std::lock_guard lock(world().mutex);
  world().regions.erase(fid);
  world().keys.erase(reinterpret_cast<Region*>(fid)->mr.key);
  delete reinterpret_cast<Region*>(fid);
  return 0;
}

int close_endpoint(fi::Fid* fid) {
  const std::lock_guard lock(world().mutex);
  auto* const endpoint = reinterpret_cast<Endpoint*>(fid);
  world().endpoints.erase(endpoint->name);
  if (endpoint->queue != nullptr) {
    endpoint->queue->endpoint = nullptr;
  }
  // A message that is being copied into this endpoint stops.
  for (auto& [name, other] : world().endpoints) {
    for (Send& send : other->sends) {
      if (send.to == endpoint->name) {
        send.to = 0;
      }
    }
  }
  delete endpoint;
  return 0;
}

fi::FidOps plain_ops{sizeof(fi::FidOps), destroy<fi::Fabric>, nullptr, nullptr};
fi::FidOps domain_fid_ops{sizeof(fi::FidOps), destroy<fi::Domain>, nullptr, nullptr};
fi::FidOps addresses_fid_ops{sizeof(fi::FidOps), destroy<Addresses>, nullptr, nullptr};
fi::FidOps queue_fid_ops{sizeof(fi::FidOps), destroy<Queue>, nullptr, nullptr};
fi::FidOps region_fid_ops{sizeof(fi::FidOps), close_region, nullptr, nullptr};

int bind(fi::Fid* fid, fi::Fid* other, std::uint64_t /*flags*/) {
  const std::lock_guard lock(world().mutex);
  auto* const endpoint = reinterpret_cast<Endpoint*>(fid);
  if (other->ops == &queue_fid_ops) {
    endpoint->queue = reinterpret_cast<Queue*>(other);
    endpoint->queue->endpoint = endpoint;
  } else {
    endpoint->addresses = reinterpret_cast<Addresses*>(other);
  }
  return 0;
}

int control(fi::Fid* fid, int command, void* /*argument*/) {
  const std::lock_guard lock(world().mutex);
  auto* const endpoint = reinterpret_cast<Endpoint*>(fid);
  if (command != fi::kEnable || endpoint->queue == nullptr || endpoint->addresses == nullptr) {
    return -EINVAL;
  }
  endpoint->name = world().next_endpoint++;
  world().endpoints[endpoint->name] = endpoint;
  return 0;
}

fi::FidOps endpoint_fid_ops{sizeof(fi::FidOps), close_endpoint, bind, control};

int get_option(fi::Fid* fid, int level, int option, void* value, std::size_t* bytes) {
  const auto* const endpoint = reinterpret_cast<const Endpoint*>(fid);
  if (!endpoint->is_efa || level != fi::kOptEndpoint || option != fi::kOptEfaEmulatedWrite) {
    return -ENOPROTOOPT;
  }
  if (*bytes < sizeof(bool)) {
    broken("an option without space for its value");
  }
  *static_cast<bool*>(value) = endpoint->emulates_writes;
  *bytes = sizeof(bool);
  return 0;
}

int getname(fi::Fid* fid, void* address, std::size_t* bytes) {
  const auto* const endpoint = reinterpret_cast<const Endpoint*>(fid);
  if (*bytes < kAddressBytes) {
    *bytes = kAddressBytes;
    return -ENOSPC;
  }
  *bytes = kAddressBytes;
  std::memset(address, 0x5a, kAddressBytes);
  std::memcpy(static_cast<std::byte*>(address) + kAddressBytes - sizeof(endpoint->name), &endpoint->name,
              sizeof(endpoint->name));
  return 0;
}

int insert(fi::Av* av, const void* addresses, std::size_t count, std::uint64_t* places,
           std::uint64_t /*flags*/, void* /*context*/) {
  const std::lock_guard lock(world().mutex);
  auto& table = *reinterpret_cast<Addresses*>(av);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t name = 0;
    std::memcpy(&name, static_cast<const std::byte*>(addresses) + (i + 1) * kAddressBytes - sizeof(name),
                sizeof(name));
    places[i] = table.known.size();
    table.known.push_back(name);
  }
  return static_cast<int>(count);
}

bool is_refused(unsigned one_in) {
  return world().random.one_in(one_in) && std::getenv("STRICT_READY") == nullptr;  // NOLINT
}

ssize_t post_receive(fi::Ep* ep, void* memory, std::size_t bytes, void* descriptor, std::uint64_t /*from*/,
                     void* context) {
  const std::lock_guard lock(world().mutex);
  auto& endpoint = *reinterpret_cast<Endpoint*>(ep);
  if (endpoint.receives.size() >= kDepth || is_refused(10)) {
    return -EAGAIN;
  }
  check(endpoint.domain, memory, bytes, descriptor, fi::kRecv);
  endpoint.receives.push_back({static_cast<std::byte*>(memory), bytes, context});
  return 0;
}

ssize_t begin_send(fi::Ep* ep, const fi::Message& message, Send send) {
  auto& endpoint = *reinterpret_cast<Endpoint*>(ep);
  if (endpoint.sends.size() >= kDepth || is_refused(5)) {
    return -EAGAIN;
  }
  if (message.count > kMostParts) {
    broken("a message of more than two vectors");
  }
  if (message.to >= endpoint.addresses->known.size()) {
    broken("a message to an address that is not in the table");
  }
  for (std::size_t i = 0; i < message.count; ++i) {
    const iovec& part = message.parts[i];
    check(endpoint.domain, part.iov_base, part.iov_len, message.descriptors[i],
          send.is_write ? fi::kWrite : fi::kSend);
    send.parts.emplace_back(static_cast<const std::byte*>(part.iov_base), part.iov_len);
    send.bytes += part.iov_len;
  }
  send.to = endpoint.addresses->known[message.to];
  send.context = message.context;
  send.left = {{0, send.bytes}};
  endpoint.sends.push_back(std::move(send));
  return 0;
}

ssize_t send_message(fi::Ep* ep, const fi::Message* message, std::uint64_t /*flags*/) {
  const std::lock_guard lock(world().mutex);
  return begin_send(ep, *message, {});
}

ssize_t write_message(fi::Ep* ep, const fi::WriteMessage* message, std::uint64_t flags) {
  const std::lock_guard lock(world().mutex);
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < message->count; ++i) {
    bytes += message->parts[i].iov_len;
  }
  const auto& endpoint = *reinterpret_cast<const Endpoint*>(ep);
  if (endpoint.emulates_writes || (endpoint.is_efa && message->count > 1)) {
    broken("a write that the provider emulates");
  }
  if (flags != fi::kRemoteCqData || message->data > UINT32_MAX) {
    broken("a write without an immediate of 4 bytes");
  }
  if (message->remote_count != 1 || message->remote->bytes != bytes) {
    broken("a write whose parts do not have the length of the memory that it names");
  }
  Send send;
  send.is_write = true;
  send.remote = *message->remote;
  send.data = message->data;
  return begin_send(ep,
                    {message->parts, message->descriptors, message->count, message->to, message->context, 0},
                    std::move(send));
}

ssize_t read_queue(fi::Cq* cq, void* entries, std::size_t count) {
  const std::lock_guard lock(world().mutex);
  auto& queue = *reinterpret_cast<Queue*>(cq);
  if (queue.endpoint != nullptr) {
    progress(*queue.endpoint);
  }
  if (!queue.failed.empty()) {
    return -fi::kErrorAvailable;
  }
  std::size_t given = 0;
  while (given < count && !queue.done.empty() && !world().random.one_in(4)) {
    std::swap(queue.done[world().random.below(queue.done.size())], queue.done.back());
    const Done one = queue.done.back();
    queue.done.pop_back();
    static_cast<fi::CqEntry*>(entries)[given++] = {one.context, one.flags, one.length, nullptr, one.data};
  }
  return given == 0 ? -EAGAIN : static_cast<ssize_t>(given);
}

ssize_t read_failure(fi::Cq* cq, fi::CqError* error, std::uint64_t /*flags*/) {
  const std::lock_guard lock(world().mutex);
  auto& queue = *reinterpret_cast<Queue*>(cq);
  if (queue.failed.empty()) {
    return -EAGAIN;
  }
  const Done one = queue.failed.back();
  queue.failed.pop_back();
  error->context = one.context;
  error->flags = one.flags;
  error->length = one.length;
  error->error = one.error;
  return 1;
}

fi::AvOps addresses_ops{sizeof(fi::AvOps), insert};
fi::CqOps queue_ops{sizeof(fi::CqOps), read_queue, nullptr, read_failure};
fi::EpOps endpoint_ops{sizeof(fi::EpOps), nullptr, get_option};
fi::CmOps cm_ops{sizeof(fi::CmOps), nullptr, getname};
fi::RmaOps rma_ops{sizeof(fi::RmaOps), nullptr, nullptr, nullptr, nullptr, nullptr, write_message};
fi::MsgOps message_ops{sizeof(fi::MsgOps), post_receive, nullptr, nullptr, nullptr, nullptr, send_message};

int open_addresses(fi::Domain* /*domain*/, fi::AvAttr* /*attr*/, fi::Av** av, void* /*context*/) {
  auto* const made = new Addresses;
  made->av = {{0, nullptr, &addresses_fid_ops}, &addresses_ops};
  *av = &made->av;
  return 0;
}

int open_queue(fi::Domain* /*domain*/, fi::CqAttr* attr, fi::Cq** cq, void* /*context*/) {
  if (attr->wait_obj != fi::kWaitNone || attr->format != fi::kCqFormatData) {
    return -ENOSYS;
  }
  auto* const made = new Queue;
  made->cq = {{0, nullptr, &queue_fid_ops}, &queue_ops};
  *cq = &made->cq;
  return 0;
}

int open_endpoint(fi::Domain* domain, fi::Info* info, fi::Ep** ep, void* /*context*/) {
  const char* const device = info->domain_attr->name;
  if (has_value("STRICT_REFUSES", device)) {
    return -ENODEV;
  }
  auto* const made = new Endpoint;
  made->domain = domain;
  made->device = device;
  made->is_efa = std::strcmp(info->fabric_attr->prov_name, "efa") == 0;
  made->emulates_writes = made->is_efa && (info->fabric_attr->api_version < fi::version(1, 18) ||
                                           !has_value("STRICT_EFA_WRITES", "1"));
  made->is_slow = has_value("STRICT_SLOW", device);
  made->is_unplugged = has_value("STRICT_UNPLUGGED", device);
  made->ep = {{0, nullptr, &endpoint_fid_ops}, &endpoint_ops, &cm_ops, &message_ops, &rma_ops};
  *ep = &made->ep;
  return 0;
}

int register_memory(fi::Fid* domain, const void* memory, std::size_t bytes, std::uint64_t access,
                    std::uint64_t /*offset*/, std::uint64_t /*requested_key*/, std::uint64_t /*flags*/,
                    fi::Mr** mr, void* /*context*/) {
  const std::lock_guard lock(world().mutex);
  if ((access & ~(fi::kSend | fi::kRecv | fi::kWrite | fi::kRemoteWrite)) != 0) {
    return -EINVAL;
  }
  auto* const made = new Region;
  made->mr = {{0, nullptr, &region_fid_ops},
              made,
              (std::uint64_t{world().random.engine()} << 32U) | world().random.engine()};
  made->domain = reinterpret_cast<const fi::Domain*>(domain);
  made->begin = static_cast<const std::byte*>(memory);
  made->bytes = bytes;
  made->access = access;
  world().keys[made->mr.key] = made;
  world().regions.insert(made);
  *mr = &made->mr;
  return 0;
}

fi::DomainOps domain_ops{sizeof(fi::DomainOps), open_addresses, open_queue, open_endpoint};
fi::MrOps memory_ops{sizeof(fi::MrOps), register_memory};

int open_domain(fi::Fabric* /*fabric*/, fi::Info* /*info*/, fi::Domain** domain, void* /*context*/) {
  *domain = new fi::Domain{{0, nullptr, &domain_fid_ops}, &domain_ops, &memory_ops};
  return 0;
}

fi::FabricOps fabric_ops{sizeof(fi::FabricOps), open_domain, nullptr, nullptr, nullptr, nullptr};

fi::Info* allocate_info() {
  auto* const info = new fi::Info{};
  info->tx_attr = new fi::TxAttr{};
  info->rx_attr = new fi::RxAttr{};
  info->ep_attr = new fi::EpAttr{};
  info->domain_attr = new fi::DomainAttr{};
  info->fabric_attr = new fi::FabricAttr{};
  return info;
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

// For tests. `device`: null, all.
EXPORTED std::size_t strict_open_endpoints(const char* device) {
  const std::lock_guard lock(world().mutex);
  return static_cast<std::size_t>(std::ranges::count_if(
      world().endpoints, [&](const auto& one) { return device == nullptr || one.second->device == device; }));
}

// STRICT_VERSION, as 1.13, or 1.18.
EXPORTED std::uint32_t fi_version() {
  const char* const minor =
      std::getenv("STRICT_VERSION") == nullptr ? nullptr : std::strchr(std::getenv("STRICT_VERSION"), '.');
  return fi::version(1, minor == nullptr ? 18 : static_cast<std::uint32_t>(std::atoi(minor + 1)));  // NOLINT
}

EXPORTED const char* fi_strerror(int error) { return std::strerror(error < 256 ? error : EIO); }

EXPORTED void fi_freeinfo(fi::Info* info) {
  while (info != nullptr) {
    fi::Info* const next = info->next;
    std::free(info->fabric_attr->prov_name);  // NOLINT
    std::free(info->domain_attr->name);       // NOLINT
    delete info->tx_attr;
    delete info->rx_attr;
    delete info->ep_attr;
    delete info->domain_attr;
    delete info->fabric_attr;
    delete info;
    info = next;
  }
}

EXPORTED fi::Info* fi_dupinfo(const fi::Info* info) {
  fi::Info* const made = allocate_info();
  if (info != nullptr) {
    made->caps = info->caps;
    made->mode = info->mode;
    *made->tx_attr = *info->tx_attr;
    *made->rx_attr = *info->rx_attr;
    *made->ep_attr = *info->ep_attr;
    *made->domain_attr = *info->domain_attr;
    made->domain_attr->name = ::strdup(info->domain_attr->name);
    *made->fabric_attr = *info->fabric_attr;
    made->fabric_attr->prov_name = ::strdup(info->fabric_attr->prov_name);
  }
  return made;
}

namespace {

constexpr int kDemands = fi::kMrLocal | fi::kMrVirtAddr | fi::kMrAllocated | fi::kMrProvKey;

fi::Info* describe_device(std::uint32_t version, const fi::Info& hints, int device) {
  fi::Info* const made = allocate_info();
  made->caps = hints.caps;
  made->mode = fi::kContext | fi::kContext2;
  made->tx_attr->size = kDepth;
  made->tx_attr->iov_limit = kMostParts;
  made->rx_attr->size = kDepth;
  made->rx_attr->iov_limit = kMostParts;
  made->ep_attr->type = fi::kEpRdm;
  made->ep_attr->max_msg_size = kMessageBytes;
  made->domain_attr->mr_mode = kDemands;
  made->domain_attr->mr_key_size = sizeof(std::uint64_t);
  made->domain_attr->cq_data_size = sizeof(std::uint32_t);
  made->domain_attr->name = ::strdup(("strict" + std::to_string(device)).c_str());
  const char* const asked = hints.fabric_attr->prov_name;  // as SMDP_TRANSPORT=auto does
  const char* const chosen = std::getenv("STRICT_NAME");   // NOLINT(concurrency-mt-unsafe)
  made->fabric_attr->prov_name = ::strdup(asked != nullptr ? asked : chosen != nullptr ? chosen : "strict");
  made->fabric_attr->api_version = version;
  return made;
}

}  // namespace

EXPORTED int fi_getinfo(std::uint32_t version, const char* node, const char* /*service*/,
                        std::uint64_t /*flags*/, const fi::Info* hints, fi::Info** info) {
  std::signal(SIGUSR2, [](int) {});  // as PSM's library replaces the handlers of other signals
  if (version > fi_version()) {
    return -ENOSYS;
  }
  if (node != nullptr || hints->domain_attr->mr_mode != kDemands || (hints->mode & fi::kContext2) == 0) {
    return -ENODATA;  // its addresses are no IP addresses
  }
  const char* writing = nullptr;  // the only device that is asked for and has writes; null: all
  if ((hints->caps & fi::kRma) != 0) {
    const std::lock_guard lock(world().mutex);
    const char* const writes = std::getenv("STRICT_WRITES");  // NOLINT(concurrency-mt-unsafe)
    bool& offered = world().offers_writes;
    offered = writes == nullptr || std::strncmp(writes, "strict", 6) == 0 ||
              (std::strcmp(writes, "some") == 0 && !offered);
    if (!offered) {
      return -ENODATA;
    }
    writing = writes == nullptr || std::strcmp(writes, "some") == 0 ? nullptr : writes;
  }
  // NOLINTNEXTLINE(concurrency-mt-unsafe)
  const char* const devices = std::getenv("STRICT_DEVICES");
  fi::Info* made = nullptr;
  for (int device = devices == nullptr ? 1 : std::atoi(devices); device-- > 0;) {  // NOLINT(cert-err34-c)
    fi::Info* const one = describe_device(version, *hints, device);
    if (writing != nullptr && std::strcmp(writing, one->domain_attr->name) != 0) {
      fi_freeinfo(one);
      continue;
    }
    one->next = made;
    made = one;
  }
  *info = made;
  return 0;
}
EXPORTED int fi_fabric(fi::FabricAttr* /*attr*/, fi::Fabric** fabric, void* /*context*/) {
  *fabric = new fi::Fabric{{0, nullptr, &plain_ops}, &fabric_ops};
  return 0;
}
