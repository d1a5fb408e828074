#!/bin/sh
# Builds the kernels and their tests for 64-bit Arm and runs them under emulation: the NEON kernels give the same bits.
# Debian: g++-aarch64-linux-gnu, qemu-user, libgtest-dev.
set -eu

native=$(cd "$(dirname "$0")/.." && pwd)
googletest=/usr/src/googletest/googletest
build=$native/build/tests-arm64
mkdir -p "$build"
cd "$build"

compile() {
  aarch64-linux-gnu-g++ -std=c++20 -DSMDP_HAVE_ARM_KERNELS -I"$native/engine" -I"$native/include" -I"$native/tests/support" \
    -I"$googletest/include" -I"$googletest" -ffp-contract=off "$@"
}

for kernel in copy reduce reduce_neon reduce_portable types; do
  compile -O3 -c "$native/engine/kernels/$kernel.cc"
done
compile -O2 -fno-tree-vectorize -c "$native/tests/support/reference.cc"
compile -O2 -c "$native/tests/engine/test_kernels.cc"
compile -O1 -c "$googletest/src/gtest-all.cc" "$googletest/src/gtest_main.cc"
aarch64-linux-gnu-g++ -static ./*.o -o test_kernels -lpthread 2> link.log || { cat link.log >&2; exit 1; }
qemu-aarch64 ./test_kernels --gtest_brief=1
