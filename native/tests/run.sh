#!/bin/sh
# Builds and runs the engine's C++ tests: run.sh [release|asan|tsan]...; all three without an argument.
# asan is AddressSanitizer with UndefinedBehaviorSanitizer. Also replays the inputs in native/fuzz/corpus; and
# simulated jobs of the same seeds must give the same hash in every build. Prints a count for each and exits with 1 if
# any test failed.
#
# The tests in real time mostly wait, so they run as two shards side by side, while the next kind is built. Tests in
# simulated time run on one core and have no deadline on a real clock. They and that build run with the lowest priority.
set -eu

source=$(cd "$(dirname "$0")/.." && pwd)
jobs=${SMDP_BUILD_JOBS:-2}
failed=0
first=
simulated='World*:*Breached*:Model*:*ModelShapes*:*WrongQuestionLines*'
processes=
trap '[ -z "$processes" ] || kill $processes 2> /dev/null || true' EXIT
trap 'exit 130' INT TERM
[ $# -gt 0 ] || set -- release asan tsan

# build KIND PRIORITY. The tests' own code has no need of an optimizer, which takes longer than all else.
build() {
  case $1 in
    release) sanitizers= type=Release flags= tests=-O1 ;;
    # -O2 with both sanitizers takes three times as long to compile.
    asan) sanitizers=address,undefined type= flags='-O1 -g1' tests=-O0 ;;
    tsan) sanitizers=thread type= flags='-O1 -g1' tests=-O0 ;;
    *) echo "run.sh: no such kind: $1" >&2; exit 2 ;;
  esac
  build=$source/build/tests-$1
  cmake -S "$source" -B "$build" -DCMAKE_BUILD_TYPE=$type -DCMAKE_CXX_FLAGS="$flags" -DSMDP_SANITIZE=$sanitizers -DSMDP_TESTS=ON -DSMDP_TEST_FLAGS=$tests -DSMDP_TORCH=OFF -DSMDP_UNITY=ON > /dev/null
  nice -n "$2" cmake --build "$build" --parallel "$jobs" > "$build/build.log" 2>&1 || { cat "$build/build.log"; exit 1; }
}

# start KIND: starts the tests of a build as `processes`.
start() {
  build=$source/build/tests-$1
  left_out=
  seeds=10000
  case $1 in
    # 64 MiB through instrumented code test nothing that a few KiB do not.
    asan) left_out=':*ALargeBuffer*' seeds=1000 ;;
    tsan) left_out=':*ALargeBuffer*' seeds=200 ;;
  esac
  export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=halt_on_error=0 SMDP_WORLD_SEEDS=$seeds
  nice -n 19 "$build/tests/test_native" --gtest_brief=1 --gtest_filter="$simulated" > "$build/simulated.log" 2>&1 &
  processes=$!
  for shard in 0 1; do
    GTEST_TOTAL_SHARDS=2 GTEST_SHARD_INDEX=$shard "$build/tests/test_native" --gtest_brief=1 \
      --gtest_filter="-$simulated$left_out" > "$build/shard-$shard.log" 2>&1 &
    processes="$processes $!"
  done
}

# finish KIND: waits for its tests, and prints the counts.
finish() {
  build=$source/build/tests-$1
  status=0
  for process in $processes; do
    wait "$process" || status=$?
  done
  processes=
  "$build/fuzz/replay_corpora" --gtest_brief=1 > "$build/replay.log" 2>&1 || status=$?
  cat "$build/shard-0.log" "$build/shard-1.log" "$build/simulated.log" "$build/replay.log" > "$build/test.log"
  if [ $status -ne 0 ]; then
    failed=1
    cat "$build/test.log"
  fi
  reports=$(grep -cE 'WARNING: ThreadSanitizer|ERROR: AddressSanitizer|runtime error:' "$build/test.log" || true)
  hash=$("$build/tests/explore_world" 0 200 | sed -nE 's/.* 0 judged wrong.* hash ([0-9a-f]+),.*/\1/p')
  first=${first:-$hash}
  if [ "$hash" != "$first" ] || [ -z "$hash" ]; then
    failed=1
    echo "native tests, $1: 200 simulated jobs have the hash '$hash', those of the first build '$first'"
  fi
  count=$(sed -nE 's/.* ([0-9]+) tests from.*/\1/p' "$build/test.log" | awk '{sum += $1} END {print sum + 0}')
  inputs=$(sed -nE 's/^replayed .*: ([0-9]+) inputs$/\1/p' "$build/test.log" | awk '{sum += $1} END {print sum + 0}')
  echo "native tests, $1: $count ran, $inputs fuzz inputs replayed, exit status $status, $reports sanitizer reports, hash $hash"
}

tested=
for kind in "$@"; do
  if [ -z "$tested" ]; then
    build "$kind" 10
  else
    build "$kind" 19
    finish "$tested"
  fi
  start "$kind"
  tested=$kind
done
finish "$tested"
exit $failed
