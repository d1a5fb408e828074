// The engine's own declarations of libfabric (net/fabric/abi.h) against the public headers. Compiled where
// these are installed; the compiler makes the comparison.
#include <gtest/gtest.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext.h>
#include <rdma/fi_rma.h>

#include <cstddef>

#include "net/fabric/abi.h"

namespace smdp {
namespace {

#define SAME_FIELD(Ours, ours, Theirs, theirs)                                \
  static_assert(offsetof(fi::Ours, ours) == offsetof(struct Theirs, theirs)); \
  static_assert(sizeof(fi::Ours::ours) == sizeof(Theirs::theirs))

static_assert(fi::kMsg == FI_MSG && fi::kRecv == FI_RECV && fi::kSend == FI_SEND && fi::kSource == FI_SOURCE);
static_assert(fi::kRma == FI_RMA && fi::kWrite == FI_WRITE && fi::kRemoteWrite == FI_REMOTE_WRITE);
static_assert(fi::kRemoteCqData == FI_REMOTE_CQ_DATA);
static_assert(fi::kContext == FI_CONTEXT && fi::kContext2 == FI_CONTEXT2);
static_assert(fi::kMrLocal == FI_MR_LOCAL && fi::kMrVirtAddr == FI_MR_VIRT_ADDR);
static_assert(fi::kMrAllocated == FI_MR_ALLOCATED && fi::kMrProvKey == FI_MR_PROV_KEY);
static_assert(fi::kEpRdm == FI_EP_RDM && fi::kThreadDomain == FI_THREAD_DOMAIN);
static_assert(fi::kProgressManual == FI_PROGRESS_MANUAL && fi::kResourcesManaged == FI_RM_ENABLED);
static_assert(fi::kCqFormatData == FI_CQ_FORMAT_DATA && fi::kWaitNone == FI_WAIT_NONE);
static_assert(fi::kWaitFd == FI_WAIT_FD && fi::kGetWait == FI_GETWAIT);
static_assert(fi::kEnable == FI_ENABLE && fi::kNoAddress == FI_ADDR_UNSPEC);
static_assert(fi::kOptEndpoint == FI_OPT_ENDPOINT);
static_assert(fi::kOptEfaEmulatedWrite == FI_OPT_EFA_RNR_RETRY + 2);
static_assert(fi::kErrorAvailable == FI_EAVAIL && fi::kErrorTruncated == FI_ETRUNC && EAGAIN == FI_EAGAIN);

SAME_FIELD(Fid, ops, fid, ops);
SAME_FIELD(FidOps, close, fi_ops, close);
SAME_FIELD(FidOps, bind, fi_ops, bind);
SAME_FIELD(FidOps, control, fi_ops, control);
static_assert(sizeof(fi::Fid) == sizeof(struct fid));

SAME_FIELD(TxAttr, size, fi_tx_attr, size);
SAME_FIELD(TxAttr, iov_limit, fi_tx_attr, iov_limit);
SAME_FIELD(RxAttr, size, fi_rx_attr, size);
SAME_FIELD(EpAttr, type, fi_ep_attr, type);
SAME_FIELD(EpAttr, max_msg_size, fi_ep_attr, max_msg_size);
SAME_FIELD(DomainAttr, name, fi_domain_attr, name);
SAME_FIELD(DomainAttr, threading, fi_domain_attr, threading);
SAME_FIELD(DomainAttr, control_progress, fi_domain_attr, control_progress);
SAME_FIELD(DomainAttr, data_progress, fi_domain_attr, data_progress);
SAME_FIELD(DomainAttr, resource_mgmt, fi_domain_attr, resource_mgmt);
SAME_FIELD(DomainAttr, av_type, fi_domain_attr, av_type);
SAME_FIELD(DomainAttr, mr_mode, fi_domain_attr, mr_mode);
SAME_FIELD(DomainAttr, mr_key_size, fi_domain_attr, mr_key_size);
SAME_FIELD(DomainAttr, cq_data_size, fi_domain_attr, cq_data_size);
SAME_FIELD(FabricAttr, name, fi_fabric_attr, name);
SAME_FIELD(FabricAttr, prov_name, fi_fabric_attr, prov_name);
SAME_FIELD(Info, next, fi_info, next);
SAME_FIELD(Info, caps, fi_info, caps);
SAME_FIELD(Info, mode, fi_info, mode);
SAME_FIELD(Info, tx_attr, fi_info, tx_attr);
SAME_FIELD(Info, rx_attr, fi_info, rx_attr);
SAME_FIELD(Info, ep_attr, fi_info, ep_attr);
SAME_FIELD(Info, domain_attr, fi_info, domain_attr);
SAME_FIELD(Info, fabric_attr, fi_info, fabric_attr);

SAME_FIELD(CqAttr, size, fi_cq_attr, size);
SAME_FIELD(CqAttr, format, fi_cq_attr, format);
SAME_FIELD(CqAttr, wait_obj, fi_cq_attr, wait_obj);
SAME_FIELD(CqAttr, wait_set, fi_cq_attr, wait_set);
static_assert(sizeof(fi::CqAttr) >= sizeof(fi_cq_attr));
SAME_FIELD(AvAttr, type, fi_av_attr, type);
SAME_FIELD(AvAttr, count, fi_av_attr, count);
SAME_FIELD(AvAttr, flags, fi_av_attr, flags);
static_assert(sizeof(fi::AvAttr) >= sizeof(fi_av_attr));
SAME_FIELD(CqEntry, context, fi_cq_data_entry, op_context);
SAME_FIELD(CqEntry, flags, fi_cq_data_entry, flags);
SAME_FIELD(CqEntry, length, fi_cq_data_entry, len);
SAME_FIELD(CqEntry, data, fi_cq_data_entry, data);
static_assert(sizeof(fi::CqEntry) == sizeof(fi_cq_data_entry));
SAME_FIELD(CqError, context, fi_cq_err_entry, op_context);
SAME_FIELD(CqError, length, fi_cq_err_entry, len);
SAME_FIELD(CqError, error, fi_cq_err_entry, err);
SAME_FIELD(CqError, error_data_size, fi_cq_err_entry, err_data_size);
static_assert(sizeof(fi::CqError) >= sizeof(fi_cq_err_entry));

SAME_FIELD(Fabric, ops, fid_fabric, ops);
SAME_FIELD(FabricOps, domain, fi_ops_fabric, domain);
SAME_FIELD(FabricOps, trywait, fi_ops_fabric, trywait);
SAME_FIELD(Domain, ops, fid_domain, ops);
SAME_FIELD(Domain, mr, fid_domain, mr);
SAME_FIELD(DomainOps, av_open, fi_ops_domain, av_open);
SAME_FIELD(DomainOps, cq_open, fi_ops_domain, cq_open);
SAME_FIELD(DomainOps, endpoint, fi_ops_domain, endpoint);
SAME_FIELD(MrOps, reg, fi_ops_mr, reg);
SAME_FIELD(Mr, descriptor, fid_mr, mem_desc);
SAME_FIELD(Mr, key, fid_mr, key);
SAME_FIELD(Av, ops, fid_av, ops);
SAME_FIELD(AvOps, insert, fi_ops_av, insert);
SAME_FIELD(Cq, ops, fid_cq, ops);
SAME_FIELD(CqOps, read, fi_ops_cq, read);
SAME_FIELD(CqOps, readerr, fi_ops_cq, readerr);
SAME_FIELD(Ep, ops, fid_ep, ops);
SAME_FIELD(EpOps, getopt, fi_ops_ep, getopt);
SAME_FIELD(FabricAttr, api_version, fi_fabric_attr, api_version);
SAME_FIELD(Ep, cm, fid_ep, cm);
SAME_FIELD(Ep, msg, fid_ep, msg);
SAME_FIELD(Ep, rma, fid_ep, rma);
SAME_FIELD(RmaOps, writemsg, fi_ops_rma, writemsg);
SAME_FIELD(RemotePart, address, fi_rma_iov, addr);
SAME_FIELD(RemotePart, bytes, fi_rma_iov, len);
SAME_FIELD(RemotePart, key, fi_rma_iov, key);
static_assert(sizeof(fi::RemotePart) == sizeof(fi_rma_iov));
SAME_FIELD(WriteMessage, parts, fi_msg_rma, msg_iov);
SAME_FIELD(WriteMessage, descriptors, fi_msg_rma, desc);
SAME_FIELD(WriteMessage, count, fi_msg_rma, iov_count);
SAME_FIELD(WriteMessage, to, fi_msg_rma, addr);
SAME_FIELD(WriteMessage, remote, fi_msg_rma, rma_iov);
SAME_FIELD(WriteMessage, remote_count, fi_msg_rma, rma_iov_count);
SAME_FIELD(WriteMessage, context, fi_msg_rma, context);
SAME_FIELD(WriteMessage, data, fi_msg_rma, data);
static_assert(sizeof(fi::WriteMessage) == sizeof(fi_msg_rma));
SAME_FIELD(CmOps, getname, fi_ops_cm, getname);
SAME_FIELD(MsgOps, recv, fi_ops_msg, recv);
SAME_FIELD(MsgOps, sendmsg, fi_ops_msg, sendmsg);
SAME_FIELD(Message, parts, fi_msg, msg_iov);
SAME_FIELD(Message, descriptors, fi_msg, desc);
SAME_FIELD(Message, count, fi_msg, iov_count);
SAME_FIELD(Message, to, fi_msg, addr);
SAME_FIELD(Message, context, fi_msg, context);
SAME_FIELD(Message, data, fi_msg, data);
static_assert(sizeof(fi::Message) == sizeof(fi_msg));
static_assert(sizeof(fi::Context) == sizeof(fi_context2));

TEST(FabricAbi, IsThatOfThePublicHeaders) {
  EXPECT_GE(fi::version(FI_MAJOR_VERSION, FI_MINOR_VERSION), fi::version(1, 14));
}

}  // namespace
}  // namespace smdp
