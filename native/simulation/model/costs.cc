#include "costs.h"

#include <array>
#include <cmath>

namespace smdp::model {
namespace {

constexpr std::array kCosts = {
    CostInfo{"link_rate", &Costs::link_rate, false},
    CostInfo{"wire_overhead", &Costs::wire_overhead, false},
    CostInfo{"link_latency", &Costs::link_latency},
    CostInfo{"link_quantum", &Costs::link_quantum, false},
    CostInfo{"link_burst", &Costs::link_burst},
    CostInfo{"cores", &Costs::cores, false},
    CostInfo{"cores_are_shared", &Costs::cores_are_shared},
    CostInfo{"wake", &Costs::wake},
    CostInfo{"send_frame", &Costs::send_frame},
    CostInfo{"send_byte", &Costs::send_byte},
    CostInfo{"receive_frame", &Costs::receive_frame},
    CostInfo{"receive_byte", &Costs::receive_byte},
    CostInfo{"local_frame", &Costs::local_frame},
    CostInfo{"hand_over", &Costs::hand_over},
    CostInfo{"copy_byte", &Costs::copy_byte},
    CostInfo{"fold_byte", &Costs::fold_byte},
    CostInfo{"memory_rate", &Costs::memory_rate},
    CostInfo{"ring_slice", &Costs::ring_slice},
    CostInfo{"ring_slice_bytes", &Costs::ring_slice_bytes, false},
    CostInfo{"ring_local_rate", &Costs::ring_local_rate, false},
    CostInfo{"ring_local_latency", &Costs::ring_local_latency},
};

}  // namespace

std::span<const CostInfo> cost_table() { return kCosts; }

Status set_cost(Costs& costs, std::string_view name, double value) {
  for (const CostInfo& info : kCosts) {
    if (info.name == name) {
      if (!std::isfinite(value) || value < 0 || (value == 0 && !info.may_be_zero)) {
        return {Code::kInvalid, std::string(name) + (info.may_be_zero ? " must be a number, 0 or more"
                                                                      : " must be a number above 0")};
      }
      costs.*info.field = value;
      return {};
    }
  }
  return {Code::kInvalid, "there is no cost " + std::string(name)};
}

}  // namespace smdp::model
