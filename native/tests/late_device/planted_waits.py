"""Removes the waits of the torch adapter for a device one at a time: a job on the late device must fail each time.

    planted_waits.py [--only NAME]

The sources of the adapter are copied to native/build/planted_waits and edited there. Each edit takes effect only when
SMDP_PLANTED has its name, so all of them are compiled once. Prints for each the case that failed; exits with 1 if an
edit does not apply any more, or if its job passes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

NATIVE = Path(__file__).resolve().parents[2]
ADAPTERS = NATIVE / "adapters"
FOLDER = NATIVE / "build" / "planted_waits"
sys.path[:0] = [str(NATIVE / "tests" / "support"), str(Path(__file__).parent)]


@dataclass(frozen=True)
class Wait:
    name: str
    file: str  # below native/adapters/torch
    right: str
    wrong: str  # {planted} becomes the condition
    cases: tuple[str, ...]  # those that must find it, of all_cases()
    env: dict[str, str] = field(default_factory=dict)


LOCAL_FIRST = {"SMDP_LOCAL_REDUCER": "smddp"}
WAITS = (
    Wait(
        "the copies to the host wait for the caller's stream",
        "staging.h",
        "    queued.block(leaving_);\n",
        "    if (!({planted})) queued.block(leaving_);\n",
        ("sums",),
    ),
    Wait(
        "the copies back wait for the caller's stream",
        "staging.h",
        "    queued.block(returning_);\n",
        "    if (!({planted})) queued.block(returning_);\n",
        ("outputs that the caller's stream still writes",),
    ),
    Wait(
        "a call waits for its copies to the host",
        "staging.h",
        "copied && !copied->query()) {{",
        "copied && !({planted}) && !copied->query()) {{",
        ("sums",),
    ),
    Wait(
        "the caller's stream waits for the copies back",
        "work.h",
        "    if (staging_) {{\n      staging_->block_caller();\n    }}\n    return true;\n  }}\n  void synchronize",
        "    if (staging_ && !({planted})) {{\n      staging_->block_caller();\n    }}\n    return true;\n  }}\n"
        "  void synchronize",
        ("waiting blocks the stream and not the host",),
    ),
    Wait(
        "the caller's stream waits when a call is found complete",
        "work.h",
        "if (staging_ && isSuccess()) {{",
        "if (staging_ && !({planted}) && isSuccess()) {{",
        ("waiting blocks the stream and not the host",),
    ),
    Wait(
        "a future's callbacks wait for the copies back",
        "work.h",
        "        copies.emplace(staging_->returning());\n",
        "        if (!({planted})) copies.emplace(staging_->returning());\n",
        ("waiting blocks the stream and not the host",),
    ),
    Wait(
        "a tensor that was released waits for the copies back",
        "staging.h",
        "    if (!used.is_cpu()) {{  // memory",
        "    if (!used.is_cpu() && !({planted})) {{  // memory",
        ("released memory is not reused too early",),
    ),
    Wait(
        "registered memory is not reused before the copies back",
        "host_memory.h",
        "leaving_.front().passed.query()",
        "(({planted}) || leaving_.front().passed.query())",
        ("memory is not reused before the copies back are complete",),
    ),
    Wait(
        "the sum within the host waits for the caller's stream",
        "local_first.h",
        "      queued.block(*beside_);\n",
        "      if (!({planted})) queued.block(*beside_);\n",
        ("sums within the host first",),
        LOCAL_FIRST,
    ),
    Wait(
        "the exchange waits for the sum within the host",
        "local_first.h",
        "      scatter_->_reduce_scatter_base(job.mine, job.flat, options)->wait();\n",
        "      const auto step = scatter_->_reduce_scatter_base(job.mine, job.flat, options);\n"
        "      if (!({planted})) step->wait();\n",
        ("sums within the host first",),
        LOCAL_FIRST,
    ),
    Wait(
        "the distribution within the host waits for the exchange",
        "local_first.h",
        "      work->wait(kNoTimeout);\n    }}\n  }}\n\n  void gather",
        "      if (!({planted})) work->wait(kNoTimeout);\n    }}\n  }}\n\n  void gather",
        ("sums within the host first",),
        LOCAL_FIRST,
    ),
    Wait(
        "the work waits for the distribution within the host",
        "local_first.h",
        "      gather_->_allgather_base(job.flat, job.mine)->wait();\n",
        "      const auto step = gather_->_allgather_base(job.flat, job.mine);\n"
        "      if (!({planted})) step->wait();\n",
        ("sums within the host first",),
        LOCAL_FIRST,
    ),
    Wait(
        "the caller's stream waits for a sum within the host first",
        "local_first.h",
        '"smddp: ", failure_);\n    block_caller();\n',
        '"smddp: ", failure_);\n    if (!({planted})) block_caller();\n',
        ("waiting for a sum within the host first blocks the stream",),
        LOCAL_FIRST,
    ),
    Wait(
        "the caller's stream waits when a sum within the host first is found complete",
        "local_first.h",
        "    if (over_ && failure_.empty()) {{\n      block_caller();",
        "    if (over_ && failure_.empty() && !({planted})) {{\n      block_caller();",
        ("waiting for a sum within the host first blocks the stream",),
        LOCAL_FIRST,
    ),
    Wait(
        "a future's callbacks wait for a sum within the host first",
        "local_first.h",
        "        if (beside_) {{\n          guard.emplace(*beside_);\n        }}\n        future_->markCompleted",
        "        if (beside_ && !({planted})) {{\n          guard.emplace(*beside_);\n        }}\n"
        "        future_->markCompleted",
        ("waiting for a sum within the host first blocks the stream",),
        LOCAL_FIRST,
    ),
)

CASES = {
    "outputs that the caller's stream still writes": """
