#!/bin/sh
# Runs the engine's tests that connect ranks of several hosts over a fabric: run.sh [PROVIDER[/RAILS]]..., by default
# the strict provider (strict_provider.cc), with one rail for each rank and with 3, and with the rules of EFA's (efa), and
# libfabric's tcp;ofi_rxm and sockets.
# Prints a count for each and exits with 1 if any test failed. Uses the build of ../run.sh release.
set -eu

source=$(cd "$(dirname "$0")/../.." && pwd)
build=$source/build/tests-release
failed=0
[ $# -gt 0 ] || set -- strict strict/3 efa 'tcp;ofi_rxm' sockets

cmake -S "$source" -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS= -DSMDP_SANITIZE= -DSMDP_TESTS=ON -DSMDP_TEST_FLAGS=-O1 -DSMDP_TORCH=OFF -DSMDP_UNITY=ON > /dev/null
nice -n 10 cmake --build "$build" --parallel "${SMDP_BUILD_JOBS:-2}" --target test_native > "$build/build.log" 2>&1 || {
  cat "$build/build.log"
  exit 1
}

# Not the tests of simulated jobs, of the kernels, and of TCP's connections alone.
filter='-*ALargeBuffer*:World*:Model*:*ModelShapes*:*WrongQuestionLines*:FaultTransport.*:Handshaker.*:Liveness.*:Kernels.*:HostParts.*'
for fabric in "$@"; do
  provider=${fabric%/*}
  rails=0
  [ "$provider" = "$fabric" ] || rails=${fabric#*/}
  library=
  name=strict
  case $provider in
    strict | efa) library=$build/tests/libstrict_provider.so name=$provider provider=strict ;;
  esac
  log=$build/fabric.log
  status=0
  SMDP_TRANSPORT=ofi SMDP_LIBFABRIC=$library FI_PROVIDER=$provider SMDP_FABRIC_RAILS=$rails STRICT_NAME=$name STRICT_EFA_WRITES=1 \
    "$build/tests/test_native" --gtest_brief=1 --gtest_filter="$filter" > "$log" 2>&1 || status=$?
  if [ $status -ne 0 ]; then
    failed=1
    cat "$log"
  fi
  count=$(sed -nE 's/.* ([0-9]+) tests from.*/\1/p' "$log")
  echo "native tests over the fabric $fabric: ${count:-0} ran, exit status $status"
done
exit $failed
