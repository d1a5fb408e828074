// What is fuzzed. Each takes one input; a Refuted that comes out of it, a crash and a sanitizer's report are
// findings.
#pragma once

#include <cstddef>
#include <span>

namespace smdp::fuzzing {

// Bytes of frames as they arrive from a peer, in any pieces, and what is sent to it: StreamTransport, Stream,
// frame.
void fuzz_frame(std::span<const std::byte> input);
// The hello on both sides: Greeter among strangers and ranks, with the job's token and without.
void fuzz_hello(std::span<const std::byte> input);
// Rendezvous::meet() and what follows, on rank 0 and on another, with a store and without.
void fuzz_rendezvous(std::span<const std::byte> input);

}  // namespace smdp::fuzzing
