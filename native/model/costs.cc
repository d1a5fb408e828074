#include "costs.h"

#include <array>
#include <cmath>

namespace smdp::model {
namespace {

constexpr std::array kCosts = {
    CostInfo{"link_rate", &Costs::link_rate},
    CostInfo{"wire_overhead", &Costs::wire_overhead},
    CostInfo{"link_latency", &Costs::link_latency},
    CostInfo{"link_quantum", &Costs::link_quantum},
    CostInfo{"link_burst", &Costs::link_burst},
    CostInfo{"cores", &Costs::cores},
    CostInfo{"cores_are_shared", &Costs::cores_are_shared},
    CostInfo{"wake", &Costs::wake},
    CostInfo{"send_frame", &Costs::send_frame},
    CostInfo{"send_byte", &Costs::send_byte},
    CostInfo{"receive_frame", &Costs::receive_frame},
    CostInfo{"receive_byte", &Costs::receive_byte},
    CostInfo{"local_frame", &Costs::local_frame},
    CostInfo{"copy_byte", &Costs::copy_byte},
    CostInfo{"fold_byte", &Costs::fold_byte},
    CostInfo{"ring_slice", &Costs::ring_slice},
    CostInfo{"ring_slice_bytes", &Costs::ring_slice_bytes},
    CostInfo{"ring_local_rate", &Costs::ring_local_rate},
    CostInfo{"ring_local_latency", &Costs::ring_local_latency},
};

}  // namespace

std::span<const CostInfo> cost_table() { return kCosts; }

Status set_cost(Costs& costs, std::string_view name, double value) {
  for (const CostInfo& info : kCosts) {
    if (info.name == name) {
      if (!std::isfinite(value) || value < 0) {
        return {Code::kInvalid, std::string(name) + ": must be a number, 0 or more"};
      }
      costs.*info.field = value;
      return {};
    }
  }
  return {Code::kInvalid, std::string(name) + ": no such cost"};
}

}  // namespace smdp::model
