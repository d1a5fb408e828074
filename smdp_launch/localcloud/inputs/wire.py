"""The messages between the kernel and a file system server (FUSE), as in the kernel's include/uapi/linux/fuse.h.

Only what a read-only file system needs. All numbers are in the machine's byte order.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

MAJOR = 7
#: The version that the server answers; its messages stay as they are in later kernels.
MINOR = 31
_OLDEST_MINOR = 23  # from this version on, the answer to INIT has its present length

#: Bytes of one read. The kernel asks for no more, since INIT limits the pages of a request.
LARGEST_READ = 1 << 20
_PAGE = 4096
_SMALLEST_WRITE = 4096  # the kernel's least value of max_write
#: Bytes of the longest request to a server that refuses to write; the kernel demands 8 KiB at least.
LONGEST_REQUEST = 16384

# Capabilities, in the flags of INIT.
ASYNC_READ, AUTO_INVAL_DATA = 1 << 0, 1 << 12
DO_READDIRPLUS, READDIRPLUS_AUTO, PARALLEL_DIROPS = 1 << 13, 1 << 14, 1 << 18
MAX_PAGES, CACHE_SYMLINKS = 1 << 22, 1 << 23

OPEN_KEEP_CACHE, OPEN_CACHE_DIR = 1 << 1, 1 << 3

_IN = struct.Struct("=IIQQIIIHH")
_OUT = struct.Struct("=IiQ")
_INIT_IN = struct.Struct("=IIII")
_INIT_OUT = struct.Struct("=IIIIHHIIHHIIH22x")
_ATTR = struct.Struct("=QQQQQQIIIIIIIIII")
_ENTRY = struct.Struct("=QQQQII")
_ATTR_OUT = struct.Struct("=QII")
_OPEN_OUT = struct.Struct("=QII")
_READ_IN = struct.Struct("=QQIIQII")
_DIRENT = struct.Struct("=QQII")
_STATFS = struct.Struct("=QQQQQIIII24x")
_U32, _U64 = struct.Struct("=I"), struct.Struct("=Q")
_PAIR = struct.Struct("=QQ")

HEADER = _IN.size


class Op(IntEnum):
    """The requests that the server knows; the ones in `WRITES` change something."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    READLINK = 5
    SYMLINK = 6
    MKNOD = 8
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    LINK = 13
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    SETXATTR = 21
    REMOVEXATTR = 24
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    ACCESS = 34
    CREATE = 35
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42
    FALLOCATE = 43
    READDIRPLUS = 44
    RENAME2 = 45
    COPY_FILE_RANGE = 47
    TMPFILE = 51


WRITES = frozenset(
    [
        *(Op.SETATTR, Op.SYMLINK, Op.MKNOD, Op.MKDIR, Op.UNLINK, Op.RMDIR, Op.RENAME, Op.LINK, Op.WRITE),
        *(Op.SETXATTR, Op.REMOVEXATTR, Op.CREATE, Op.FALLOCATE, Op.RENAME2, Op.COPY_FILE_RANGE, Op.TMPFILE),
    ]
)
#: The kernel waits for no answer to these.
UNANSWERED = frozenset({Op.FORGET, Op.BATCH_FORGET, Op.INTERRUPT})


class Malformed(Exception):
    """A message that no kernel sends."""


