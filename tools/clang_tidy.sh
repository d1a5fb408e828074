#!/bin/sh
# Run clang-tidy on the engine with its real compiler flags. Usage: clang_tidy.sh BIN_FOLDER
set -eu
bin=$1
build=native/build/tidy
log=$build/tidy.log
"$bin/cmake" -S native -B "$build" -DSMDP_TORCH=OFF -DCMAKE_BUILD_TYPE=Debug >/dev/null
# Kernels of other processors are not compiled on this machine, so they have no flags. clang does not know all -Wno-...
# options of the compiler.
sed -n 's/^ *"file": "\(.*\/native\/engine\/.*\)",\{0,1\}$/\1/p' "$build/compile_commands.json" | sort -u | tr '\n' '\0' |
    xargs -0 -P 2 -n 4 "$bin/clang-tidy" -p "$build" --quiet --extra-arg=-Wno-unknown-warning-option >"$log" 2>&1 || {
    grep -E '(error|warning):' "$log" | sort -u >&2
    exit 1
}
