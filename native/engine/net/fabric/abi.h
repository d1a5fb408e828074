// The part of libfabric's binary interface that the engine uses, declared here so that the engine builds
// where libfabric's headers are absent.
//
// Each declaration repeats the layout of the public one (rdma/fabric.h and its neighbours, unchanged since
// library 1.14) up to the last field that is used. Newer libraries only append fields, so the structures that
// the library allocates are read through pointers, and those that the engine allocates end in zeros. A test
// compares every offset and constant with the public headers where they are installed
// (native/tests/fabric/test_abi.cc).
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace smdp::fi {

constexpr std::uint32_t version(std::uint32_t major, std::uint32_t minor) { return (major << 16U) | minor; }

// Capabilities and flags.
inline constexpr std::uint64_t kMsg = 1ULL << 1U;
inline constexpr std::uint64_t kRma = 1ULL << 2U;
inline constexpr std::uint64_t kWrite = 1ULL << 9U;
inline constexpr std::uint64_t kRecv = 1ULL << 10U;
inline constexpr std::uint64_t kSend = 1ULL << 11U;
inline constexpr std::uint64_t kRemoteWrite = 1ULL << 13U;
inline constexpr std::uint64_t kRemoteCqData = 1ULL << 17U;  // of a write: with an immediate
inline constexpr std::uint64_t kSource = 1ULL << 57U;        // of fi_getinfo: node names the local address
// Modes: what the library may ask of the application.
inline constexpr std::uint64_t kContext = 1ULL << 59U;
inline constexpr std::uint64_t kContext2 = 1ULL << 52U;
// Modes of memory registration.
inline constexpr int kMrLocal = 1 << 2;
inline constexpr int kMrVirtAddr = 1 << 4;
inline constexpr int kMrAllocated = 1 << 5;
inline constexpr int kMrProvKey = 1 << 6;
// Enumerators.
inline constexpr int kEpRdm = 3;
inline constexpr int kThreadDomain = 3;
inline constexpr int kProgressManual = 2;
inline constexpr int kResourcesManaged = 2;
inline constexpr int kCqFormatData = 3;
inline constexpr int kWaitNone = 0;
inline constexpr int kWaitFd = 3;
inline constexpr int kGetWait = 5;
inline constexpr int kEnable = 6;
inline constexpr int kOptEndpoint = 0;
// An option of EFA's provider, unknown to older libraries. Its value is a bool: whether the endpoint emulates
// writes.
inline constexpr int kOptEfaEmulatedWrite = -(0xefa << 16) + 2;
// Errors beside those of errno.h, and their sign: functions return negative ones.
inline constexpr int kErrorAvailable = 259;
inline constexpr int kErrorTruncated = 265;

inline constexpr std::uint64_t kNoAddress = ~0ULL;

struct Fid;

struct FidOps {
  std::size_t size;
  int (*close)(Fid* fid);
  int (*bind)(Fid* fid, Fid* other, std::uint64_t flags);
  int (*control)(Fid* fid, int command, void* argument);
};

struct Fid {
  std::size_t fclass;
  void* context;
  FidOps* ops;
};

struct TxAttr {
  std::uint64_t caps, mode, op_flags, msg_order, comp_order;
  std::size_t inject_size, size, iov_limit;
};

struct RxAttr {
  std::uint64_t caps, mode, op_flags, msg_order, comp_order;
  std::size_t total_buffered_recv, size, iov_limit;
};

struct EpAttr {
  int type;
  std::uint32_t protocol, protocol_version;
  std::size_t max_msg_size;
};

struct DomainAttr {
  Fid* domain;
  char* name;
  int threading, control_progress, data_progress, resource_mgmt, av_type, mr_mode;
  std::size_t mr_key_size, cq_data_size;
};

struct FabricAttr {
  Fid* fabric;
  char* name;
  char* prov_name;
  std::uint32_t prov_version, api_version;
};

struct Info {
  Info* next;
  std::uint64_t caps, mode;
  std::uint32_t addr_format;
  std::size_t src_addrlen, dest_addrlen;
  void* src_addr;
  void* dest_addr;
  Fid* handle;
  TxAttr* tx_attr;
  RxAttr* rx_attr;
  EpAttr* ep_attr;
  DomainAttr* domain_attr;
  FabricAttr* fabric_attr;
};

struct CqAttr {
  std::size_t size;
  std::uint64_t flags;
  int format, wait_obj, signaling_vector, wait_cond;
  void* wait_set;
  std::array<std::uint64_t, 8> later;  // of newer libraries
};

struct AvAttr {
  int type, rx_ctx_bits;
  std::size_t count, ep_per_node;
  const char* name;
  void* map_addr;
  std::uint64_t flags;
  std::array<std::uint64_t, 8> later;
};

struct CqEntry {  // of kCqFormatData
  void* context;
  std::uint64_t flags;
  std::size_t length;
  void* buffer;
  std::uint64_t data;
};

struct CqError {
  void* context;
  std::uint64_t flags;
  std::size_t length;
  void* buffer;
  std::uint64_t data, tag;
  std::size_t overflow;
  int error, provider_error;
  void* error_data;
  std::size_t error_data_size;
  std::array<std::uint64_t, 8> later;
};

struct Fabric;
struct Domain;
struct Cq;
struct Av;
struct Ep;
struct Mr;

struct FabricOps {
  std::size_t size;
  int (*domain)(Fabric* fabric, Info* info, Domain** domain, void* context);
  void* passive_ep;
  void* eq_open;
  void* wait_open;
  int (*trywait)(Fabric* fabric, Fid** fids, int count);
};

struct Fabric {
  Fid fid;
  FabricOps* ops;
};

struct DomainOps {
  std::size_t size;
  int (*av_open)(Domain* domain, AvAttr* attr, Av** av, void* context);
  int (*cq_open)(Domain* domain, CqAttr* attr, Cq** cq, void* context);
  int (*endpoint)(Domain* domain, Info* info, Ep** ep, void* context);
};

struct MrOps {
  std::size_t size;
  int (*reg)(Fid* domain, const void* memory, std::size_t bytes, std::uint64_t access, std::uint64_t offset,
             std::uint64_t requested_key, std::uint64_t flags, Mr** mr, void* context);
};

struct Domain {
  Fid fid;
  DomainOps* ops;
  MrOps* mr;
};

struct Mr {
  Fid fid;
  void* descriptor;
  std::uint64_t key;
};

struct AvOps {
  std::size_t size;
  int (*insert)(Av* av, const void* addresses, std::size_t count, std::uint64_t* places, std::uint64_t flags,
                void* context);
};

struct Av {
  Fid fid;
  AvOps* ops;
};

struct CqOps {
  std::size_t size;
  ssize_t (*read)(Cq* cq, void* entries, std::size_t count);
  ssize_t (*readfrom)(Cq* cq, void* entries, std::size_t count, std::uint64_t* sources);
  ssize_t (*readerr)(Cq* cq, CqError* error, std::uint64_t flags);
};

struct Cq {
  Fid fid;
  CqOps* ops;
};

struct Message {
  const iovec* parts;
  void** descriptors;
  std::size_t count;
  std::uint64_t to;
  void* context;
  std::uint64_t data;
};

struct RemotePart {
  std::uint64_t address;
  std::size_t bytes;
  std::uint64_t key;
};

struct WriteMessage {
  const iovec* parts;
  void** descriptors;
  std::size_t count;
  std::uint64_t to;
  const RemotePart* remote;
  std::size_t remote_count;
  void* context;
  std::uint64_t data;
};

struct EpOps {
  std::size_t size;
  void* cancel;
  int (*getopt)(Fid* ep, int level, int option, void* value, std::size_t* bytes);
};

struct CmOps {
  std::size_t size;
  int (*setname)(Fid* ep, void* address, std::size_t bytes);
  int (*getname)(Fid* ep, void* address, std::size_t* bytes);
};

struct MsgOps {
  std::size_t size;
  ssize_t (*recv)(Ep* ep, void* memory, std::size_t bytes, void* descriptor, std::uint64_t from,
                  void* context);
  ssize_t (*recvv)(Ep* ep, const iovec* parts, void** descriptors, std::size_t count, std::uint64_t from,
                   void* context);
  ssize_t (*recvmsg)(Ep* ep, const Message* message, std::uint64_t flags);
  ssize_t (*send)(Ep* ep, const void* memory, std::size_t bytes, void* descriptor, std::uint64_t to,
                  void* context);
  ssize_t (*sendv)(Ep* ep, const iovec* parts, void** descriptors, std::size_t count, std::uint64_t to,
                   void* context);
  ssize_t (*sendmsg)(Ep* ep, const Message* message, std::uint64_t flags);
};

struct RmaOps {
  std::size_t size;
  void *read, *readv, *readmsg, *write, *writev;
  ssize_t (*writemsg)(Ep* ep, const WriteMessage* message, std::uint64_t flags);
};

struct Ep {
  Fid fid;
  EpOps* ops;
  CmOps* cm;
  MsgOps* msg;
  RmaOps* rma;
};

// Memory that the library may use as long as an operation with it is in progress (kContext, kContext2).
struct Context {
  std::array<void*, 8> internal;
};

}  // namespace smdp::fi
