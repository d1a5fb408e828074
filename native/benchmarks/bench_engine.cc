// This engine, through its C interface.
#include <smdp/engine.h>

#include <string>

#include "bench.h"

namespace {

int environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) {
    std::cerr << name << " is not set\n";
    std::exit(2);
  }
  return std::atoi(value);
}

void must(int code, const smdp_error& error) {
  if (code != SMDP_OK) {
    std::cerr << error.message << "\n";
    std::exit(1);
  }
}

int dtype_named(const std::string& name) {
  return name == "float32" ? SMDP_FLOAT32 : (name == "float16" ? SMDP_FLOAT16 : SMDP_BFLOAT16);
}

void call_and_wait(smdp_group* group, smdp_call call) {
  call.size = sizeof(call);
  call.blocking = 1;
  smdp_operation* operation = nullptr;
  smdp_error error{};
  must(smdp_submit(group, &call, &operation, &error), error);
  must(smdp_operation_wait(operation, -1, &error), error);
  smdp_operation_release(operation);
}

}  // namespace

int main(int argc, char** argv) {
  bench::Library library;
  library.rank = environment("RANK");
  library.size = environment("WORLD_SIZE");
  smdp_engine_config config{};
  config.size = sizeof(config);
  config.rank = library.rank;
  config.world_size = library.size;
  config.master = std::getenv("MASTER_ADDR");
  smdp_engine* engine = nullptr;
  smdp_error error{};
  must(smdp_engine_open(&config, &engine, &error), error);
  std::vector<int> members;
  for (int rank = 0; rank < library.size; ++rank) {
    members.push_back(rank);
  }
  smdp_group* group = nullptr;
  must(smdp_group_create(engine, members.data(), library.size, "bench", 300, &group, &error), error);
  const int dtype = argc == 3 ? dtype_named(argv[2]) : SMDP_FLOAT32;
  library.all_reduce = [&](void* data, std::size_t count) {
    smdp_call call{};
    call.collective = SMDP_ALL_REDUCE;
    call.dtype = dtype;
    call.count = count;
    call.input = call.output = data;
    call_and_wait(group, call);
  };
  library.barrier = [&] {
    smdp_call call{};
    call.collective = SMDP_BARRIER;
    call_and_wait(group, call);
  };
  const int code = bench::run(library, argc, argv);
  smdp_group_destroy(group);
  smdp_engine_close(engine);
  return code;
}
