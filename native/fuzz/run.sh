#!/bin/sh
# Fuzzes the engine: run.sh [-k] [SECONDS] [TARGET...]; 60 seconds each for frame, hello and rendezvous without arguments.
# Every target starts from its corpus. Prints for each: executions, their rate, failures, and which lines of its files
# were covered. Exits with 1 if there is a failure or less than 95 % of the lines of a file are covered.
# -k stores the inputs that were found in native/fuzz/corpus, minimized. Needs clang with libFuzzer, llvm-cov and
# llvm-profdata (Debian: clang, llvm, libfuzzer-14-dev); SMDP_FUZZ_CXX names another clang++.
set -eu

source=$(cd "$(dirname "$0")/.." && pwd)
build=$source/build/fuzz
compiler=${SMDP_FUZZ_CXX:-clang++}
least=95  # per cent
keep=false
[ "${1:-}" != -k ] || { keep=true; shift; }
time=${1:-60}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- frame hello rendezvous

command -v "$compiler" > /dev/null || { echo "missing: clang++ (Debian: apt-get install clang llvm libfuzzer-14-dev)" >&2; exit 1; }
tool() { "$compiler" -print-prog-name="$1"; }
files_of() {
  case $1 in
    frame) echo frame.cc transport/stream.cc ;;
    hello) echo handshake/hello.cc handshake/handshaker.cc handshake/handshake.cc ;;
    rendezvous) echo handshake/rendezvous.cc ;;
    *) echo "run.sh: no such target: $1" >&2; exit 2 ;;
  esac
}
for target in "$@"; do files_of "$target" > /dev/null; done

cmake -S "$source" -B "$build" -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_COMPILER="$compiler" -DSMDP_FUZZ=ON -DSMDP_TORCH=OFF > /dev/null
nice -n 10 cmake --build "$build" --parallel "${SMDP_BUILD_JOBS:-2}" --target $(printf 'fuzz_%s ' "$@") > "$build/build.log" 2>&1 ||
  { cat "$build/build.log"; exit 1; }

# One file's lines, from the counters of the run: "<lines> <missed>".
lines_of() {
  "$(tool llvm-cov)" report "$1" -instr-profile="$2" "$source/engine/net/$3" | awk '$1 == "TOTAL" {print $8, $9}'
}

ticks() { awk '{print $16 + $17}' "/proc/$$/stat"; }  # processor time of the programs that ended

failed=0
for target in "$@"; do
  program=$build/fuzz/fuzz_$target
  kept=$source/fuzz/corpus/$target
  work=$build/run-$target
  rm -rf "$work"
  mkdir -p "$work/corpus" "$work/failures" "$kept"
  status=0 began=$(ticks)
  # A small quarantine: memory that comes back soon is memory that need not be mapped anew for every input.
  ASAN_OPTIONS=quarantine_size_mb=8 UBSAN_OPTIONS=print_stacktrace=1 LLVM_PROFILE_FILE=$work/run.profraw \
    "$program" -max_total_time="$time" -timeout=10 -print_final_stats=1 -artifact_prefix="$work/failures/" \
    "$work/corpus" "$kept" > "$work/run.log" 2>&1 || status=$?
  spent=$(($(ticks) - began + 1))
  failures=$(find "$work/failures" -type f | wc -l)
  statistic() { sed -n "s/^stat::$1: *//p" "$work/run.log"; }
  executions=$(statistic number_of_executed_units)
  echo "$target: $executions executions, $(statistic average_exec_per_sec) a second," \
    "$((${executions:-0} * $(getconf CLK_TCK) / spent)) a second of processor time, $failures failures, exit status $status"
  if [ "$status" -ne 0 ]; then
    failed=1
    tail -n 60 "$work/run.log"
    echo "reproduce: $program $(find "$work/failures" -type f | head -1)"
    continue
  fi
  "$(tool llvm-profdata)" merge -sparse "$work/run.profraw" -o "$work/run.profdata"
  for file in $(files_of "$target"); do
    set_of=$(lines_of "$program" "$work/run.profdata" "$file")
    all=${set_of% *} missed=${set_of#* }
    echo "  $file: $((all - missed)) of $all lines"
    [ $((missed * 100)) -le $((all * (100 - least))) ] || { failed=1; echo "  $file: less than $least % of its lines"; }
    "$(tool llvm-cov)" show "$program" -instr-profile="$work/run.profdata" "$source/engine/net/$file" |
      grep -E '^ +[0-9]+\| +0\|' || true
  done
  if $keep; then
    mkdir "$work/minimal"
    LLVM_PROFILE_FILE=/dev/null "$program" -merge=1 -use_counters=0 "$work/minimal" "$kept" "$work/corpus" > "$work/merge.log" 2>&1
    find "$kept" -type f -regex '.*/[0-9a-f]*' -delete  # inputs with other names reproduce a defect and stay
    cp "$work/minimal"/* "$kept"
    echo "  kept: $(find "$kept" -type f | wc -l) inputs, $(cat "$kept"/* | wc -c) bytes"
  fi
done
exit $failed
