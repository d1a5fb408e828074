// The adapter for torch before 2.6 as a module of one Python: torch 2.0 has no registry of process
// groups, through which a backend in C++ gets its object in Python (c_interface.h).
#pragma once

#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include "backend.h"

namespace smdp_torch {

inline c10::intrusive_ptr<c10d::Work> average_named(const c10::intrusive_ptr<c10d::Backend>& backend,
                                                    const at::Tensor& buffer, const std::string& lane,
                                                    uint32_t step, uint32_t index, uint32_t buffers) {
  const auto ours = c10::dynamic_intrusive_pointer_cast<EngineBackend>(backend);
  TORCH_CHECK(ours, "smddp: the process group's backend is '", backend->getBackendName(), "', not smddp");
  return ours->average_named(buffer, {lane, step, index, buffers});
}

}  // namespace smdp_torch

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  using pybind11::arg;
  const auto unlocked = pybind11::call_guard<pybind11::gil_scoped_release>();
  module.def("create", &smdp_torch::create, arg("store"), arg("rank"), arg("size"), arg("global_ranks"),
             arg("name"), arg("timeout"), arg("is_default"), unlocked);
  module.def("average_named", &smdp_torch::average_named, arg("backend"), arg("buffer"), arg("lane"),
             arg("step"), arg("index"), arg("buffers"), unlocked);
  module.def("retire", &smdp_torch::retire, unlocked);
  module.def("abandon", &smdp_torch::abandon_session, unlocked);
  module.def("dump", &smdp_torch::dump_session, arg("folder"), unlocked);
  module.attr("built_for") = SMDP_TORCH_BUILT_FOR;
}
