// Answers one question from standard input (model.h) with one line of JSON. --costs prints the default costs
// instead, a name and a value a line.
#include <cstdio>
#include <iostream>
#include <iterator>
#include <string_view>

#include "model.h"

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--costs") {
    const smdp::model::Costs costs;
    for (const smdp::model::CostInfo& info : smdp::model::cost_table()) {
      std::printf("%s %.9g\n", info.name.data(), costs.*info.field);
    }
    return 0;
  }
  if (argc != 1) {
    std::fprintf(stderr, "usage: %s [--costs] < QUESTION\n", argv[0]);
    return 2;
  }
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  const auto question = smdp::model::read_question(text);
  if (!question.ok()) {
    std::fprintf(stderr, "%s\n", question.status().message().c_str());
    return 2;
  }
  const auto answer = smdp::model::answer(*question);
  if (!answer.ok()) {
    std::fprintf(stderr, "%s\n", answer.status().message().c_str());
    return 1;
  }
  std::printf("%s\n", smdp::model::to_json(*answer).c_str());
  return 0;
}
