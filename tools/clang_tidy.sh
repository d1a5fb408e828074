#!/bin/sh
# Runs clang-tidy over the engine with the flags it is really compiled with. Usage: clang_tidy.sh BIN_FOLDER
set -e
bin=$1
build=native/build/tidy
"$bin/cmake" -S native -B "$build" -DSMDP_TESTS=ON -DCMAKE_BUILD_TYPE=Debug >/dev/null
# shellcheck disable=SC2046
"$bin/clang-tidy" -p "$build" --quiet $(find native/engine native/tests -name '*.cc') 2>/dev/null
