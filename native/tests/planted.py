"""Plants bugs in the engine, one at a time, and shows that the simulated world finds each.

    planted.py [--seeds N] [--only NAME] [--show]

The sources are copied to native/build/planted and edited there. For each bug: how many seeds it took, what the judge
said, and how long the timeline is; --show prints it. Ends with 1 where an edit does not apply any more, where a bug is
not found within N seeds (20,000), where the judge says something else than expected, or where the timeline is longer
than 40 lines.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

NATIVE = Path(__file__).resolve().parent.parent
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
    verdict: str  # pattern of what the judge says


BUGS = (
    Bug(
        "an acknowledgement is dropped: a rank does not say that it has read what it was offered",
        "shm/shm_reducer.cc",
        "    send_(sender, reply);\n    events_.delivered(reply.piece);",
        "    events_.delivered(reply.piece);",
        "failed, and nothing was wrong: .*waiting for|regions of shared memory in use|does not end",
    ),
    Bug(
        "a shard is one byte short: the last piece is left out when it has one",
        "collectives/plan.cc",
        "for (std::uint64_t at = 0; at < bytes; at += step)",
        "for (std::uint64_t at = 0; at + 1 < bytes; at += step)",
        "another result than the reference|failed, and nothing was wrong",
    ),
    Bug(
        "a deadline is never armed",
        "collectives/group.cc",
        "waiting.deadline, now + seconds(patience)",
        "TimePoint::max(), now + seconds(patience)",
        "outlived its deadline|earlier calls were not complete|not every call has ended",
    ),
    Bug(
        "a stale generation is accepted: a group made again under its name is taken for the first one",
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
        "a goodbye is taken for a loss",
        "engine.cc",
        "    group->peer_lost(peer, orderly, why);\n  }\n",
        "    group->peer_lost(peer, false, why);\n  }\n",
        "failed, and nothing was wrong: .* was lost",
    ),
    Bug(
        "a share of the network is never given back",
        "collectives/operation.cc",
        "  in_flight_bytes_ -= wire_bytes(piece);\n  budget_.used -= wire_bytes(piece);",
        "  in_flight_bytes_ -= wire_bytes(piece);",
        "bytes of its share of the network in use",
    ),
    Bug(
        "a frame that came before its call is forgotten",
        "collectives/parked_frames.h",
        "    return std::move(taken.mapped());",
        "    taken.mapped().pop_back();\n    return std::move(taken.mapped());",
        "failed, and nothing was wrong: .*deadline passed",
    ),
    Bug(
        "the hosts' sums are added in another order on each host",
        "collectives/operation.cc",
        "  std::vector<Part> parts = parts_of(piece, state.sums);\n",
        "  std::swap(state.sums[0], state.sums[static_cast<std::size_t>(my_host_)]);\n"
        "  std::vector<Part> parts = parts_of(piece, state.sums);\n",
        "another result than the reference",
    ),
    Bug(
        "a rank that waits for another is suspected itself",
        "collectives/group_faults.cc",
        "return rank != rank_ && !witnesses.contains(rank);",
        "return rank != rank_;",
        "blames another rank than",
    ),
    Bug(
        "a broadcast does not wait until all ranks have made the call",
        "collectives/plan.cc",
        "bytes, layout, options);\n      plan.pieces.push_back(barrier_piece(layout.hosts.size(), rotation));",
        "bytes, layout, options);\n      if (bytes == 0) {\n"
        "        plan.pieces.push_back(barrier_piece(layout.hosts.size(), rotation));\n      }",
        "was complete before rank",
    ),
    Bug(
        "messages of one tag are all taken for the first",
        "collectives/mail.cc",
        "next_out_[{part.peer, tag}]++",
        "next_out_[{part.peer, tag}]",
        "failed, and nothing was wrong|another result than the reference",
    ),
    Bug(
        "a group that fails forgets the calls that had not begun",
        "collectives/group_faults.cc",
        "  std::ranges::for_each(queue_, end_waiting);\n",
        "",
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
        "an agent gives a result's memory back before it has its own copy",
        "shm/shm_reducer.cc",
        "    results_.erase(found);\n    copy_out(",
        "    results_.erase(found);\n    regions_->release(offset);\n    copy_out(",
        "another result than the reference",
    ),
    Bug(
        "a window gets no room where the others have a piece before its origin",
        "collectives/operation.cc",
        "at(piece).origin == rank_ ? 1 : 0;",
        "at(piece).origin == rank_ && credited_.contains(piece) ? 1 : 0;",
        "failed, and nothing was wrong: .*deadline passed",
    ),
)


def copy_changed(source: str, target: str) -> str:
    """Leaves a file alone that is the same, and its time with it: an older one would not be compiled again."""
    if not Path(target).exists() or Path(target).read_bytes() != Path(source).read_bytes():
        shutil.copyfile(source, target)
    return target


def copy_sources() -> None:
    for folder in ("engine", "world", "model", "tests", "include", "adapters", "fuzz", "benchmarks"):
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
    """What is said of the bug, and whether all is as it should be."""
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
    parser.add_argument("--show", action="store_true", help="print what the world says of each")
    options = parser.parse_args()
    copy_sources()
    right = True
    count = 0
    for bug in BUGS:
        if options.only not in bug.name:
            continue
        count += 1
        file = SOURCE / "engine" / bug.file
        text = file.read_text()
        if text.count(bug.right) != 1:
            print(f"{bug.name}\n    the edit does not apply: {bug.file} has its text {text.count(bug.right)} times")
            right = False
            continue
        file.write_text(text.replace(bug.right, bug.wrong))
        try:
            build()
            output = explore(options.seeds)
        finally:
            file.write_text(text)
        said, is_right = judge(bug, output)
        right = right and is_right
        print(f"{bug.name}\n    {said}", flush=True)
        if options.show:
            print(output, flush=True)
    print(f"{count} planted bugs, {'each found' if right else 'NOT ALL AS THEY SHOULD BE'}")
    return 0 if right and count > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
