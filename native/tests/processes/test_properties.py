"""Properties of all_reduce for any type, reduction, size, layout and group, found by hypothesis.

The expectation is written a second time here, in numpy, so that it shares nothing with the engine's kernels nor
with the C++ reference: within a host by local rank in float32, rounded; then the hosts in order, rounded once more.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import Callable, Dict, List, Tuple

import c_interface
import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ports import free_port

LAYOUTS = [(1,), (3,), (2, 2), (3, 1), (1, 1, 2)]
FLOATS = {"float32", "float64", "float16", "bfloat16"}

# Pieces of 4 KiB and whole sums up to 1 KiB: a few KiB cover all code paths, which otherwise need megabytes.
SMALL_PIECES = {"SMDP_PIECE_KIB": "4", "SMDP_SMALL_KIB": "1", "SMDP_ARENA_MIB": "16"}


class Job:
    """The ranks of a layout, as threads; all examples use the same ranks."""

    def __init__(self, layout: Tuple[int, ...]) -> None:
        self.host_of = [host for host, ranks in enumerate(layout) for _ in range(ranks)]
        self.pool = ThreadPoolExecutor(len(self.host_of))
        library = c_interface.Library(c_interface.installed())
        port = free_port()

        def open_rank(rank: int) -> c_interface.Engine:
            options = c_interface.options_of(f"host-{self.host_of[rank]}", port, SMALL_PIECES)
            return c_interface.Engine(library, rank, len(self.host_of), options)

        self.engines = list(self.pool.map(open_rank, range(len(self.host_of))))

    def all_reduce(self, members: List[int], inputs: List["np.ndarray"], dtype: str, op: str) -> List["np.ndarray"]:
        def call(at: int) -> "np.ndarray":
            engine = self.engines[members[at]]
            group = engine.group(members, "example")
            try:
                return engine.all_reduce(group, inputs[at], dtype, op)
            finally:
                engine.destroy(group)

        return list(self.pool.map(call, range(len(members))))


JOBS: Dict[Tuple[int, ...], Job] = {}


def job_of(layout: Tuple[int, ...]) -> Job:
    if layout not in JOBS:
        JOBS[layout] = Job(layout)
    return JOBS[layout]


def teardown_module() -> None:
    for job in JOBS.values():
        list(job.pool.map(lambda engine: engine.close(), job.engines))
        job.pool.shutdown()
    JOBS.clear()


def wide(data: "np.ndarray", dtype: str) -> "np.ndarray":
    if dtype == "bfloat16":
        return (data.astype(np.uint32) << 16).view(np.float32)
    return data.astype(np.float32) if dtype == "float16" else data


def rounded(values: "np.ndarray", dtype: str) -> "np.ndarray":
    """Round to the wire type, to nearest with ties to even; all NaNs have one bit pattern."""
    if dtype == "bfloat16":
        bits = values.view(np.uint32).astype(np.uint64)
        narrow = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
        return np.where(np.isnan(values), np.uint16(0x7FC0), narrow)
    if dtype in FLOATS:
        with np.errstate(over="ignore", invalid="ignore"):
            narrow = values.astype(dtype)
        return np.where(np.isnan(narrow), np.array(np.nan, narrow.dtype), narrow)
    return values


FOLDS: Dict[str, Callable[["np.ndarray", "np.ndarray"], "np.ndarray"]] = {
    "sum": lambda a, b: a + b,
    "avg": lambda a, b: a + b,
    "product": lambda a, b: a * b,
    # The engine's definition: the first of equal values; a NaN on either side gives NaN.
    "min": lambda a, b: np.where((b < a) | np.isnan(b), b, a),
    "max": lambda a, b: np.where((b > a) | np.isnan(b), b, a),
    "band": lambda a, b: a & b,
    "bor": lambda a, b: a | b,
    "bxor": lambda a, b: a ^ b,
}


def expected(inputs: List["np.ndarray"], hosts: List[int], dtype: str, op: str) -> "np.ndarray":
    if dtype == "bool":
        inputs = [(data != 0).astype(np.uint8) for data in inputs]
        op = {"sum": "bor", "max": "bor", "product": "band", "min": "band"}.get(op, op)
    order = list(dict.fromkeys(hosts))
    size, by = len(inputs), 1
    if op == "avg" and dtype in ("float16", "bfloat16"):
        # Each host's sum by the least factor of the ranks that is not below the most of a host: no sum overflows.
        by = next(one for one in range(max(map(hosts.count, order)), size + 1) if size % one == 0)

    def divided(total: "np.ndarray", divisor: int) -> "np.ndarray":
        return (total / total.dtype.type(divisor)).astype(total.dtype) if divisor > 1 else total

    with np.errstate(all="ignore"):
        sums = [reduce(FOLDS[op], [wide(d, dtype) for d, h in zip(inputs, hosts) if h == host]) for host in order]
        total = reduce(FOLDS[op], [wide(rounded(divided(one, by), dtype), dtype) for one in sums])
        if op == "avg" and dtype in FLOATS:
            total = divided(total, size // by)
        elif op == "avg":
            total = np.array([int(abs(int(t)) // size) * (1 if t >= 0 else -1) for t in total], total.dtype)
    return rounded(total, dtype)


def offered(dtype: str, op: str) -> bool:
    if op in ("band", "bor", "bxor"):
        return dtype not in FLOATS
    return not (op == "avg" and dtype == "bool")


def storage(dtype: str) -> "np.dtype":
    return np.dtype({"bfloat16": "uint16", "bool": "uint8"}.get(dtype, dtype))


@st.composite
def examples(draw: st.DrawFn) -> Tuple[Tuple[int, ...], List[int], str, str, int, int]:
    layout = draw(st.sampled_from(LAYOUTS))
    members = draw(st.permutations(range(sum(layout))))
    size = draw(st.integers(1, len(members)))
    dtype, op = draw(
        st.tuples(st.sampled_from(c_interface.DTYPES), st.sampled_from(c_interface.OPS)).filter(lambda p: offered(*p))
    )
    count = draw(st.one_of(st.integers(0, 40), st.integers(0, 20_000)))
    return layout, members[:size], dtype, op, count, draw(st.integers(0, 2**32 - 1))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(examples())
def test_every_rank_gets_the_defined_bits(
    example: Tuple[Tuple[int, ...], List[int], str, str, int, int],
) -> None:
    layout, members, dtype, op, count, seed = example
    job = job_of(layout)
    random = np.random.default_rng(seed)
    # Any bits: of floating types they are numbers of every size, infinities, NaNs and subnormals.
    inputs = [np.frombuffer(random.bytes(count * storage(dtype).itemsize), storage(dtype)).copy() for _ in members]
    want = expected(inputs, [job.host_of[member] for member in members], dtype, op)
    for rank, got in zip(members, job.all_reduce(members, inputs, dtype, op)):
        assert got.tobytes() == want.tobytes(), f"rank {rank}"


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 5000), st.integers(0, 2**32 - 1), st.permutations(range(4)))
def test_sums_of_whole_numbers_do_not_depend_on_the_order(count: int, seed: int, members: List[int]) -> None:
    random = np.random.default_rng(seed)
    inputs = [random.integers(-(2**31), 2**31, count, dtype=np.int32) for _ in members]
    with np.errstate(over="ignore"):
        want = reduce(lambda a, b: a + b, inputs)
    for got in job_of((2, 2)).all_reduce(members, inputs, "int32", "sum"):
        assert (got == want).all()