out = empty(SMALL)
out.cpu()
late_device.use_stream(9)
late_device.hold_stream(9, rank != 0)  # the stream is late
out.copy_(torch.full((SMALL,), 77.0), non_blocking=True)  # the results come after these
work = dist.broadcast(slowly(mine(SMALL, of=0)) if rank == 0 else out, src=0, async_op=True)
work.wait()
late_device.use_stream(0)
time.sleep(0.05)  # in which copies that do not wait are made
late_device.hold_stream(9, False)
late_device.synchronize_stream(9)
assert rank == 0 or same(out, mine(SMALL, of=0))
""",
    "sums within the host first": """
for count in (20_000, 100_001, LARGE):
    for dtype in (torch.float32, torch.float16, torch.int64):
        if count * torch.empty(0, dtype=dtype).element_size() < 65536: continue
        t = slowly(mine(count, dtype)); dist.all_reduce(t); assert same(t, summed(count, dtype)), (count, dtype)
works = [(t, dist.all_reduce(t, async_op=True)) for t in [slowly(mine(50_000 + i)) for i in range(8)]]
for t, work in reversed(works): work.wait(); assert same(t, summed(t.numel())), t.numel()
""",
    "waiting for a sum within the host first blocks the stream": """
def doubled(future): return [2 * t for t in future.value()]
for way in ("wait", "test", "future", "callback"):
    t = slowly(mine(100_001))  # an odd number: the end of the call is a copy on the call's own stream
    t.cpu()
    own = late_device.next_stream()
    late_device.delay_stream(own, 300)
    work = dist.all_reduce(t, async_op=True)
    if way == "wait": work.wait()
    elif way == "future": work.get_future().wait()
    elif way == "callback": t = work.get_future().then(doubled).wait()[0]
    else:
        while not work.is_completed(): time.sleep(0.001)
    assert same(t, summed(100_001) * (2 if way == "callback" else 1)), way
    late_device.delay_stream(own, 3)
""",
}


def all_cases() -> dict[str, str]:
    import device_cases
    import registered_memory_cases

    return {**device_cases.CASES, **device_cases.HELD, **registered_memory_cases.CASES, **CASES}


def edited(text: str, wait: Wait) -> str:
    """The text with the wait, unless SMDP_PLANTED has its name.

    Raises:
        ValueError: the edit does not apply at exactly one place.
    """
    right = wait.right.format()
    if text.count(right) != 1:
        raise ValueError(f"{wait.name}: {wait.file} has its text {text.count(right)} times")
    return text.replace(right, wait.wrong.format(planted=f'smdp_torch::planted("{wait.name}")'))


def write_sources() -> Path:
    sources = FOLDER / "source"
    shutil.rmtree(sources, ignore_errors=True)
    shutil.copytree(ADAPTERS, sources)
    for wait in WAITS:
        file = sources / "torch" / wait.file
        file.write_text(edited(file.read_text(encoding="utf-8"), wait), encoding="utf-8")
    first = sources / "torch" / "device_runtime.h"  # included by all of them
    text = first.read_text(encoding="utf-8")
    function = """#pragma once
#include <cstdlib>
#include <cstring>
namespace smdp_torch {
inline bool planted(const char* name) {
  static const char* const chosen = std::getenv("SMDP_PLANTED");
  return chosen != nullptr && std::strcmp(chosen, name) == 0;
}
}  // namespace smdp_torch
"""
    first.write_text(text.replace("#pragma once\n", function, 1), encoding="utf-8")
    return sources


def build(sources: Path) -> Path:
    """A folder for PYTHONPATH: the installed package with the edited adapter."""
    import smdp_engine
    from smdp_engine.adapters import compiler, files, frameworks

    package = FOLDER / "installed" / "smdp_engine"
    shutil.rmtree(package.parent, ignore_errors=True)
    shutil.copytree(Path(str(smdp_engine.__file__)).parent, package)
    installed = frameworks.installed("torch")
    found = compiler.find()
    adapter = files.fitting(installed) if installed else None
    if installed is None or found is None or adapter is None:
        sys.exit("this needs torch, smdp-engine with an adapter for it, and a compiler")
    command = compiler.command(
        [*found, "-O0"],
        installed,
        package / "_adapters" / adapter.name,
        sources=sources,
        engine_include=NATIVE / "include",
        engine_folder=package,
    )
    command = ["-O0" if part == "-O3" else part for part in command]
    subprocess.run([*command, "-Wl,-rpath,$ORIGIN/.."], check=True)
    return package.parent


def failed_cases(wait: Wait, installed: Path) -> list[str]:
    """The cases of the wait that some rank did not pass without it."""
    import late_job
    import ranks

    cases = {name: all_cases()[name] for name in wait.cases}
    path = os.pathsep.join([str(installed), late_job.path()])
    env = {**wait.env, "SMDP_PLANTED": wait.name, "PYTHONPATH": path}
    outcomes = ranks.start([2, 2], late_job.script(cases), env=env).finish(timeout=280)
    return [name for name in cases if any(f"passed {name}\n" not in outcome.out for outcome in outcomes)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="waits with this in their name")
    parser.add_argument("--built", action="store_true", help="use the adapter of the run before")
    options = parser.parse_args()
    installed = FOLDER / "installed" if options.built else build(write_sources())
    missed = []
    chosen = [wait for wait in WAITS if options.only in wait.name]
    for wait in chosen:
        found = failed_cases(wait, installed)
        print(f"{wait.name}\n    {'found by: ' + ', '.join(found) if found else 'NOT FOUND'}", flush=True)
        missed += [] if found else [wait.name]
    print(f"{len(chosen)} waits removed, {'each found' if not missed else 'NOT ALL FOUND'}")
    return 1 if missed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
