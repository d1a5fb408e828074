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
    "more tensors than the registered memory holds": """
works = [(t, dist.all_reduce(t, async_op=True)) for t in [slowly(mine(LARGE)) for _ in range(4)]]
for t, work in works: work.wait(); assert same(t, summed(LARGE))
""",
}
SMALL_MEMORY = "more tensors than the registered memory holds"
