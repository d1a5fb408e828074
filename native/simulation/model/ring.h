// A ring of all ranks, host after host: what NCCL and Gloo do with large sums.
//
// Each rank sends a part of the buffer to the next rank and adds the part from the previous one, until every
// part has passed all ranks; then the sums pass all ranks. Parts are sent in slices, so that all ranks work
// at once. Buffers follow one another, as on the stream of one communicator.
#pragma once

#include "model.h"

namespace smdp::model {

Result<Answer> ring(const Question& question);

}  // namespace smdp::model
