#include "net/fabric/endpoint.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

namespace smdp {
namespace {

constexpr std::uint64_t kMessages = fi::kMsg | fi::kSend | fi::kRecv;
constexpr std::uint64_t kWrites = fi::kRma | fi::kWrite | fi::kRemoteWrite;
// If its device has no writes, this provider emulates them; and always a write of two vectors with an
// immediate. If the sender of an emulated write dies, the receiver's provider ends the process.
constexpr std::string_view kEmulatesWrites = "efa";
// This provider connects processes of one host only, which the engine's own shared memory does. It also
// unmaps the memory of an endpoint that is closed while other endpoints of the process use it.
constexpr std::string_view kWithinHosts = "shm";
// If an endpoint is closed while a frame arrives, this layer uses the context of a transfer that has none.
constexpr std::string_view kClosesOnlyWholeFrames = "ofi_rxm";
constexpr int kOurModes = fi::kMrLocal | fi::kMrVirtAddr | fi::kMrAllocated | fi::kMrProvKey;

void close(fi::Fid* fid) {
  if (fid != nullptr) {
    (void)fid->ops->close(fid);
  }
}

template <class Object>
void close_object(Object* object) {
  close(object == nullptr ? nullptr : &object->fid);
}

std::string_view name_of_domain(const fi::Info& info) {
  return info.domain_attr->name == nullptr ? std::string_view() : info.domain_attr->name;
}

}  // namespace

Result<std::vector<std::string>> FabricEndpoint::devices(const FabricLibrary& library, const Wanted& wanted) {
  FabricEndpoint asked(library, wanted);
  asked.wanted_.writes = false;  // of the devices with messages, some may lack writes
  if (Status status = asked.find(); !status.ok()) {
    return status;
  }
  return std::move(asked.devices_);
}

Result<std::unique_ptr<FabricEndpoint>> FabricEndpoint::open(const FabricLibrary& library,
                                                             const Wanted& wanted) {
  std::unique_ptr<FabricEndpoint> made(new FabricEndpoint(library, wanted));
  Status status = made->find();
  if (status.ok()) {
    status = made->create();
  }
  if (!status.ok()) {
    return status;
  }
  made->wanted_.writes = wanted.writes && !made->emulates_writes();
  return made;
}

FabricEndpoint::~FabricEndpoint() {
  if (may_be_unfinished_ && endpoint_ != nullptr &&
      provider().find(kClosesOnlyWholeFrames) != std::string::npos) {
    return;  // nothing more is done with them: progress is manual
  }
  close_object(endpoint_);
  for (fi::Mr* region : regions_) {
    close_object(region);
  }
  close_object(queue_);
  close_object(addresses_);
  close_object(domain_);
  close_object(fabric_);
  if (info_ != nullptr) {
    library_.freeinfo(info_);
  }
}

std::string FabricEndpoint::device() const { return std::string(name_of_domain(*info_)); }

std::size_t FabricEndpoint::sends() const { return std::min(wanted_.sends, info_->tx_attr->size); }

std::size_t FabricEndpoint::write_parts() const { return provider() == kEmulatesWrites ? 1 : parts(); }

// Libraries that do not know the option emulate writes too.
bool FabricEndpoint::emulates_writes() {
  bool emulates = true;
  std::size_t bytes = sizeof(emulates);
  return provider() == kEmulatesWrites &&
         (endpoint_->ops->getopt(&endpoint_->fid, fi::kOptEndpoint, fi::kOptEfaEmulatedWrite, &emulates,
                                 &bytes) != 0 ||
          emulates);
}

std::size_t FabricEndpoint::receives() const { return std::min(wanted_.receives, info_->rx_attr->size); }

// `efa-direct` has messages of one packet only.
bool FabricEndpoint::suits(const fi::Info& info) const {
  const std::string_view fabric = info.fabric_attr->name == nullptr ? "" : info.fabric_attr->name;
  const bool can_write = info.domain_attr->cq_data_size >= sizeof(std::uint32_t) &&
                         info.domain_attr->mr_key_size <= sizeof(std::uint64_t);
  return fabric != "efa-direct" && info.fabric_attr->prov_name != kWithinHosts &&
         ((info.caps & fi::kRma) == 0 || can_write) && info.ep_attr->type == fi::kEpRdm &&
         info.ep_attr->max_msg_size >= wanted_.message_bytes &&
         (info.mode & ~(fi::kContext | fi::kContext2)) == 0 &&
         (info.domain_attr->mr_mode & ~kOurModes) == 0 &&
         (wanted_.provider.empty() || wanted_.provider == info.fabric_attr->prov_name);
}

// The devices of the provider that the library prefers.
std::vector<const fi::Info*> FabricEndpoint::candidates(const fi::Info* first) const {
  std::vector<const fi::Info*> devices;
  for (const fi::Info* info = first; info != nullptr; info = info->next) {
    if (!suits(*info) || (!devices.empty() && std::string_view(devices.front()->fabric_attr->prov_name) !=
                                                  info->fabric_attr->prov_name)) {
      continue;
    }
    const bool is_new = std::ranges::none_of(
        devices, [&](const fi::Info* one) { return name_of_domain(*one) == name_of_domain(*info); });
    if (is_new) {
      devices.push_back(info);
    }
  }
  return devices;
}

Status FabricEndpoint::find() {
  fi::Info* const hints = library_.dupinfo(nullptr);
  if (hints == nullptr) {
    return {Code::kExhausted, "libfabric has no memory"};
  }
  hints->mode = fi::kContext | fi::kContext2;
  hints->ep_attr->type = fi::kEpRdm;
  hints->domain_attr->threading = fi::kThreadDomain;
  hints->domain_attr->resource_mgmt = fi::kResourcesManaged;
  hints->domain_attr->control_progress = fi::kProgressManual;
  hints->domain_attr->data_progress = fi::kProgressManual;
  hints->domain_attr->mr_mode = kOurModes;
  if (!wanted_.provider.empty()) {
    hints->fabric_attr->prov_name = ::strdup(wanted_.provider.c_str());  // freeinfo() frees it
  }
  hints->caps = kMessages;
  const int got = ask(*hints);
  if (info_ != nullptr && wanted_.writes) {
    fi::Info* const without = std::exchange(info_, nullptr);
    if (hints->fabric_attr->prov_name == nullptr) {
      hints->fabric_attr->prov_name = ::strdup(without->fabric_attr->prov_name);
    }
    hints->caps = kMessages | kWrites;
    (void)ask(*hints);
    if (info_ == nullptr) {
      info_ = without;
    } else {
      library_.freeinfo(without);
    }
  }
  library_.freeinfo(hints);
  if (info_ != nullptr) {
    return {};
  }
  if (has_within_hosts_ && !has_between_hosts_) {
    return {Code::kUnsupported,
            "the engine does not use libfabric's provider shm, which connects only processes of one host "
            "(FI_PROVIDER='tcp;ofi_rxm' selects another)"};
  }
  const std::string what = "libfabric has no " + (wanted_.provider.empty() ? "fabric" : wanted_.provider) +
                           " with reliable datagrams of " + std::to_string(wanted_.message_bytes) + " bytes";
  return got == 0 || got == -ENODATA ? Status(Code::kUnsupported, what)
                                     : Status(Code::kUnsupported, error(what, got).message());
}

// Sets info_ to the best provider that has what `hints` say. Returns what the library does.
int FabricEndpoint::ask(fi::Info& hints) {
  // Only some providers have IP addresses: the others are found without one.
  const std::array<const char*, 2> sources = {wanted_.source.empty() ? nullptr : wanted_.source.c_str(),
                                              nullptr};
  int got = 0;
  for (const char* source : sources) {
    fi::Info* all = nullptr;
    got = library_.getinfo(library_.interface_version(), source, nullptr, source == nullptr ? 0 : fi::kSource,
                           &hints, &all);
    const auto devices = candidates(got == 0 ? all : nullptr);
    const auto chosen = std::ranges::find_if(devices, [this](const fi::Info* one) {
      return wanted_.device.empty() || name_of_domain(*one) == wanted_.device;
    });
    if (chosen != devices.end()) {
      info_ = library_.dupinfo(*chosen);
      devices_.clear();
      std::ranges::transform(devices, std::back_inserter(devices_),
                             [](const fi::Info* one) { return std::string(name_of_domain(*one)); });
    }
    if (got == 0) {
      for (const fi::Info* info = all; info != nullptr; info = info->next) {
        (info->fabric_attr->prov_name == kWithinHosts ? has_within_hosts_ : has_between_hosts_) = true;
      }
      library_.freeinfo(all);
    }
    if (info_ != nullptr) {
      break;
    }
  }
  return got;
}

Status FabricEndpoint::create() {
  const auto failed = [this](const char* what, int returned) {
    const Status status = error(what, returned);
    return Status(status.code(), provider() + ": " + status.message());
  };
  if (const int got = library_.fabric(info_->fabric_attr, &fabric_, nullptr); got != 0) {
    return failed("opening the fabric failed", got);
  }
  if (const int got = fabric_->ops->domain(fabric_, info_, &domain_, nullptr); got != 0) {
    return failed("opening the device failed", got);
  }
  if (const int got = open_queue(); got != 0) {
    return failed("creating the completion queue failed", got);
  }
  fi::AvAttr addresses{};
  addresses.type = info_->domain_attr->av_type;
  addresses.count = wanted_.peers;
  if (const int got = domain_->ops->av_open(domain_, &addresses, &addresses_, nullptr); got != 0) {
    return failed("creating the address table failed", got);
  }
  if (const int got = domain_->ops->endpoint(domain_, info_, &endpoint_, nullptr); got != 0) {
    return failed("creating the endpoint failed", got);
  }
  const auto bind = [this](fi::Fid* to, std::uint64_t flags) {
    return endpoint_->fid.ops->bind(&endpoint_->fid, to, flags);
  };
  int got = bind(&addresses_->fid, 0);
  if (got == 0) {
    got = bind(&queue_->fid, fi::kSend | fi::kRecv);
  }
  if (got == 0) {
    got = endpoint_->fid.ops->control(&endpoint_->fid, fi::kEnable, nullptr);
  }
  return got == 0 ? Status() : failed("enabling the endpoint failed", got);
}

// With a descriptor that wakes the loop, where the provider has one. EFA has one only in new libraries.
int FabricEndpoint::open_queue() {
  fi::CqAttr attr{};
  attr.size = sends() + receives();
  attr.format = fi::kCqFormatData;
  attr.wait_obj = fi::kWaitFd;
  if (domain_->ops->cq_open(domain_, &attr, &queue_, nullptr) == 0) {
    if (queue_->fid.ops->control(&queue_->fid, fi::kGetWait, &wake_fd_) == 0 && wake_fd_ >= 0) {
      return 0;
    }
    close_object(queue_);
  }
  queue_ = nullptr;
  wake_fd_ = -1;
  attr.wait_obj = fi::kWaitNone;
  return domain_->ops->cq_open(domain_, &attr, &queue_, nullptr);
}

bool FabricEndpoint::may_wait() {
  fi::Fid* waited = &queue_->fid;
  return fabric_->ops->trywait(fabric_, &waited, 1) == 0;
}

Result<Bytes> FabricEndpoint::address() {
  constexpr std::size_t kMost = 512;
  Bytes bytes(kMost);
  std::size_t used = bytes.size();
  if (const int got = endpoint_->cm->getname(&endpoint_->fid, bytes.data(), &used); got != 0) {
    return error("reading the fabric's address failed", got);
  }
  bytes.resize(std::min(used, kMost));
  return bytes;
}

Result<std::uint64_t> FabricEndpoint::insert(std::span<const std::byte> address) {
  std::uint64_t place = fi::kNoAddress;
  const int got = addresses_->ops->insert(addresses_, address.data(), 1, &place, 0, nullptr);
  if (got != 1 || place == fi::kNoAddress) {
    return got < 0 ? error("the fabric refused an address", got)
                   : Status(Code::kSystem, "the fabric refused an address");
  }
  return place;
}

Result<FabricEndpoint::Region> FabricEndpoint::register_memory(std::span<std::byte> memory, bool is_written) {
  fi::Mr* region = nullptr;
  regions_.reserve(regions_.size() + 1);
  // Where the provider does not choose it: random, so that no client can guess it.
  const std::uint64_t key = info_->domain_attr->mr_key_size < sizeof(std::uint64_t)
                                ? regions_.size() + 1
                                : Reader(random128()).get<std::uint64_t>();
  const std::uint64_t access = fi::kSend | fi::kRecv | (can_write() ? fi::kWrite : 0) |
                               (can_write() && is_written ? fi::kRemoteWrite : 0);
  const int got =
      domain_->mr->reg(&domain_->fid, memory.data(), memory.size(), access, 0, key, 0, &region, nullptr);
  if (got != 0) {
    return error("registering " + std::to_string(memory.size() >> 20U) + " MiB with the fabric failed", got);
  }
  regions_.push_back(region);
  const bool is_virtual = (info_->domain_attr->mr_mode & fi::kMrVirtAddr) != 0;
  return Region{region->descriptor, is_virtual ? reinterpret_cast<std::uintptr_t>(memory.data()) : 0,
                region->key};
}

long FabricEndpoint::send(std::uint64_t to, std::span<const iovec> parts, std::span<void*> descriptors,
                          fi::Context* context) {
  fi::Message message{};
  message.parts = parts.data();
  message.descriptors = descriptors.data();
  message.count = parts.size();
  message.to = to;
  message.context = context;
  return endpoint_->msg->sendmsg(endpoint_, &message, 0);
}

long FabricEndpoint::write(std::uint64_t to, std::span<const iovec> parts, std::span<void*> descriptors,
                           const fi::RemotePart& remote, std::uint32_t immediate, fi::Context* context) {
  fi::WriteMessage message{};
  message.parts = parts.data();
  message.descriptors = descriptors.data();
  message.count = parts.size();
  message.to = to;
  message.remote = &remote;
  message.remote_count = 1;
  message.context = context;
  message.data = immediate;
  return endpoint_->rma->writemsg(endpoint_, &message, fi::kRemoteCqData);
}

long FabricEndpoint::receive(std::span<std::byte> memory, void* descriptor, fi::Context* context) {
  return endpoint_->msg->recv(endpoint_, memory.data(), memory.size(), descriptor, fi::kNoAddress, context);
}

std::size_t FabricEndpoint::read(std::span<Completion> completions) {
  constexpr std::size_t kMost = 16;
  std::array<fi::CqEntry, kMost> entries{};
  const ssize_t got = queue_->ops->read(queue_, entries.data(), std::min(kMost, completions.size()));
  if (got == -EAGAIN || got == 0) {
    return 0;
  }
  if (got < 0) {
    completions[0] = got == -fi::kErrorAvailable
                         ? read_error()
                         : Completion{nullptr, 0, static_cast<int>(-got), std::nullopt};
    return 1;
  }
  for (std::size_t i = 0; i < static_cast<std::size_t>(got); ++i) {
    const fi::CqEntry& entry = entries[i];
    completions[i] = {static_cast<fi::Context*>(entry.context), entry.length, 0, std::nullopt};
    // The context and the length of another's write are the provider's own.
    if ((entry.flags & fi::kRemoteWrite) != 0) {
      completions[i] = {nullptr, 0, 0, entry.data};
    }
  }
  return static_cast<std::size_t>(got);
}

FabricEndpoint::Completion FabricEndpoint::read_error() {
  fi::CqError failed{};
  const ssize_t got = queue_->ops->readerr(queue_, &failed, 0);
  if (got < 0) {
    return {nullptr, 0, static_cast<int>(-got), std::nullopt};
  }
  // A peer's write: its context is the provider's own, and TCP reports a peer that has died.
  if ((failed.flags & fi::kRemoteWrite) != 0) {
    return {nullptr, 0, 0, kNoSlot};
  }
  return {static_cast<fi::Context*>(failed.context), failed.length, failed.error == 0 ? EIO : failed.error,
          std::nullopt};
}

}  // namespace smdp
