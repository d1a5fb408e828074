#!/bin/sh
# Runs clang-tidy over the engine with the flags it is really compiled with. Usage: clang_tidy.sh BIN_FOLDER
set -eu
bin=$1
build=native/build/tidy
log=$build/tidy.log
"$bin/cmake" -S native -B "$build" -DSMDP_TORCH=OFF -DCMAKE_BUILD_TYPE=Debug >/dev/null
# What is not compiled here, kernels of other processors, has no flags. -Wno-... options of one compiler are unknown to
# the other.
sed -n 's/^ *"file": "\(.*\/native\/engine\/.*\)",\{0,1\}$/\1/p' "$build/compile_commands.json" | sort -u | tr '\n' '\0' |
    xargs -0 -P 2 -n 4 "$bin/clang-tidy" -p "$build" --quiet --extra-arg=-Wno-unknown-warning-option >"$log" 2>&1 || {
    grep -E '(error|warning):' "$log" | sort -u >&2
    exit 1
}
