#include <gtest/gtest.h>
#include <smdp/engine.h>

#include <cstring>
#include <string>
#include <vector>

namespace {

TEST(CInterface, OneRankSumsWithItself) {
  EXPECT_EQ(smdp_abi_version(), SMDP_ABI_VERSION);
  smdp_engine_config config{};
  config.size = sizeof(config);
  config.world_size = 1;
  const char* options[] = {"SMDP_ARENA_MIB", "16", nullptr};  // NOLINT(modernize-avoid-c-arrays)
  config.options = options;
  smdp_engine* engine = nullptr;
  smdp_error error{};
  ASSERT_EQ(smdp_engine_open(&config, &engine, &error), SMDP_OK) << error.message;
  EXPECT_EQ(smdp_engine_host_count(engine), 1);
  const int member = 0;
  smdp_group* group = nullptr;
  ASSERT_EQ(smdp_group_create(engine, &member, 1, "world", 5, &group, &error), SMDP_OK) << error.message;
  std::vector<float> values = {1, 2, 3};
  smdp_call call{};
  call.size = sizeof(call);
  call.collective = SMDP_ALL_REDUCE;
  call.op = SMDP_AVG;
  call.count = values.size();
  call.input = call.output = values.data();
  smdp_operation* operation = nullptr;
  ASSERT_EQ(smdp_submit(group, &call, &operation, &error), SMDP_OK) << error.message;
  EXPECT_EQ(smdp_operation_wait(operation, 5, &error), SMDP_OK) << error.message;
  EXPECT_EQ(smdp_operation_test(operation), 1);
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3}));
  call.op = 99;
  smdp_operation* refused = nullptr;
  EXPECT_EQ(smdp_submit(group, &call, &refused, &error), SMDP_INVALID);
  smdp_group_destroy(group);
  smdp_engine_close(engine);
  EXPECT_EQ(smdp_operation_wait(operation, 5, &error), SMDP_OK) << "an operation outlives its engine";
  smdp_operation_release(operation);
}

TEST(CInterface, BadOptionsAreNamed) {
  smdp_engine_config config{};
  config.size = sizeof(config);
  config.world_size = 1;
  const char* options[] = {"SMDP_WINDOW", "many", nullptr};  // NOLINT(modernize-avoid-c-arrays)
  config.options = options;
  smdp_engine* engine = nullptr;
  smdp_error error{};
  EXPECT_EQ(smdp_engine_open(&config, &engine, &error), SMDP_INVALID);
  EXPECT_NE(std::strstr(error.message, "SMDP_WINDOW"), nullptr);
  smdp_option option{};
  EXPECT_EQ(smdp_option_info(0, &option), SMDP_OK);
  EXPECT_EQ(smdp_option_info(10000, &option), SMDP_INVALID);
}

}  // namespace
