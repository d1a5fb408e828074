"""Mutation testing of the engine: inserts one bug at a time and checks that the simulated jobs find it.

    mutants.py [--seeds N] [--only NAME] [--show]

The sources are copied to native/build/planted and edited there. Prints for each bug the seed that finds it, the
message of the judge, and the length of the timeline; --show prints the timeline. Exits with 1 if an edit does not
apply any more, if a bug is not found within N seeds (20,000), if the judge reports another error than expected, or if
the timeline is longer than 40 lines.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

NATIVE = Path(__file__).resolve().parents[1]
FOLDER = NATIVE / "build" / "planted"
SOURCE = FOLDER / "source"
BUILD = FOLDER / "build"
MOST_LINES = 40


@dataclass(frozen=True)
class Bug:
    name: str
    file: str  # below native/engine
    right: str
    wrong: str
    verdict: str  # pattern of the judge's message


BUGS = (
    Bug(
        "an acknowledgement is dropped: a rank does not report that it has read an offer",
        "shm/shm_reducer.cc",
        "    send_(sender, reply);\n    events_.delivered(reply.piece);",
        "    events_.delivered(reply.piece);",
        "failed, and nothing was wrong: .*waiting for|regions of shared memory in use|does not end",
    ),
    Bug(
        "a shard is one byte short: the last piece is left out when it has one",
        "layout/plan.cc",
        "for (std::uint64_t at = 0; at < bytes; at += step)",
        "for (std::uint64_t at = 0; at + 1 < bytes; at += step)",
        "another result than the reference|failed, and nothing was wrong",
    ),
    Bug(
        "a deadline is never armed",
        "collectives/group/group.cc",
        "settings_.window, queued.deadline, warn_at",
        "settings_.window, TimePoint::max(), warn_at",
        "outlived its deadline|earlier calls were not complete|not every call has ended",
    ),
    Bug(
        "a stale generation is accepted: a group created again under its name counts as the first one",
        "engine.cc",
        "instances_[key]++",
        "instances_[key]",
        "failed, and nothing was wrong|another result than the reference|blames another rank|not say that it is",
    ),
    Bug(
        "a region is freed while others still read it",
        "shm/shm_reducer.cc",
        "    regions_->hold(offset, static_cast<std::uint32_t>(takers.size()));\n",
        "",
        "another result than the reference",
    ),
    Bug(
        "a goodbye counts as a loss",
        "engine.cc",
        "    group->peer_lost(peer, orderly, why);\n  }\n",
        "    group->peer_lost(peer, false, why);\n  }\n",
        "failed, and nothing was wrong: .* was lost",
    ),
    Bug(
        "a share of the network is never returned",
        "collectives/reduction.cc",
        "  in_flight_bytes_ -= wire_bytes(piece);\n  budget_.used -= wire_bytes(piece);",
        "  in_flight_bytes_ -= wire_bytes(piece);",
        "bytes of its share of the network in use",
    ),
    Bug(
        "a frame that arrives before its call is dropped",
        "collectives/group/early_frames.h",
        "    return std::move(taken.mapped());",
        "    taken.mapped().pop_back();\n    return std::move(taken.mapped());",
        "failed, and nothing was wrong: .*deadline passed",
    ),
    Bug(
        "the hosts' sums are added in another order on each host",
        "collectives/reduction.cc",
        "  std::vector<Part> parts = parts_of(piece, state.sums);\n",
        "  std::swap(state.sums[0], state.sums[static_cast<std::size_t>(my_host_)]);\n"
        "  std::vector<Part> parts = parts_of(piece, state.sums);\n",
        "another result than the reference",
    ),
    Bug(
        "a rank that waits for another is blamed itself",
        "collectives/group/failure_detector.cc",
        "return rank != rank_ && !reporters.contains(rank);",
        "return rank != rank_;",
        "blames another rank than",
    ),
    Bug(
        "a broadcast does not wait until all ranks have made the call",
        "layout/plan.cc",
        "bytes, layout, options);\n      plan.pieces.push_back(barrier_piece(layout.hosts.size(), rotation));",
        "bytes, layout, options);\n      if (bytes == 0) {\n"
        "        plan.pieces.push_back(barrier_piece(layout.hosts.size(), rotation));\n      }",
        "was complete before rank",
    ),
    Bug(
        "all messages of one tag get the number of the first",
        "collectives/point_to_point.cc",
        "*exchange.sequence : sent.next++;",
        "*exchange.sequence : sent.next;",
        "failed, and nothing was wrong|another result than the reference",
    ),
    Bug(
        "a group that fails does not complete the calls that had not begun",
        "collectives/group/group_failure.cc",
        "  end_queued(why);\n",
        "  calls_.clear_queued();\n",
        "not every call has ended",
    ),
    Bug(
        "a result is acknowledged before it is copied",
        "shm/shm_reducer.cc",
        "  copy_out(memory, output_of(header.piece), [this, sender, reply] {\n    send_(sender, reply);\n",
        "  send_(sender, reply);\n  copy_out(memory, output_of(header.piece), [this, reply] {\n",
        "another result than the reference",
    ),
    Bug(
        "an agent frees a result's memory before it has its own copy",
        "shm/shm_reducer.cc",
        "    results_.erase(found);\n    copy_out(",
        "    results_.erase(found);\n    regions_->release(offset);\n    copy_out(",
        "another result than the reference",
    ),
    Bug(
        "a window gets no room if the other hosts have a piece before its origin",
        "collectives/operation.cc",
        "at(piece).origin == rank_ ? 1 : 0;",
        "at(piece).origin == rank_ && credited_.contains(piece) ? 1 : 0;",
        "failed, and nothing was wrong: .*deadline passed",
    ),
    Bug(
        "a rank that closes its engine does not report how far it took part",
        "engine.cc",
        "group->leave(Leaving::kClosesEngine);",
        "group->fail_here(closed);",
        "(failed, and nothing was wrong|blames another rank than \\d+): .*closed its engine",
    ),
)


def copy_changed(source: str, target: str) -> str:
    """Copy a file unless it is unchanged: a changed time would compile it again, an older one would not."""
    if not Path(target).exists() or Path(target).read_bytes() != Path(source).read_bytes():
        shutil.copyfile(source, target)
    return target


def copy_sources() -> None:
    for folder in ("engine", "simulation", "tests", "include", "adapters", "clock", "fuzz", "benchmarks"):
        if (NATIVE / folder).is_dir():
            shutil.copytree(NATIVE / folder, SOURCE / folder, dirs_exist_ok=True, copy_function=copy_changed)
    copy_changed(str(NATIVE / "CMakeLists.txt"), str(SOURCE / "CMakeLists.txt"))


def build() -> None:
    if not (BUILD / "build.ninja").exists():
        options = ["-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DSMDP_TESTS=ON", "-DSMDP_TORCH=OFF"]
        subprocess.run(["cmake", "-S", SOURCE, "-B", BUILD, *options], check=True, capture_output=True)
    done = subprocess.run(
        ["cmake", "--build", BUILD, "--parallel", "2", "--target", "explore_world"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)


def explore(seeds: int) -> str:
    done = subprocess.run(
        [BUILD / "tests" / "explore_world", "0", str(seeds)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return done.stdout + ("" if done.returncode >= 0 else f"wrong: ended by signal {-done.returncode}\n")


def judge(bug: Bug, output: str) -> tuple[str, bool]:
    """Return the text about the bug, and whether the judge reports it as expected."""
    found = re.search(r"^seed (\d+) is judged wrong", output, re.MULTILINE)
    if found is None:
        return f"NOT FOUND: {output.strip()[-200:]}", False
    verdicts = re.findall(r"^wrong: (.*)$", output, re.MULTILINE)
    lines = sum(1 for line in output.splitlines() if re.match(r" +(\d+\.\d+ ms|\.\.\.) ", line))
    expected = any(re.search(bug.verdict, verdict) for verdict in verdicts)
    text = f"seed {found[1]}, {lines} lines: {verdicts[0][:160]}"
    return ("" if expected else "NOT AS EXPECTED: ") + text, expected and lines <= MOST_LINES


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20000)
    parser.add_argument("--only", default="", help="bugs with this in their name")
    parser.add_argument("--show", action="store_true", help="print the output of each run")
    options = parser.parse_args()
    copy_sources()
    all_right = True
    count = 0
    for bug in BUGS:
        if options.only not in bug.name:
            continue
        count += 1
        file = SOURCE / "engine" / bug.file
        text = file.read_text()
        if text.count(bug.right) != 1:
            print(f"{bug.name}\n    the edit does not apply: {bug.file} has its text {text.count(bug.right)} times")
            all_right = False
            continue
        file.write_text(text.replace(bug.right, bug.wrong))
        try:
            build()
            output = explore(options.seeds)
        finally:
            file.write_text(text)
        message, is_right = judge(bug, output)
        all_right = all_right and is_right
        print(f"{bug.name}\n    {message}", flush=True)
        if options.show:
            print(output, flush=True)
    print(f"{count} inserted bugs, {'each found' if all_right else 'NOT ALL AS EXPECTED'}")
    return 0 if all_right and count > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
