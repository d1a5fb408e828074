// The c10d backend "smddp": translates torch's calls into the engine's C interface, and nothing else.
//
// Threads. A collective is submitted on the caller's thread and returns a Work (work.h). The engine's thread
// reports its end; it must not take Python's lock, so separate threads complete futures
// (completer.h). A thread that waits does not depend on the tasks there.
//
// Ownership. One engine per process and rendezvous, shared by all groups whose ranks it covers (session.h); a
// Work keeps its tensors until the engine is done with them. The only file that is compiled with torch's
// headers: they cost half a minute each time.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include "../common/completer.h"
#include "backend.h"
#include "monitored_barrier.h"
#include "sparse.h"

namespace smdp_torch {
namespace {

c10::intrusive_ptr<c10d::Backend> create(const c10::intrusive_ptr<Store>& store, int rank, int size,
                                         std::vector<int> global_ranks, const std::string& name,
                                         std::chrono::milliseconds timeout, bool is_default) {
  TORCH_CHECK(smdp_abi_version() == SMDP_ABI_VERSION, "smddp: libsmdp_engine.so has interface version ",
              smdp_abi_version(), ", the adapter needs ", SMDP_ABI_VERSION, ": reinstall smdp-engine");
  return c10::make_intrusive<EngineBackend>(store, rank, size, std::move(global_ranks), name, timeout,
                                            is_default);
}

c10::intrusive_ptr<c10d::Work> average_named(const c10::intrusive_ptr<c10d::Backend>& backend,
                                             const at::Tensor& buffer, const std::string& lane, uint32_t step,
                                             uint32_t index, uint32_t buffers) {
  const auto ours = c10::dynamic_intrusive_pointer_cast<EngineBackend>(backend);
  TORCH_CHECK(ours, "smddp: the process group's backend is '", backend->getBackendName(), "', not smddp");
  return ours->average_named(buffer, lane, step, index, buffers);
}

// Afterwards no thread of the adapter uses Python, torch or a device.
void retire() {
  Launcher::close_all();
  smdp_adapters::Completer::retire();
}

}  // namespace
}  // namespace smdp_torch

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("create", &smdp_torch::create, pybind11::arg("store"), pybind11::arg("rank"),
             pybind11::arg("size"), pybind11::arg("global_ranks"), pybind11::arg("name"),
             pybind11::arg("timeout"), pybind11::arg("is_default"),
             pybind11::call_guard<pybind11::gil_scoped_release>());
  module.def("average_named", &smdp_torch::average_named, pybind11::arg("backend"), pybind11::arg("buffer"),
             pybind11::arg("lane"), pybind11::arg("step"), pybind11::arg("index"), pybind11::arg("buffers"),
             pybind11::call_guard<pybind11::gil_scoped_release>());
  module.def("retire", &smdp_torch::retire, pybind11::call_guard<pybind11::gil_scoped_release>());
  module.def("abandon", &smdp_torch::abandon_session, pybind11::call_guard<pybind11::gil_scoped_release>());
  module.def("dump", &smdp_torch::dump_session, pybind11::arg("folder"),
             pybind11::call_guard<pybind11::gil_scoped_release>());
  module.attr("built_for") = SMDP_TORCH_BUILT_FOR;
}
