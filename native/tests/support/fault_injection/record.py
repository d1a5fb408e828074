"""The record that the fault injector (injector.cc) shares with the process that checks the outcome."""

import ctypes


class Record(ctypes.Structure):
    """The same structure as in the injector."""

    _fields_ = [
        ("injected_ns", ctypes.c_int64),
        ("resumed_ns", ctypes.c_int64),
        ("link_requested", ctypes.c_int),
        ("link_cut", ctypes.c_int),
        ("seen", ctypes.c_int * 6),
    ]
