"""The waits of the torch adapter for a device, which planted_waits.py removes, and the cases that find it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Wait:
    name: str
    file: str  # below native/adapters/torch
    right: str
    wrong: str  # {planted} becomes the condition
    cases: tuple[str, ...]  # those that must find it, of all_cases()
    env: dict[str, str] = field(default_factory=dict)
    end: str = "dist.destroy_process_group()\n"  # the end of the job, which may find it too


HELD_AT_THE_END = """
dist.destroy_process_group()
assert (late_device.registered() > 0) == (rank != 0), late_device.registered()
late_device.hold(False)
print("ended", flush=True)
"""
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
        "if (staging_ && isSuccess()) {{\n      staging_->block_caller();",
        "if (staging_ && !({planted}) && isSuccess()) {{\n      staging_->block_caller();",
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
        "      streams_.recordDataPtrOnStream(used.storage().data_ptr(), returning_);\n",
        "      if (!({planted})) streams_.recordDataPtrOnStream(used.storage().data_ptr(), returning_);\n",
        ("released memory is not reused too early",),
    ),
    Wait(
        "the result of a call that was released waits for its copy back",
        "staging.h",
        "{{from, to}}) {{\n      note_use(used);\n",
        "{{from, to}}) {{\n      if (!({planted})) note_use(used);\n",
        ("released memory is not reused too early", "packed tensors are divided before their memory is released"),
    ),
    Wait(
        "a loose tensor that was released waits for its copy",
        "staging.h",
        "      note_use(tensor);  //",
        "      if (!({planted})) note_use(tensor);  //",
        ("loose tensors that were released are not reused too early",),
    ),
    Wait(
        "the caller's stream waits for the copies back that are queued",
        "staging.h",
        "    copied.block(streams_.getStream(device_));\n",
        "    if (!({planted})) copied.block(streams_.getStream(device_));\n",
        ("waiting blocks the stream and not the host",),
    ),
    Wait(
        "memory of a failed call is not used again",
        "staging.h",
        "*failed ? shared->abandon()",
        "*failed && !({planted}) ? shared->abandon()",
        ("memory of a failed call is not used again",),
    ),
    Wait(
        "memory stays registered while a copy uses it",
        "host_memory.h",
        "bool is_registered = !used_.empty() || lost_;",
        "bool is_registered = (!({planted}) && !used_.empty()) || lost_;",
        ("a copy back is still queued at the end",),
        end=HELD_AT_THE_END,
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
        ("inputs of a sum within the host first that the caller's stream still writes",),
        LOCAL_FIRST,
    ),
    Wait(
        "the steps of a sum within the host first run on the call's stream",
        "local_first.h",
        "        guard.emplace(*beside_);\n      }}\n      step();\n",
        "        if (!({planted})) guard.emplace(*beside_);\n      }}\n      step();\n",
        ("inputs of a sum within the host first that the caller's stream still writes",),
        LOCAL_FIRST,
    ),
    Wait(
        "the caller's stream waits for the steps that are queued",
        "local_first.h",
        "      passed.block(streams_->getStream(beside_->device()));\n",
        "      if (!({planted})) passed.block(streams_->getStream(beside_->device()));\n",
        ("waiting for a sum within the host first blocks the stream",),
        LOCAL_FIRST,
    ),
    Wait(
        "the exchange waits for the sum within the host",
        "local_first.h",
        "options); }});\n      }});\n      within_host([&] {{ step->wait(); }});\n",
        "options); }});\n      }});\n      if (!({planted})) within_host([&] {{ step->wait(); }});\n",
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
        "job.mine); }});\n      }});\n      within_host([&] {{ step->wait(); }});\n",
        "job.mine); }});\n      }});\n      if (!({planted})) within_host([&] {{ step->wait(); }});\n",
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

# Of jobs that sum within the host first.
LOCAL_FIRST_CASES = {
    "inputs of a sum within the host first that the caller's stream still writes": """
late_device.use_stream(9)
t = slowly(mine(LARGE))
t.cpu()
late_device.hold_stream(9, True)  # the stream is late
t.copy_(2 * mine(LARGE), non_blocking=True)
work = dist.all_reduce(t, async_op=True)
time.sleep(0.3)  # in which steps that do not wait are made
late_device.hold_stream(9, False)
work.wait()
assert same(t, 2 * summed(LARGE))
late_device.use_stream(0)
""",
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
# Of a job that ends with HELD_AT_THE_END.
HELD_CASES = {
    "a copy back is still queued at the end": """
out = empty(SMALL)
out.cpu()
work = dist.broadcast(slowly(mine(SMALL, of=0)) if rank == 0 else out, src=0, async_op=True)
late_device.hold(rank != 0)
work.wait()
globals()["out"] = out
""",
}
