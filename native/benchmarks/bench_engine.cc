// This engine, through its C interface.
#include <smdp/engine.h>

#include <string>
#include <thread>

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

// How long 4 KiB take while 25 MiB are under way in another group. Prints milliseconds of each.
void run_small_beside_bulk(smdp_group* bulk, smdp_group* small, int rank) {
  std::vector<float> large(25U << 18U, 1.0F);
  std::vector<float> little(1024, 1.0F);
  smdp_call call{};
  call.size = sizeof(call);
  call.collective = SMDP_ALL_REDUCE;
  for (int i = 0; i < 20; ++i) {
    smdp_call barrier{};
    barrier.collective = SMDP_BARRIER;
    call_and_wait(small, barrier);
    call.count = large.size();
    call.input = call.output = large.data();
    smdp_operation* operation = nullptr;
    smdp_error error{};
    must(smdp_submit(bulk, &call, &operation, &error), error);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    call.count = little.size();
    call.input = call.output = little.data();
    const auto began = std::chrono::steady_clock::now();
    call_and_wait(small, call);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
    const bool still = smdp_operation_test(operation) == 0;
    must(smdp_operation_wait(operation, -1, &error), error);
    smdp_operation_release(operation);
    if (rank == 0) {
      std::cout << took.count() << (still ? " ms, the bulk under way\n" : " ms, the bulk over\n")
                << std::flush;
    }
  }
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
  std::vector<smdp_operation*> begun;
  library.begin = [&](void* data, std::size_t count) {
    smdp_call call{};
    call.size = sizeof(call);
    call.collective = SMDP_ALL_REDUCE;
    call.dtype = dtype;
    call.count = count;
    call.input = call.output = data;
    must(smdp_submit(group, &call, &begun.emplace_back(), &error), error);
  };
  library.progress = [] { std::this_thread::sleep_for(bench::kLook); };
  library.finish = [&] {
    for (smdp_operation* operation : begun) {
      must(smdp_operation_wait(operation, -1, &error), error);
      smdp_operation_release(operation);
    }
    begun.clear();
  };
  int code = 0;
  if (argc == 2 && std::string(argv[1]) == "small-beside-bulk") {
    smdp_group* small = nullptr;
    must(smdp_group_create(engine, members.data(), library.size, "small", 300, &small, &error), error);
    run_small_beside_bulk(group, small, library.rank);
    smdp_group_destroy(small);
  } else {
    code = bench::run(library, argc, argv);
  }
  smdp_group_destroy(group);
  smdp_engine_close(engine);
  return code;
}
