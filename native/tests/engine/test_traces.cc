// Flight records, phases and timelines: their contents, and that they are complete.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "cluster.h"
#include "trace/counters.h"
#include "trace/file.h"
#include "trace/flight/flight_dump.h"
#include "trace/phases.h"
#include "trace/text.h"
#include "trace/timeline/clock_offset.h"
#include "trace/timeline/timeline_file.h"

namespace smdp::testing {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    static int made = 0;
    path_ = fs::temp_directory_path() /
            ("smdp-traces-" + std::to_string(::getpid()) + "-" + std::to_string(made++));
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  [[nodiscard]] std::string text() const { return path_.string(); }
  [[nodiscard]] std::set<std::string> names() const {
    std::set<std::string> all;
    for (const auto& entry : fs::directory_iterator(path_)) {
      all.insert(entry.path().filename().string());
    }
    return all;
  }
  [[nodiscard]] std::string content(const std::string& name) const {
    std::ifstream file(path_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  fs::path path_;
};

std::shared_ptr<const TracedGroup> some_group() {
  return std::make_shared<TracedGroup>(TracedGroup{7, "world", {0, 1}});
}

TEST(FlightRecorder, KeepsTheLastRecordsAndDropsTheOthers) {
  FlightRecorder recorder(3);
  const auto group = some_group();
  for (std::uint64_t i = 0; i < 8; ++i) {
    const std::uint64_t id = recorder.add(group, 100 + i, {}, Clock::now(), Clock::now());
    EXPECT_EQ(id, i);
    recorder.find(id)->error = "error of " + std::to_string(i);
    recorder.find(id)->state = FlightRecord::State::kFailed;
  }
  EXPECT_EQ(recorder.find(4), nullptr);
  EXPECT_EQ(recorder.find(8), nullptr);
  EXPECT_EQ(recorder.find(6)->operation, 106U);
  const std::uint64_t fresh = recorder.add(group, 200, {}, Clock::now(), Clock::now());
  EXPECT_EQ(recorder.find(fresh)->error, "");
  EXPECT_EQ(recorder.find(fresh)->state, FlightRecord::State::kScheduled);
  std::vector<std::uint64_t> ids;
  for (const FlightRecord* record : recorder.records()) {
    ids.push_back(record->id);
    EXPECT_EQ(record->operation, record->id == fresh ? 200 : 100 + record->id);
  }
  EXPECT_EQ(ids, (std::vector<std::uint64_t>{6, 7, 8}));
}

TEST(FlightRecorder, WithCapacityZeroKeepsNothing) {
  FlightRecorder recorder(0);
  const std::uint64_t id = recorder.add(some_group(), 1, {}, Clock::now(), Clock::now());
  EXPECT_EQ(recorder.find(id), nullptr);
  EXPECT_TRUE(recorder.records().empty());
}

TEST(TraceText, AnyNameBecomesValidText) {
  EXPECT_EQ(clean_utf8("caf\xc3\xa9 \xf0\x9f\x90\x8c"), "caf\xc3\xa9 \xf0\x9f\x90\x8c");
  EXPECT_EQ(clean_utf8("\xff|\xc3|\xed\xa0\x80|\xc0\xaf"),
            "\xef\xbf\xbd|\xef\xbf\xbd|\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd|\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(json_quoted("a\"b\\c\n\x7f\xff"), "\"a\\\"b\\\\c\\u000a\\u007f\xef\xbf\xbd\"");
  EXPECT_EQ(json_quoted(std::string_view("\0", 1)), "\"\\u0000\"");
}

TEST(Phases, TheirTimesAddUpToTheOperations) {
  using std::chrono::milliseconds;
  const TimePoint begin = Clock::now();
  Phases phases;
  phases.begin(2, 2, begin);
  phases.expect_local(1);
  phases.expect_host(1);
  phases.heard_local(1, 5, begin + milliseconds(20));
  phases.heard_host(1, 9, begin + milliseconds(50));
  phases.work_on(Phase::kCopy, begin + milliseconds(90));
  phases.rest(begin + milliseconds(95));
  phases.end(begin + milliseconds(100));
  const PhaseTimes expected = {milliseconds(20), milliseconds(30), milliseconds(45), milliseconds(5),
                               milliseconds(0)};
  EXPECT_EQ(phases.totals(), expected);
  EXPECT_EQ(phases.last_heard(), 9);
  EXPECT_EQ(phases.until_last_heard(), milliseconds(50));
  std::vector<Phase> bars;
  for (const Phases::Stretch& stretch : phases.stretches()) {
    bars.push_back(stretch.main());
  }
  EXPECT_EQ(bars,
            (std::vector{Phase::kWaitLocal, Phase::kWaitHosts, Phase::kWire, Phase::kCopy, Phase::kWire}));
}

TEST(Phases, ALongOperationOfManyPiecesHasFewBarsWithoutAGap) {
  using std::chrono::microseconds;
  const TimePoint begin = Clock::now();
  Phases phases;
  phases.begin(1, 1, begin);
  TimePoint at = begin;
  for (int piece = 0; piece < 100'000; ++piece) {
    phases.work_on(piece % 2 == 0 ? Phase::kCopy : Phase::kReduce, at += microseconds(3));
    phases.rest(at += microseconds(2));
  }
  phases.end(at);
  EXPECT_LT(phases.stretches().size(), 500U);
  TimePoint until = begin;
  for (const Phases::Stretch& stretch : phases.stretches()) {
    EXPECT_EQ(stretch.begin, until);
    until = stretch.end;
  }
  EXPECT_EQ(until, at);
}

TEST(ClockOffset, TheQuickestAnswerCounts) {
  ClockOffset offset;
  offset.add(1000, 51'000, 3000);  // wrong by up to 1,000
  offset.add(5000, 55'050, 5100);
  offset.add(9000, 60'000, 10'000);
  offset.add(9000, 60'000, 8000);  // before the request: not an answer
  EXPECT_EQ(offset.answers(), 3);
  EXPECT_EQ(offset.best()->ahead.count(), 50'000);
  EXPECT_EQ(offset.best()->error.count(), 51);
}

TEST(TimelineFile, IsAnArrayThatEndsAtItsLimit) {
  const Folder folder;
  {
    auto file = TimelineFile::create(folder.text(), 3, 100);
    ASSERT_TRUE(file.ok());
    (*file)->post([](TimelineFile& to) {
      const std::string event = "{\"name\":\"" + std::string(30, 'x') + "\"}";
      EXPECT_TRUE(to.add(event));
      EXPECT_TRUE(to.add(event));
      EXPECT_TRUE(to.add(event));
    });
    (*file)->post([](TimelineFile& to) {
      EXPECT_FALSE(to.add("{}"));
      EXPECT_EQ(to.dropped(), 1U);
      to.add_always("{}");
    });
    const auto second = TimelineFile::create(folder.text(), 3, 100);
    EXPECT_TRUE(second.ok() && (*second)->path().ends_with("timeline_rank_3.2.json"));
  }
  const std::string content = folder.content("timeline_rank_3.json");
  EXPECT_TRUE(content.starts_with("[\n{") && content.ends_with("},\n{}\n]\n")) << content;
  EXPECT_EQ(folder.content("timeline_rank_3.2.json"), "[\n]\n");
}

TEST(TraceFile, IsCompleteOrAbsent) {
  const Folder folder;
  const auto path = write_whole_file(folder.text() + "/made/deeper", "flight_0", "one");
  ASSERT_TRUE(path.ok());
  EXPECT_TRUE(write_whole_file(folder.text() + "/made/deeper", "flight_0", "two").ok());
  EXPECT_EQ(folder.content("made/deeper/flight_0"), "two");
  EXPECT_EQ(folder.names(), std::set<std::string>{"made"});
  const auto refused = write_whole_file(*path, "flight_0", "three");  // a file is not a folder
  EXPECT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find(*path), std::string::npos);
}

Job sum_of(std::uint64_t count) {
  Job job;
  job.what = {Collective::kAllReduce, DType::kFloat32, ReduceOp::kSum, 0, count};
  job.input.assign(count * sizeof(float), std::byte{0});
  return job;
}

void run_all(Cluster& cluster, std::uint64_t group, const std::vector<int>& members, std::uint64_t count) {
  std::vector<Job> jobs(members.size());
  for (const int rank : members) {
    jobs[static_cast<std::size_t>(rank)] = sum_of(count);
    start(cluster, rank, group, members, jobs[static_cast<std::size_t>(rank)]);
  }
  for (Job& job : jobs) {
    EXPECT_TRUE(finish(job).ok());
  }
}

TEST(Traces, AGroupThatFailsWritesTheRecordsOfAllItsRanks) {
  const Folder folder;
  Cluster cluster({.hosts = {2, 2}, .options = {{"SMDP_TRACE_DIR", folder.text()}}});
  ASSERT_TRUE(cluster.ok());
  const std::vector<int> members = {0, 1, 2, 3};
  const std::uint64_t group = cluster.group(members, "world");
  run_all(cluster, group, members, 10);
  EXPECT_EQ(folder.names(), std::set<std::string>());
  std::vector<Job> jobs(3);
  for (const int rank : {0, 1, 2}) {
    jobs[static_cast<std::size_t>(rank)] = sum_of(1000);
    start(cluster, rank, group, members, jobs[static_cast<std::size_t>(rank)], 0.3);
  }
  for (Job& job : jobs) {
    EXPECT_EQ(finish(job).code(), Code::kTimeout);
  }
  const std::set<std::string> all = {"flight_0", "flight_1", "flight_2", "flight_3"};
  for (int look = 0; look < 200 && folder.names() != all; ++look) {
    std::this_thread::sleep_for(
        std::chrono::milliseconds(20));  // rank 3 waits for no rank and gets the report
  }
  EXPECT_EQ(folder.names(), all);
  EXPECT_NE(folder.content("flight_0").find("waiting for"), std::string::npos);
  EXPECT_NE(folder.content("flight_3").find("the deadline passed"), std::string::npos);
}

TEST(Traces, RecordsAreWrittenOnRequestToTheGivenFolder) {
  const Folder folder;
  Cluster cluster({.hosts = {2}});
  ASSERT_TRUE(cluster.ok());
  run_all(cluster, cluster.group({0, 1}, "world"), {0, 1}, 10);
  const auto nowhere = cluster.engine(0).dump("", "a test");
  EXPECT_EQ(nowhere.status().code(), Code::kInvalid);
  EXPECT_NE(nowhere.status().message().find("SMDP_TRACE_DIR"), std::string::npos);
  const auto path = cluster.engine(1).dump(folder.text(), "a test");
  ASSERT_TRUE(path.ok()) << path.status().message();
  EXPECT_EQ(*path, folder.text() + "/flight_1");
  EXPECT_NE(folder.content("flight_1").find("completed"), std::string::npos);
}

// Both the warning and the counters name the rank that makes its call late.
TEST(Traces, ALateRankIsNamedByTheWarningAndByTheCounters) {
  std::mutex mutex;
  std::vector<std::string> lines;
  Cluster cluster({.hosts = {4},
                   .options = {{"SMDP_WARN_S", "0.2"}, {"SMDP_COUNTERS_S", "1000"}},
                   .adjust = [&](int, EngineConfig& config) {
                     config.emit_event = [&](const std::string& line) {
                       const std::lock_guard lock(mutex);
                       lines.push_back(line);
                     };
                   }});
  ASSERT_TRUE(cluster.ok());
  const std::vector<int> members = {0, 1, 2, 3};
  const std::uint64_t group = cluster.group(members, "world");
  std::vector<Job> jobs(4);
  for (const int rank : {0, 1, 3, 2}) {
    if (rank == 2) {
      for (int look = 0; look < 500 && cluster.warnings().empty(); ++look) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    }
    jobs[static_cast<std::size_t>(rank)] = sum_of(100);
    start(cluster, rank, group, members, jobs[static_cast<std::size_t>(rank)]);
  }
  for (Job& job : jobs) {
    EXPECT_TRUE(finish(job).ok());
  }
  ASSERT_FALSE(cluster.warnings().empty());
  for (const std::string& warning : cluster.warnings()) {
    EXPECT_NE(warning.find("of rank 2 (host host-0)"), std::string::npos) << warning;
  }
  cluster.close();
  ASSERT_EQ(lines.size(), 4U);
  const bool named = std::ranges::any_of(lines, [](const std::string& line) {
    return line.find(R"("late": [{"rank": 2, )") != std::string::npos;
  });
  EXPECT_TRUE(named) << lines[0];
}

TEST(Traces, ATimelineThatCannotBeWrittenGivesAWarningOnly) {
  const Folder folder;
  const auto file = write_whole_file(folder.text(), "taken", "");
  ASSERT_TRUE(file.ok());
  Cluster cluster({.hosts = {1, 1}, .options = {{"SMDP_TIMELINE", *file}}});
  ASSERT_TRUE(cluster.ok());
  run_all(cluster, cluster.group({0, 1}, "world"), {0, 1}, 10);
  ASSERT_EQ(cluster.warnings().size(), 2U);
  EXPECT_NE(cluster.warnings()[0].find("SMDP_TIMELINE"), std::string::npos);
}

// With traces, every path of an operation gives the same results; the sanitizers check the rest.
TEST(Traces, TimelinesOfAllCollectivesAreWritten) {
  const Folder folder;
  Cluster cluster(
      {.hosts = {3, 1, 2}, .options = {{"SMDP_TIMELINE", folder.text()}, {"SMDP_PIECE_KIB", "4"}}});
  ASSERT_TRUE(cluster.ok());
  const std::vector<int> members = {0, 1, 2, 3, 4, 5};
  const std::uint64_t group = cluster.group(members, "a \"world\"");
  for (const Collective collective : {Collective::kAllReduce, Collective::kBroadcast, Collective::kReduce,
                                      Collective::kAllGather, Collective::kBarrier}) {
    std::vector<Job> jobs(members.size());
    for (const int rank : members) {
      Job& job = jobs[static_cast<std::size_t>(rank)];
      job = sum_of(collective == Collective::kBarrier ? 0 : 20'000);
      job.what.collective = collective;
      job.what.root = collective == Collective::kBroadcast || collective == Collective::kReduce ? 4 : 0;
      start(cluster, rank, group, members, job);
    }
    for (Job& job : jobs) {
      EXPECT_TRUE(finish(job).ok()) << name_of(collective);
    }
  }
  cluster.close();
  for (const int rank : members) {
    const std::string content = folder.content("timeline_rank_" + std::to_string(rank) + ".json");
    for (const char* part : {"all_reduce 78 KiB", "broadcast", "reduce 78", "all_gather", "barrier",
                             "smdp_totals", R"("group":"a \"world\"")", R"("copy_us")"}) {
      EXPECT_NE(content.find(part), std::string::npos) << rank << " " << part;
    }
    EXPECT_TRUE(content.ends_with("\n]\n"));
  }
}

}  // namespace
}  // namespace smdp::testing
