// What every contender's program shares, so that all are timed alike: the cases, the data, the clock, the
// report.
//
//   program CASE:ITERATIONS[,CASE:ITERATIONS...] DTYPE
//
// A case is the bytes of one sum, or @FILE: buckets of a backward pass, one "BYTES MICROSECONDS" a line, each
// summed from when it is ready on; the time is that from the beginning of the pass to the end of the last
// sum.
//
// Each iteration: the buffer gets its values again, all ranks meet at a barrier, and the in-place sum is
// timed on each rank; then it pauses, so that a rank that is done takes no processor from one that is not:
// there are more ranks than processors here, and the next iteration's values are no part of the sum. The
// values are small whole numbers, so their sum is exact in every type and order, and
// the last result is checked after timing.
#pragma once

#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace bench {

constexpr std::chrono::milliseconds kPause{20};
constexpr std::chrono::microseconds kLook{200};  // between two looks whether a bucket is ready

struct Bucket {
  std::size_t bytes = 0;
  std::chrono::microseconds ready{0};
};

struct Case {
  std::size_t bytes = 0;
  int iterations = 0;
  std::vector<Bucket> buckets;  // empty: one sum
};

inline std::vector<Bucket> read_buckets(const std::string& path) {
  std::vector<Bucket> buckets;
  std::ifstream file(path);
  std::size_t bytes = 0;
  for (long ready_us = 0; file >> bytes >> ready_us;) {
    buckets.push_back({bytes, std::chrono::microseconds(ready_us)});
  }
  return buckets;
}

inline Case parse_case(const std::string& word) {
  const auto colon = word.rfind(':');
  Case one;
  one.iterations = std::stoi(word.substr(colon + 1));
  if (!word.starts_with('@')) {
    one.bytes = std::stoul(word.substr(0, colon));
    return one;
  }
  one.buckets = read_buckets(word.substr(1, colon - 1));
  for (const Bucket& bucket : one.buckets) {
    one.bytes += bucket.bytes;
  }
  return one;
}

inline std::vector<Case> parse_cases(const std::string& text) {
  std::vector<Case> cases;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, ',');) {
    cases.push_back(parse_case(word));
  }
  return cases;
}

// The whole number k in -4..4 as an element: float32, float16 or bfloat16 by its width and name.
inline std::uint32_t element_of(int k, const std::string& dtype) {
  const auto value = static_cast<float>(k);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  if (dtype == "float32") {
    return bits;
  }
  if (dtype == "bfloat16") {
    return bits >> 16U;
  }
  const std::uint32_t sign = (bits >> 16U) & 0x8000U;
  const std::uint32_t exponent = (bits >> 23U) & 0xffU;
  return exponent == 0 ? sign : sign | ((exponent - 112U) << 10U) | ((bits >> 13U) & 0x3ffU);
}

inline int value_of(int rank, std::size_t index) {
  return static_cast<int>(((index * 2654435761U + static_cast<std::size_t>(rank) * 40503U) >> 7U) % 9U) - 4;
}

// `whose`: RUSAGE_SELF, the process; or RUSAGE_THREAD.
inline double cpu_seconds(int whose = RUSAGE_SELF) {
  rusage usage{};
  getrusage(whose, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Proportional share of this process's memory, in KiB.
inline long pss_kib() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string word; file >> word;) {
    if (word == "Pss:") {
      long value = 0;
      file >> value;
      return value;
    }
  }
  return -1;
}

struct Library {
  int rank = 0;
  int size = 1;
  std::function<void(void* data, std::size_t count)> all_reduce;
  std::function<void()> barrier;
  // For buckets: begins a sum; lets the running ones progress while nothing is ready; ends all of them.
  std::function<void(void* data, std::size_t count)> begin;
  std::function<void()> progress;
  std::function<void()> finish;
};

class Buffer {
 public:
  Buffer(const Library& library, std::size_t bytes, const std::string& dtype)
      : library_(library), dtype_(dtype), width_(dtype == "float32" ? 4 : 2), original_(bytes), data_(bytes) {
    for (std::size_t i = 0; i < count(); ++i) {
      const std::uint32_t element = element_of(value_of(library.rank, i), dtype);
      std::memcpy(original_.data() + i * width_, &element, width_);
    }
  }
  [[nodiscard]] std::size_t count() const { return original_.size() / width_; }
  void refill() { std::memcpy(data_.data(), original_.data(), data_.size()); }
  void* data() { return data_.data(); }
  [[nodiscard]] std::size_t width() const { return width_; }
  [[nodiscard]] bool is_sum() const {
    for (std::size_t i = 0; i < count(); ++i) {
      int sum = 0;
      for (int rank = 0; rank < library_.size; ++rank) {
        sum += value_of(rank, i);
      }
      const std::uint32_t want = element_of(sum, dtype_);
      std::uint32_t got = 0;
      std::memcpy(&got, data_.data() + i * width_, width_);
      if (got != want) {
        return false;
      }
    }
    return true;
  }

 private:
  const Library& library_;
  std::string dtype_;
  std::size_t width_;
  std::vector<char> original_;
  std::vector<char> data_;
};

inline void run_buckets(const Library& library, const std::vector<Bucket>& buckets, Buffer& buffer) {
  const auto began = std::chrono::steady_clock::now();
  auto* data = static_cast<char*>(buffer.data());
  for (const Bucket& bucket : buckets) {
    while (std::chrono::steady_clock::now() < began + bucket.ready) {
      library.progress();
    }
    library.begin(data, bucket.bytes / buffer.width());
    data += bucket.bytes;
  }
  library.finish();
}

inline void run_case(const Library& library, const Case& one, const std::string& dtype) {
  Buffer buffer(library, one.bytes, dtype);
  std::vector<double> seconds;
  double cpu = 0;
  const int warm_up = one.buckets.empty() ? 2 + one.iterations / 10 : 1;
  for (int i = -warm_up; i < one.iterations; ++i) {
    buffer.refill();
    library.barrier();
    const double cpu_before = cpu_seconds();
    const auto began = std::chrono::steady_clock::now();
    if (one.buckets.empty()) {
      library.all_reduce(buffer.data(), buffer.count());
    } else {
      run_buckets(library, one.buckets, buffer);
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    if (i >= 0) {
      seconds.push_back(took.count());
      cpu += cpu_seconds() - cpu_before;
    }
    std::this_thread::sleep_for(kPause);
  }
  std::ostringstream line;
  line << "{\"rank\": " << library.rank << ", \"bytes\": " << one.bytes << ", \"cpu_s\": " << cpu
       << ", \"sums\": " << warm_up + one.iterations << ", \"pss_kib\": " << pss_kib()
       << ", \"correct\": " << (buffer.is_sum() ? "true" : "false") << ", \"seconds\": [";
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    line << (i == 0 ? "" : ", ") << seconds[i];
  }
  line << "]}\n";
  std::cout << line.str() << std::flush;
}

inline int run(const Library& library, int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: " << argv[0] << " CASE:ITERATIONS,... DTYPE\n";
    return 2;
  }
  for (const Case& one : parse_cases(argv[1])) {
    run_case(library, one, argv[2]);
  }
  return 0;
}

}  // namespace bench
