// Gloo without PyTorch above it, as PyTorch calls it: what PyTorch itself costs is the difference.
//
// GLOO_STORE names a folder that all ranks see, empty at first.
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <memory>

#include "bench.h"

int main(int argc, char** argv) {
  const auto number = [](const char* name) { return std::stoi(std::getenv(name)); };
  gloo::rendezvous::FileStore store(std::getenv("GLOO_STORE"));
  gloo::transport::tcp::attr interface;
  interface.iface = std::getenv("GLOO_SOCKET_IFNAME");
  auto device = gloo::transport::tcp::CreateDevice(interface);
  const auto context = std::make_shared<gloo::rendezvous::Context>(number("RANK"), number("WORLD_SIZE"));
  context->connectFullMesh(store, device);

  bench::Library library;
  library.rank = context->rank;
  library.size = context->size;
  library.all_reduce = [&](void* data, std::size_t count) {
    gloo::AllreduceOptions options(context);
    options.setOutput(static_cast<float*>(data), count);
    options.setReduceFunction([](void* to, const void* one, const void* other, std::size_t elements) {
      gloo::sum<float>(to, one, other, elements);
    });
    gloo::allreduce(options);
  };
  library.barrier = [&] {
    gloo::BarrierOptions options(context);
    gloo::barrier(options);
  };
  return bench::run(library, argc, argv);
}
