// A ring of all ranks, host after host: what NCCL and Gloo do with large sums.
//
// Each rank sends a part of the buffer to the next and adds what comes from the one before, until every part
// went around once; then the sums go around. A part travels in slices, so that all ranks are at work at once.
// One buffer after the other, as a stream of one communicator has it.
#pragma once

#include "model.h"

namespace smdp::model {

Result<Answer> ring(const Question& question);

}  // namespace smdp::model
