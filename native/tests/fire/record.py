"""What strike.cc tells and is told, in memory that its process shares with whoever judges it."""

import ctypes


class Record(ctypes.Structure):
    """As in strike.cc."""

    _fields_ = [
        ("struck_ns", ctypes.c_int64),
        ("link_wanted", ctypes.c_int),
        ("link_cut", ctypes.c_int),
        ("seen", ctypes.c_int * 6),
    ]
