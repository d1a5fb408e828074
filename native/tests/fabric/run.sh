#!/bin/sh
# Runs the engine's tests that connect ranks of several hosts over a fabric: run.sh [PROVIDER[/RAILS]]..., by default
# the strict provider (strict_provider.cc), with one rail for each rank and with 3, and with the rules of EFA's (efa), and
# libfabric's tcp;ofi_rxm and sockets.
# Prints a count for each and exits with 1 if any test failed. Uses the build of ../run.sh release.
set -eu

source=$(cd "$(dirname "$0")/../.." && pwd)
build=$source/build/tests-release
failed=0
processes=
trap '[ -z "$processes" ] || kill $processes 2> /dev/null || true' EXIT
trap 'exit 130' INT TERM
[ $# -gt 0 ] || set -- strict strict/3 efa 'tcp;ofi_rxm' sockets

cmake -S "$source" -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS= -DSMDP_SANITIZE= -DSMDP_TESTS=ON -DSMDP_TEST_FLAGS=-O1 -DSMDP_TORCH=OFF -DSMDP_UNITY=ON > /dev/null
nice -n 10 cmake --build "$build" --parallel "${SMDP_BUILD_JOBS:-2}" --target test_native > "$build/build.log" 2>&1 || {
  cat "$build/build.log"
  exit 1
}

# Not the tests of simulated jobs, of the kernels, and of TCP's connections alone.
filter='-*ALargeBuffer*:World*:Model*:*ModelShapes*:*WrongQuestionLines*:FaultTransport.*:Handshaker.*:Liveness.*:Kernels.*:HostParts.*'

# run FABRIC LOG: exits with the status of the tests. The provider rxm of libfabric 1.17 keeps memory of closed endpoints,
# 19 GB after all tests, so its tests run in several processes, one after the other.
run() {
  provider=${1%/*}
  rails=0
  [ "$provider" = "$1" ] || rails=${1#*/}
  library=
  name=strict
  shards=1
  case $provider in
    *rxm) shards=6 ;;
    strict | efa) library=$build/tests/libstrict_provider.so name=$provider provider=strict ;;
  esac
  export SMDP_TRANSPORT=ofi SMDP_LIBFABRIC="$library" FI_PROVIDER="$provider" SMDP_FABRIC_RAILS="$rails" STRICT_NAME="$name" STRICT_EFA_WRITES=1
  : > "$2"
  result=0
  for shard in $(seq 0 $((shards - 1))); do
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard "$build/tests/test_native" --gtest_brief=1 --gtest_filter="$filter" >> "$2" 2>&1 &
    tests=$!
    trap 'kill $tests 2> /dev/null; exit 143' TERM
    wait "$tests" || result=$?
  done
  exit $result
}

# The tests mostly wait, so two fabrics are tested side by side.
while [ $# -gt 0 ]; do
  run "$1" "$build/fabric-0.log" &
  processes=$!
  if [ $# -gt 1 ]; then
    run "$2" "$build/fabric-1.log" &
    processes="$processes $!"
  fi
  place=0
  for process in $processes; do
    log=$build/fabric-$place.log
    status=0
    wait "$process" || status=$?
    if [ $status -ne 0 ]; then
      failed=1
      cat "$log"
    fi
    count=$(sed -nE 's/.* ([0-9]+) tests from.*/\1/p' "$log" | awk '{sum += $1} END {print sum + 0}')
    echo "native tests over the fabric $1: $count ran, exit status $status"
    place=$((place + 1))
    shift
  done
  processes=
done
exit $failed
