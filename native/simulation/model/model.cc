#include "model.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <numeric>
#include <sstream>
#include <string_view>
#include <utility>

#include "charged_executor.h"
#include "conclude.h"
#include "counting_kernels.h"
#include "engine.h"
#include "networks.h"
#include "ring.h"
#include "world.h"

namespace smdp::model {
namespace {

constexpr double kHorizon = 3600;    // seconds in which every question is answered
constexpr std::size_t kPage = 4096;  // the least that an arena has

class EngineModel {
 public:
  explicit EngineModel(const Question& question);
  ~EngineModel();
  EngineModel(const EngineModel&) = delete;
  EngineModel& operator=(const EngineModel&) = delete;

  Result<Answer> run();

 private:
  Status open();
  Result<std::unique_ptr<Engine>> make(int rank, const Layout& layout, Arena arena);
  void submit(std::size_t bucket);

  const Question& question_;
  simulation::World world_{1, false};
  CountingKernels kernels_;
  Wires wires_;
  std::vector<int> host_of_;
  Networks networks_;
  std::vector<Processors> processors_;  // by machine, as the next
  std::vector<Memory> memories_;
  Arena buffer_;                                    // of all ranks, which touch none of it
  std::vector<std::span<const std::byte>> arenas_;  // by rank
  std::vector<std::unique_ptr<Engine>> engines_;
  std::uint64_t group_ = 0;
  TimePoint began_{};
  std::vector<std::size_t> left_;  // by bucket: ranks that do not have it
  std::size_t open_ = 0;           // buckets
  Answer answer_;
  Status failed_;
};

std::vector<int> hosts_of_ranks(const Question& question) {
  std::vector<int> host_of;
  for (int host = 0; host < question.hosts; ++host) {
    host_of.insert(host_of.end(), static_cast<std::size_t>(question.ranks_per_host), host);
  }
  return host_of;
}

std::uint64_t most_bytes(const Question& question) {
  std::uint64_t most = 0;
  for (const Bucket& bucket : question.buckets) {
    most = std::max(most, bucket.bytes);
  }
  return most;
}

EngineModel::EngineModel(const Question& question)
    : question_(question),
      kernels_(question.costs),
      wires_(world_, question.costs, question.hosts),
      host_of_(hosts_of_ranks(question)),
      networks_(world_, wires_, question.costs, host_of_),
      left_(question.buckets.size(), host_of_.size()),
      open_(question.buckets.size()) {
  const bool shared = question.costs.cores_are_shared != 0;
  processors_.assign(static_cast<std::size_t>(shared ? 1 : question.hosts),
                     Processors(std::max<std::size_t>(1, static_cast<std::size_t>(question.costs.cores))));
  memories_.assign(processors_.size(), Memory(world_, question.costs));
  answer_.bucket_done.resize(question.buckets.size());
}

EngineModel::~EngineModel() {
  for (const auto& engine : engines_) {
    engine->abandon();
  }
}

Result<std::unique_ptr<Engine>> EngineModel::make(int rank, const Layout& layout, Arena arena) {
  const auto index = static_cast<std::size_t>(rank);
  const auto host = static_cast<std::size_t>(host_of_[index]);
  const std::size_t machine = processors_.size() == 1 ? 0 : host;
  auto executor =
      std::make_unique<ChargedExecutor>(world_, processors_[machine], memories_[machine], question_.costs);
  EngineConfig config;
  config.identity.rank = rank;
  config.identity.world_size = static_cast<int>(host_of_.size());
  config.identity.build = "model";
  config.options = question_.options;
  config.options.flight_records = 0;
  config.options.copy_threads = std::max<std::int64_t>(0, question_.options.copy_threads);
  config.log = [](LogLevel, const std::string&) {};
  EngineParts parts;
  parts.layout = layout;
  const int first = host_of_[index] * question_.ranks_per_host;
  for (int peer = first; peer < first + question_.ranks_per_host; ++peer) {
    if (peer != rank) {
      parts.peer_arenas[peer] = arenas_[static_cast<std::size_t>(peer)];
    }
  }
  parts.local = networks_.local(*executor, rank);
  parts.network = networks_.network(*executor, rank);
  parts.kernels = &CountingKernels::set();
  parts.executor = std::move(executor);
  parts.arena = std::move(arena);
  return Engine::make(std::move(config), std::move(parts));
}

Status EngineModel::open() {
  auto buffer = Arena::reserve(most_bytes(question_) + kPage);
  if (!buffer.ok()) {
    return buffer.status();
  }
  buffer_ = std::move(*buffer);
  Layout layout;
  layout.host_of = host_of_;
  for (int host = 0; host < question_.hosts; ++host) {
    layout.host_names.push_back("algo-" + std::to_string(host + 1));
  }
  std::vector<int> members(host_of_.size());
  std::iota(members.begin(), members.end(), 0);
  std::vector<Arena> arenas;
  for (std::size_t rank = 0; rank < host_of_.size(); ++rank) {
    auto arena = Arena::reserve(static_cast<std::size_t>(question_.options.arena_mib) << 20U);
    if (!arena.ok()) {
      return arena.status();
    }
    arenas_.emplace_back(arena->bytes());
    arenas.push_back(std::move(*arena));
  }
  for (int rank = 0; std::cmp_less(rank, host_of_.size()); ++rank) {
    auto engine = make(rank, layout, std::move(arenas[static_cast<std::size_t>(rank)]));
    if (!engine.ok()) {
      return engine.status();
    }
    const auto group = (*engine)->create_group(members, "model", 0);
    if (!group.ok()) {
      return group.status();
    }
    group_ = *group;
    engines_.push_back(std::move(*engine));
  }
  return {};
}

void EngineModel::submit(std::size_t number) {
  const Bucket& bucket = question_.buckets[number];
  for (int rank = 0; std::cmp_less(rank, engines_.size()); ++rank) {
    Call call;
    call.what = {Collective::kAllReduce, question_.dtype, ReduceOp::kSum, 0,
                 bucket.bytes / size_of(question_.dtype)};
    call.input = call.output = buffer_.bytes().first(call.what.count * size_of(question_.dtype));
    call.handle = std::make_shared<OperationHandle>([this, number](const Status& status) {
      if (!status.ok() && failed_.ok()) {
        failed_ = status;
      }
      if (--left_[number] == 0) {
        answer_.bucket_done[number] = std::chrono::duration<double>(world_.now() - began_).count();
        --open_;
      }
    });
    const Status status = engines_[static_cast<std::size_t>(rank)]->submit(
        group_, static_cast<int>(engines_.size()), rank, std::move(call));
    if (!status.ok()) {
      failed_ = status;
    }
  }
}

Result<Answer> EngineModel::run() {
  if (Status status = open(); !status.ok()) {
    return status;
  }
  // The groups are made, and all is quiet.
  world_.after(seconds(0.5), [this] {
    began_ = world_.now();
    for (std::size_t bucket = 0; bucket < question_.buckets.size(); ++bucket) {
      world_.after(seconds(question_.buckets[bucket].ready_s), [this, bucket] { submit(bucket); });
    }
  });
  while (open_ > 0 && failed_.ok() && world_.age() < seconds(kHorizon) && world_.step()) {
  }
  if (!failed_.ok()) {
    return failed_;
  }
  if (open_ > 0) {
    return Status(Code::kTimeout, "the sums have not ended after an hour of the model's time");
  }
  for (const Processors& of_host : processors_) {
    answer_.busiest_host_cpu_s =
        std::max(answer_.busiest_host_cpu_s, std::chrono::duration<double>(of_host.busy()).count());
  }
  answer_.messages = networks_.messages();
  answer_.local_messages = networks_.local_messages();
  conclude(answer_, world_, wires_);
  return std::move(answer_);
}

// -- Questions as text --------------------------------------------------------------------------------------

const Status kBadValue(Code::kInvalid, "the value is missing or out of its bounds");

template <class T>
Status read_number(std::istream& words, T& number, T least, T most) {
  return words >> number && number >= least && number <= most ? Status() : kBadValue;
}

template <class T, std::size_t kChoices>
Status read_choice(std::istream& words, T& choice,
                   const std::array<std::pair<const char*, T>, kChoices>& choices) {
  std::string name;
  words >> name;
  for (const auto& [known, value] : choices) {
    if (name == known) {
      choice = value;
      return {};
    }
  }
  return kBadValue;
}

Status read_hosts(std::istream& words, Question& question) {
  return read_number(words, question.hosts, 1, 4096);
}

Status read_ranks(std::istream& words, Question& question) {
  return read_number(words, question.ranks_per_host, 1, 64);
}

Status read_schedule(std::istream& words, Question& question) {
  using Schedule = Question::Schedule;
  return read_choice(words, question.schedule,
                     std::array{std::pair{"engine", Schedule::kEngine}, std::pair{"ring", Schedule::kRing}});
}

Status read_dtype(std::istream& words, Question& question) {
  return read_choice(words, question.dtype,
                     std::array{std::pair{"float32", DType::kFloat32}, std::pair{"float16", DType::kFloat16},
                                std::pair{"bfloat16", DType::kBFloat16}});
}

Status read_cost(std::istream& words, Question& question) {
  std::string name;
  double value = 0;
  return words >> name >> value ? set_cost(question.costs, name, value) : kBadValue;
}

Status read_option(std::istream& words, Question& question) {
  std::string name;
  std::string value;
  return words >> name >> value ? set_option(question.options, name, value) : kBadValue;
}

Status read_bucket(std::istream& words, Question& question) {
  constexpr std::uint64_t kMost = 1ULL << 40U;
  constexpr std::uint64_t kElement = 8;  // so that every type divides it
  Bucket bucket;
  Status status = read_number<std::uint64_t>(words, bucket.bytes, kElement, kMost);
  if (status.ok()) {
    status = read_number(words, bucket.ready_s, 0.0, kHorizon);
  }
  question.buckets.push_back(bucket);
  return status.ok() && bucket.bytes % kElement != 0 ? kBadValue : status;
}

using ReadLine = Status (*)(std::istream& words, Question& question);
constexpr std::array kKeywords = {
    std::pair<std::string_view, ReadLine>{"hosts", read_hosts},
    std::pair<std::string_view, ReadLine>{"ranks_per_host", read_ranks},
    std::pair<std::string_view, ReadLine>{"schedule", read_schedule},
    std::pair<std::string_view, ReadLine>{"dtype", read_dtype},
    std::pair<std::string_view, ReadLine>{"cost", read_cost},
    std::pair<std::string_view, ReadLine>{"option", read_option},
    std::pair<std::string_view, ReadLine>{"bucket", read_bucket},
};

Status read_line(const std::string& line, Question& question) {
  std::istringstream words(line);
  std::string keyword;
  if (!(words >> keyword)) {
    return {};  // an empty line
  }
  const auto* const found = std::ranges::find(kKeywords, keyword, &decltype(kKeywords)::value_type::first);
  const Status status =
      found == kKeywords.end() ? Status(Code::kInvalid, "unknown keyword") : found->second(words, question);
  return status.ok() ? status : Status(Code::kInvalid, "'" + line + "': " + status.message());
}

}  // namespace

void conclude(Answer& answer, simulation::World& world, const Wires& wires) {
  for (const double done : answer.bucket_done) {
    answer.seconds = std::max(answer.seconds, done);
    world.note(0, static_cast<std::uint64_t>(done * 1e9), [] { return std::string(); });
  }
  answer.wire_bytes = wires.bytes();
  answer.hash = world.hash();
}

Result<Answer> answer(const Question& question) {
  if (question.schedule == Question::Schedule::kRing) {
    return ring(question);
  }
  return EngineModel(question).run();
}

Result<Question> read_question(const std::string& text) {
  Question question;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (Status status = read_line(line, question); !status.ok()) {
      return status;
    }
  }
  if (question.buckets.empty()) {
    return Status(Code::kInvalid, "the question has no bucket");
  }
  return question;
}

std::string to_json(const Answer& answer) {
  std::string text = "{\"seconds\": ";
  char number[64];  // NOLINT(modernize-avoid-c-arrays)
  const auto add = [&](double value) {
    std::snprintf(number, sizeof(number), "%.9g", value);
    text += number;
  };
  add(answer.seconds);
  text += ", \"bucket_done\": [";
  for (std::size_t bucket = 0; bucket < answer.bucket_done.size(); ++bucket) {
    text += bucket == 0 ? "" : ", ";
    add(answer.bucket_done[bucket]);
  }
  text += "], \"busiest_host_cpu_s\": ";
  add(answer.busiest_host_cpu_s);
  std::snprintf(number, sizeof(number), "%016llx", static_cast<unsigned long long>(answer.hash));
  text += ", \"messages\": " + std::to_string(answer.messages) +
          ", \"local_messages\": " + std::to_string(answer.local_messages) +
          ", \"wire_bytes\": " + std::to_string(answer.wire_bytes) + ", \"hash\": \"" + number + "\"}";
  return text;
}

}  // namespace smdp::model