@dataclass(frozen=True)
class Request:
    """`node`: the file that the request is about. `body`: what follows the header."""

    op: int
    unique: int
    node: int
    body: bytes

    @staticmethod
    def parse(message: bytes) -> Request:
        """Raises Malformed."""
        if len(message) < HEADER:
            raise Malformed("shorter than a header")
        length, op, unique, node, *_ = _IN.unpack_from(message)
        if length != len(message):
            raise Malformed("a wrong length")
        return Request(op, unique, node, message[HEADER:])

    def name(self) -> bytes:
        """The name of LOOKUP. Raises Malformed."""
        name, end, _ = self.body.partition(b"\0")
        if not end or not name or b"/" in name:
            raise Malformed("no name")
        return name

    def init(self) -> tuple[int, int, int, int]:
        """Major and minor version, bytes of read-ahead, and capabilities of the kernel. Raises Malformed."""
        return self._unpack(_INIT_IN)  # type: ignore[return-value]

    def read(self) -> tuple[int, int, int]:
        """Handle, offset and size of READ and READDIR, the size at most `LARGEST_READ`. Raises Malformed."""
        handle, offset, size, *_ = self._unpack(_READ_IN)
        if offset >= 1 << 63:
            raise Malformed("an offset beyond every file")
        return handle, offset, min(size, LARGEST_READ)

    def number(self) -> int:
        """The first 64 bits: a handle, or a count of lookups. Raises Malformed."""
        return int(self._unpack(_U64)[0])

    def flags(self) -> int:
        """The first 32 bits. Raises Malformed."""
        return int(self._unpack(_U32)[0])

    def forgotten(self) -> list[tuple[int, int]]:
        """The node and the count of lookups of each entry of BATCH_FORGET. Raises Malformed."""
        count, entries = self.flags(), self.body[8:]
        if count * _PAIR.size > len(entries):
            raise Malformed("fewer entries than it says")
        return [(int(node), int(lookups)) for node, lookups in _PAIR.iter_unpack(entries[: count * _PAIR.size])]

    def _unpack(self, form: struct.Struct) -> tuple[int, ...]:
        if len(self.body) < form.size:
            raise Malformed("too short")
        return form.unpack_from(self.body)


@dataclass(frozen=True)
class Attributes:
    """Of one file. `size` in bytes, `modified` in nanoseconds since 1970, `mode` with the kind of the file."""

    inode: int
    mode: int
    size: int
    modified: int
    owner: int = 0
    group: int = 0

    def pack(self) -> bytes:
        seconds, rest = divmod(max(0, self.modified), 1_000_000_000)
        return _ATTR.pack(
            *(self.inode, self.size, -(-self.size // 512)),
            *(seconds, seconds, seconds, rest, rest, rest),
            *(self.mode, 1, self.owner, self.group, 0, _PAGE, 0),
        )


def answer(unique: int, error: int, length: int = 0) -> bytes:
    """The header of an answer with `length` more bytes. `error`: a positive errno, or 0."""
    return _OUT.pack(_OUT.size + length, -error, unique)


def init_answer(minor: int, read_ahead: int, flags: int) -> bytes:
    """Raises Malformed for a kernel that is too old (before Linux 3.15)."""
    if minor < _OLDEST_MINOR:
        raise Malformed("a kernel that is too old")
    pages = LARGEST_READ // _PAGE
    return _INIT_OUT.pack(MAJOR, min(minor, MINOR), read_ahead, flags, 64, 48, _SMALLEST_WRITE, 1, pages, 0, 0, 0, 0)


def entry(attributes: Attributes, valid: int) -> bytes:
    """The answer to LOOKUP. `valid`: the seconds for which the kernel may use it again."""
    return _ENTRY.pack(attributes.inode, 0, valid, valid, 0, 0) + attributes.pack()


def attributes_answer(attributes: Attributes, valid: int) -> bytes:
    return _ATTR_OUT.pack(valid, 0, 0) + attributes.pack()


def open_answer(handle: int, flags: int) -> bytes:
    return _OPEN_OUT.pack(handle, flags, 0)


def statfs_answer(files: int, size: int) -> bytes:
    """`size`: bytes of all files together."""
    return _STATFS.pack(-(-size // _PAGE), 0, 0, files, 0, _PAGE, 255, _PAGE, 0)


def directory_entry(inode: int, following: int, kind: int, name: bytes) -> bytes:
    """`following`: the offset of the next entry. `kind`: the file's mode shifted right by 12 bits."""
    return _DIRENT.pack(inode, following, len(name), kind) + name + bytes(-len(name) % 8)
