"""One of many workers: an all_reduce of 4 KiB and a barrier through the engine's C interface, both checked."""

import ctypes
import os
import sys
from pathlib import Path

import smdp_engine

ELEMENTS = 1024  # of 4 bytes
FLOAT32, SUM, ALL_REDUCE, BARRIER = 0, 0, 0, 4


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("message", ctypes.c_char * 2044)]


class Config(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("rank", ctypes.c_int),
        ("world_size", ctypes.c_int),
        ("master", ctypes.c_char_p),
        ("store", ctypes.c_void_p),
        ("log", ctypes.c_void_p),
        ("log_context", ctypes.c_void_p),
        ("options", ctypes.c_void_p),
    ]


class Call(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("collective", ctypes.c_int),
        ("dtype", ctypes.c_int),
        ("op", ctypes.c_int),
        ("root", ctypes.c_int),
        ("count", ctypes.c_uint64),
        ("input", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("timeout_s", ctypes.c_double),
        ("done", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("step", ctypes.c_uint32),
        ("index", ctypes.c_uint32),
        ("buffers", ctypes.c_uint32),
    ]


def main() -> None:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    engine = ctypes.CDLL(str(Path(smdp_engine.__file__).with_name("libsmdp_engine.so")))
    error, handle, group = Error(), ctypes.c_void_p(), ctypes.c_void_p()

    def check(code: int) -> None:
        if code:
            sys.exit(f"engine: {error.message.decode()}")

    config = Config(ctypes.sizeof(Config), rank, size, os.environ["MASTER_ADDR"].encode())
    check(engine.smdp_engine_open(ctypes.byref(config), ctypes.byref(handle), ctypes.byref(error)))
    engine.smdp_engine_host_count.argtypes = [ctypes.c_void_p]
    hosts = engine.smdp_engine_host_count(handle)
    if hosts * int(os.environ["LOCAL_WORLD_SIZE"]) != size:
        sys.exit(f"the engine sees {hosts} hosts for {size} ranks")
    members = (ctypes.c_int * size)(*range(size))
    timeout = ctypes.c_double(0)
    check(engine.smdp_group_create(handle, members, size, b"world", timeout, ctypes.byref(group), ctypes.byref(error)))
    values = (ctypes.c_float * ELEMENTS)(*[rank + 1.0] * ELEMENTS)
    address = ctypes.cast(values, ctypes.c_void_p)
    reduce_ = Call(ctypes.sizeof(Call), ALL_REDUCE, FLOAT32, SUM, 0, ELEMENTS, address, address)
    for call in (reduce_, Call(ctypes.sizeof(Call), BARRIER)):
        operation = ctypes.c_void_p()
        check(engine.smdp_submit(group, ctypes.byref(call), ctypes.byref(operation), ctypes.byref(error)))
        check(engine.smdp_operation_wait(operation, ctypes.c_double(-1), ctypes.byref(error)))
        engine.smdp_operation_release(operation)
    expected = size * (size + 1) / 2
    if set(values) != {expected}:
        sys.exit(f"rank {rank}: the sum is {sorted(set(values))}, expected {expected}")
    print("checked", hosts, flush=True)
    engine.smdp_group_destroy(group)
    engine.smdp_engine_close(handle)


main()
