// How long a job's sums take on a cluster that is described by its costs, whatever its size.
//
// The engine's own code decides what is sent and when: its plan, its windows and its budget. Only the bytes
// are missing. For comparison, a ring in the same network: the algorithm of NCCL and Gloo for large sums.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/options.h"
#include "costs.h"
#include "kernels/types.h"

namespace smdp::model {

struct Bucket {
  std::uint64_t bytes = 0;
  double ready_s = 0;  // since the backward pass began
};

struct Question {
  enum class Schedule : std::uint8_t { kEngine, kRing };

  int hosts = 2;
  int ranks_per_host = 8;
  Schedule schedule = Schedule::kEngine;
  DType dtype = DType::kFloat32;
  Options options;
  Costs costs;
  std::vector<Bucket> buckets;
};

struct Answer {
  double seconds = 0;               // from the begin until every rank has every sum
  std::vector<double> bucket_done;  // when its last rank has it
  double busiest_host_cpu_s = 0;    // of its processors together; 0 of a ring
  std::uint64_t messages = 0;       // between hosts
  std::uint64_t local_messages = 0;
  std::uint64_t wire_bytes = 0;  // out of all hosts together, without what the wire adds
  std::uint64_t hash = 0;        // of what happened: equal answers of equal questions
};

// An error where the engine refuses the question, or does not end.
Result<Answer> answer(const Question& question);

// Parses a question, with one key and its value per line:
//   hosts 8 | ranks_per_host 8 | schedule engine | dtype float32
//   cost NAME NUMBER | option SMDP_NAME VALUE | bucket BYTES READY_SECONDS
Result<Question> read_question(const std::string& text);
// As one JSON object.
std::string to_json(const Answer& answer);

}  // namespace smdp::model
