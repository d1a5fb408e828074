// The adapter for torch before 2.6 as a module of one Python: torch 2.0 has no registry of process
// groups, through which a backend in C++ gets its object in Python (c_interface.h).
#pragma once

#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "backend.h"

namespace smdp_torch {

inline EngineBackend& own(const c10::intrusive_ptr<c10d::Backend>& backend) {
  const auto ours = cast_to<EngineBackend>(backend);
  TORCH_CHECK(ours, "smddp: the process group's backend is '", backend->getBackendName(), "', not smddp");
  return *ours;
}

inline c10::intrusive_ptr<c10d::Work> average_named(const c10::intrusive_ptr<c10d::Backend>& backend,
                                                    const at::Tensor& buffer, const std::string& lane,
                                                    uint32_t step, uint32_t index, uint32_t buffers) {
  return own(backend).average_named(buffer, {lane, step, index, buffers});
}

inline std::pair<std::vector<int>, std::string> hosts(const c10::intrusive_ptr<c10d::Backend>& backend) {
  return {own(backend).host_of(), own(backend).local_reducer()};
}

inline void reduce_within_host(const c10::intrusive_ptr<c10d::Backend>& backend, const std::string& reducer,
                               const std::optional<c10::intrusive_ptr<c10d::Backend>>& scatter,
                               const std::optional<c10::intrusive_ptr<c10d::Backend>>& gather,
                               const std::optional<std::string>& device) {
  const c10::intrusive_ptr<c10d::Backend> none;
  own(backend).reduce_within_host(reducer, scatter.value_or(none), gather.value_or(none),
                                  device ? std::optional(c10::Device(*device).type()) : std::nullopt);
}

}  // namespace smdp_torch

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  using pybind11::arg;
  const auto unlocked = pybind11::call_guard<pybind11::gil_scoped_release>();
  module.def("create", &smdp_torch::create, arg("store"), arg("rank"), arg("size"), arg("global_ranks"),
             arg("name"), arg("timeout"), arg("opens_engine"), unlocked);
  module.def("average_named", &smdp_torch::average_named, arg("backend"), arg("buffer"), arg("lane"),
             arg("step"), arg("index"), arg("buffers"), unlocked);
  module.def("hosts", &smdp_torch::hosts, arg("backend"), unlocked);
  module.def("reduce_within_host", &smdp_torch::reduce_within_host, arg("backend"), arg("reducer"),
             arg("scatter"), arg("gather"), arg("device"), unlocked);
  module.def("retire", &smdp_torch::retire, unlocked);
  module.def("abandon", &smdp_torch::abandon_sessions, unlocked);
  module.def("depart", &smdp_torch::depart_sessions, unlocked);
  module.def("dump", &smdp_torch::dump_session, arg("folder"), unlocked);
  module.attr("built_for") = SMDP_TORCH_BUILT_FOR;
}
