"""What every rank runs with tensors of a late device whose copies go through registered memory."""

CASES = {
    "the memory is registered at the first call with a tensor of the device": """
dist.all_reduce(torch.ones(3))
assert late_device.registered() == 0
dist.all_reduce(t := slowly(torch.ones(3))); assert same(t, torch.full((3,), float(size)))
assert late_device.registered() == 256 << 20
""",
    "memory is not reused before the copies back are complete": """
out = [empty(SMALL) for _ in range(3)]
for t in out: t.cpu()  # wait until it is created
for round in range(3):
    late_device.hold(rank != 0)  # from here on no copy to the device is made
    for i in range(3): dist.broadcast(slowly(torch.full((SMALL,), 10.0 * round + i)) if rank == 0 else out[i], 0)
    late_device.hold(False)
    for i in range(3): assert rank == 0 or same(out[i], torch.full((SMALL,), float(10 * round + i))), (round, i)
    dist.barrier()
""",
    "loose tensors are packed and copied as one": """
ts = [slowly(mine(100 + i)) for i in range(20)]
before = late_device.copies()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    dist.all_reduce_coalesced(ts)
to_host, to_device = (after - first for after, first in zip(late_device.copies(), before))
assert (to_host, to_device) == (1, 1), (to_host, to_device)
assert all(same(t, summed(100 + i)) for i, t in enumerate(ts))
mixed = [slowly(mine(SMALL)), slowly(mine(3000).view(3, 1000)).t(), slowly(mine(7))]
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    dist.all_reduce_coalesced(mixed)
assert same(mixed[0], summed(SMALL)) and same(mixed[1], summed(3000).view(3, 1000).t()) and same(mixed[2], summed(7))
""",
    "few copies are queued ahead of the exchange": """
group = dist.new_group()
t = slowly(torch.ones(40 << 20, dtype=torch.uint8))  # ten pieces
t.cpu()
before = late_device.copies()[0]
late_device.hold(True)
work = dist.all_reduce(t, group=group, async_op=True)
while late_device.copies()[0] == before: time.sleep(0.001)
time.sleep(0.1)
queued = late_device.copies()[0] - before
assert queued <= 3, queued  # the piece of the first call, and 8 MiB
late_device.hold(False)
work.wait(); assert (t.cpu() == size).all()
""",
    "a graph is recorded on another thread": """
group = dist.new_group()  # broken for good by a query that is refused
t = slowly(mine(SMALL))
meet("all have it")
if rank != 0: time.sleep(0.05)
late_device.record_elsewhere(True)
work = dist.all_reduce(t, group=group, async_op=True)
work.wait()
late_device.record_elsewhere(False)
assert same(t, summed(SMALL))
dist.all_reduce(t := slowly(mine(SMALL)), group=group); assert same(t, summed(SMALL))
""",
    "the stream waits for the work where the host is asked not to": """
out = empty(SMALL)
out.cpu()
work = dist.broadcast(slowly(mine(SMALL, of=0)) if rank == 0 else out, src=0, async_op=True)
if hasattr(work, "block_current_stream"):
    work.block_current_stream()
    assert rank == 0 or same(torch.empty_like(out).copy_(out), mine(SMALL, of=0))
work.wait()
""",
    "a device that fails before the results are noted fails the future": """
group = dist.new_group()
t = slowly(mine(SMALL))
if rank == 0:
    before = late_device.copies()[0]
    future = dist.broadcast(t, src=0, group=group, async_op=True).get_future()
    while late_device.copies()[0] == before: time.sleep(0.001)
    time.sleep(0.05)  # in which the end of the copies is recorded
    late_device.fail_records(True)
    meet("the device fails")
    try:
        future.wait()
        raise AssertionError("it ended")
    except RuntimeError as error:
        assert "the device failed" in str(error), error
    late_device.fail_records(False)
else:
    meet("the device fails")
    dist.broadcast(t, src=0, group=group); assert same(t, mine(SMALL, of=0))
meet("the device works again")
""",
    "more tensors than the registered memory holds": """
works = [(t, dist.all_reduce(t, async_op=True)) for t in [slowly(mine(LARGE)) for _ in range(4)]]
for t, work in works: work.wait(); assert same(t, summed(LARGE))
""",
    "loose tensors that were released are not reused too early": """
ts = [slowly(mine(count)) for count in (LARGE, LARGE + 1)]
for t in ts: t.cpu()
back = late_device.next_stream() % 8 + 1  # the stream of the copies back
late_device.delay_stream(back, 600)
# Not through torch.distributed, which makes a future. It would note the tensors too.
work = dist.group.WORLD._get_backend(device).allreduce_coalesced(ts)
late_device.keep_released(True)
del ts, t, work  # no stream of the caller waits for them
while late_device.count_released() == 0: time.sleep(0.01)  # the last copies are queued
late_device.synchronize_stream(back)
time.sleep(0.3)
pieces, written = late_device.released()
assert written == 0, (pieces, written)
late_device.keep_released(False)
late_device.delay_stream(back, 3)
""",
    "packed tensors are divided before their memory is released": """
ts = [slowly(mine(1000 + i)) for i in range(4)]
for t in ts: t.cpu()
back = late_device.next_stream() % 8 + 1
late_device.delay_stream(back, 200)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    dist.all_reduce_coalesced(ts)
assert all(same(t, summed(1000 + i)) for i, t in enumerate(ts))
late_device.delay_stream(back, 3)
""",
    "memory of a failed call is not used again": """
late, other = dist.new_group(timeout=datetime.timedelta(seconds=1)), dist.new_group()
t, u = slowly(mine(SMALL)), slowly(torch.full((SMALL,), 5.0))
t.cpu(); u.cpu()
leaving = late_device.next_stream()  # the stream of the copies to the host
late_device.hold_stream(leaving, True)
try:
    dist.all_reduce(t, group=late)
    raise AssertionError("it ended")
except RuntimeError as error:
    assert "the device has not finished" in str(error), error
time.sleep(0.1)  # in which memory that nothing waits for is free
if rank == 0:
    work = dist.all_reduce(u, group=other, async_op=True)
    time.sleep(0.2)  # its values are on the host
    late_device.hold_stream(leaving, False)  # the copy of the failed call is made
    late_device.synchronize_stream(leaving)
meet("the late copy was made")
if rank != 0:
    late_device.hold_stream(leaving, False)
    work = dist.all_reduce(u, group=other, async_op=True)
work.wait()
assert same(u, torch.full((SMALL,), 5.0 * size))
""",
}
SMALL_MEMORY = "more tensors than the registered memory holds"
