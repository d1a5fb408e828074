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
  const int code = bench::run(library, argc, argv);
  MPI_Finalize();
  return code;
}
