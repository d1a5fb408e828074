// The fuzz targets. Each takes one input. An exception of type Refuted, a crash and a report of a sanitizer
// are failures.
#pragma once

#include <cstddef>
#include <span>

namespace smdp::fuzzing {

// Frames from a peer, in pieces of any size, and frames to it: StreamTransport, Stream, frame.
void fuzz_frame(std::span<const std::byte> input);
// The hello on both sides: Handshaker with ranks and unauthenticated clients, with the job's token and
// without.
void fuzz_hello(std::span<const std::byte> input);
// Rendezvous::meet() and the exchanges after it, on rank 0 and on another rank, with a store and without.
void fuzz_rendezvous(std::span<const std::byte> input);

}  // namespace smdp::fuzzing
