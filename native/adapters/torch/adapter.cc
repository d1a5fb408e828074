// The c10d backend "smddp": translates torch's calls into the engine's C interface, and nothing else.
//
// Threads. A collective is submitted on the caller's thread and returns a Work (work.h). The engine's thread
// reports its end; it must not take Python's lock, so separate threads complete futures
// (completer.h). A thread that waits does not depend on the tasks there.
//
// Ownership. One engine per process and rendezvous, shared by the groups of its job (session.h); a
// Work keeps its tensors until the engine is done with them. The only file that is compiled with torch's
// headers: they cost half a minute each time.
#include "../common/completer.h"
#include "backend.h"
#include "monitored_barrier.h"
#include "sparse.h"

namespace smdp_torch {
namespace {

c10::intrusive_ptr<c10d::Backend> create(const c10::intrusive_ptr<Store>& store, int rank, int size,
                                         std::vector<int> global_ranks, const std::string& name,
                                         std::chrono::milliseconds timeout, bool opens_engine) {
  TORCH_CHECK(smdp_abi_version() == SMDP_ABI_VERSION, "smddp: libsmdp_engine.so has interface version ",
              smdp_abi_version(), ", the adapter needs ", SMDP_ABI_VERSION, ": reinstall smdp-engine");
  return c10::make_intrusive<EngineBackend>(store, rank, size, std::move(global_ranks), name, timeout,
                                            opens_engine);
}

// Afterwards no thread of the adapter uses Python, torch or a device.
void retire() {
  Launcher::close_all();
  TaskThread::close_all();
  smdp_adapters::Completer::retire();
}

}  // namespace
}  // namespace smdp_torch

#if SMDP_TORCH_FROM(2, 6)
#include "c_interface.h"
#else
#include "python_module.h"
#endif
