// The model of cost: physical limits hold for any costs, and equal questions have equal answers.
#include <gtest/gtest.h>

#include <string>

#include "model.h"

namespace smdp::model {
namespace {

constexpr double kRate = 12.5e6;  // bytes per second: so slow that only the wire matters
constexpr std::uint64_t kBytes = 25U << 20U;

Question question(int hosts, int ranks_per_host, std::uint64_t bytes = kBytes) {
  Question question;
  question.hosts = hosts;
  question.ranks_per_host = ranks_per_host;
  question.costs.link_rate = kRate;
  question.buckets = {{bytes, 0}};
  return question;
}

Answer answered(const Question& question) {
  const Result<Answer> got = answer(question);
  EXPECT_TRUE(got.ok()) << got.status().message();
  return got.ok() ? *got : Answer{};
}

// Seconds that the wire needs for one sum.
double wire_s(const Question& question) {
  const double hosts = question.hosts;
  return 2 * (hosts - 1) / hosts * static_cast<double>(kBytes) * question.costs.wire_overhead / kRate;
}

class ModelShapes : public ::testing::TestWithParam<std::pair<int, int>> {};

TEST_P(ModelShapes, ALargeSumTakesALittleMoreThanTheWireNeeds) {
  const Question asked = question(GetParam().first, GetParam().second);
  const double seconds = answered(asked).seconds;
  EXPECT_GT(seconds, wire_s(asked));
  EXPECT_LT(seconds, wire_s(asked) * 1.02);
}

INSTANTIATE_TEST_SUITE_P(Each, ModelShapes,
                         ::testing::Values(std::pair(2, 1), std::pair(4, 4), std::pair(8, 1),
                                           std::pair(2, 8)));

TEST(Model, EqualQuestionsHaveEqualAnswers) {
  const Question asked = question(4, 4);
  EXPECT_EQ(to_json(answered(asked)), to_json(answered(asked)));
}

TEST(Model, ARingTakesTheTimeOfItsSteps) {
  Question asked = question(4, 1);
  asked.schedule = Question::Schedule::kRing;
  // Each part is one quantum, so that no time is rounded to a nanosecond.
  asked.costs.ring_slice_bytes = asked.costs.link_quantum = static_cast<double>(kBytes);
  const double steps = 6;
  const double step_s = wire_s(asked) / steps + asked.costs.link_latency + asked.costs.ring_slice;
  EXPECT_NEAR(answered(asked).seconds, steps * step_s, 1e-6);
}

TEST(Model, ASingleRankNeedsNoExchange) {
  EXPECT_EQ(answered(question(1, 1)).wire_bytes, 0);
  Question ring = question(1, 1);
  ring.schedule = Question::Schedule::kRing;
  EXPECT_EQ(answered(ring).seconds, 0);
}

TEST(Model, FewerProcessorsThanRanksTakeLonger) {
  Question asked = question(1, 8);
  asked.costs.cores = 8;
  const double enough = answered(asked).seconds;
  asked.costs.cores = 2;
  EXPECT_GT(answered(asked).seconds, 3 * enough);
}

TEST(Model, ABucketIsNotCompleteBeforeItIsReady) {
  Question asked = question(2, 2, 1U << 20U);
  asked.buckets.push_back({1U << 20U, 5});
  const Answer got = answered(asked);
  EXPECT_LT(got.bucket_done.at(0), 5);
  EXPECT_GT(got.bucket_done.at(1), 5);
  EXPECT_EQ(got.seconds, got.bucket_done.at(1));
}

TEST(Model, AQuestionIsReadFromText) {
  const auto read = read_question(
      "hosts 3\nranks_per_host 2\nschedule ring\ndtype float16\n\ncost wake 0.5\n"
      "option SMDP_BULK_KIB 128\nbucket 800 0.25\nbucket 8 1");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->hosts, 3);
  EXPECT_EQ(read->ranks_per_host, 2);
  EXPECT_EQ(read->schedule, Question::Schedule::kRing);
  EXPECT_EQ(read->dtype, DType::kFloat16);
  EXPECT_EQ(read->costs.wake, 0.5);
  EXPECT_EQ(read->options.bulk_kib, 128);
  ASSERT_EQ(read->buckets.size(), 2);
  EXPECT_EQ(read->buckets[0].bytes, 800);
  EXPECT_EQ(read->buckets[0].ready_s, 0.25);
}

class WrongQuestionLines : public ::testing::TestWithParam<const char*> {};

TEST_P(WrongQuestionLines, AWrongLineIsRefusedAndQuoted) {
  const std::string line = GetParam();
  const auto read = read_question("bucket 8 0\n" + line);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.status().code(), Code::kInvalid);
  EXPECT_NE(read.status().message().find("'" + line + "'"), std::string::npos) << read.status().message();
}

INSTANTIATE_TEST_SUITE_P(Each, WrongQuestionLines,
                         ::testing::Values("hosts 0", "hosts", "hosts 9999", "ranks_per_host x",
                                           "schedule tree", "dtype int32", "cost link_quantum 0",
                                           "cost wake -1", "cost wake nan", "cost nothing 1",
                                           "option SMDP_NOTHING 1", "option SMDP_BULK_KIB", "bucket 12 0",
                                           "bucket 8", "bucket 8 -1", "bukcet 8 0"));

TEST(Model, AQuestionWithoutBucketsIsRefused) { EXPECT_FALSE(read_question("hosts 2").ok()); }

}  // namespace
}  // namespace smdp::model
