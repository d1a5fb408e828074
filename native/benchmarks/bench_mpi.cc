// Open MPI, or whatever MPI the compiler wrapper brings.
#include <mpi.h>

#include "bench.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  bench::Library library;
  MPI_Comm_rank(MPI_COMM_WORLD, &library.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &library.size);
  library.all_reduce = [](void* data, std::size_t count) {
    MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  };
  library.barrier = [] { MPI_Barrier(MPI_COMM_WORLD); };
  std::vector<MPI_Request> begun;
  library.begin = [&](void* data, std::size_t count) {
    MPI_Iallreduce(MPI_IN_PLACE, data, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD,
                   &begun.emplace_back());
  };
  library.progress = [&] {  // it has no thread of its own for this
    int done = 0;
    MPI_Testall(static_cast<int>(begun.size()), begun.data(), &done, MPI_STATUSES_IGNORE);
    std::this_thread::sleep_for(bench::kLook);
  };
  library.finish = [&] {
    MPI_Waitall(static_cast<int>(begun.size()), begun.data(), MPI_STATUSES_IGNORE);
    begun.clear();
  };
  const int code = bench::run(library, argc, argv);
  MPI_Finalize();
  return code;
}
