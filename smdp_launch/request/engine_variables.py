"""The environment variables that the native engine reads when it opens, and the values that it accepts.

The engine's own table is native/engine/base/options.cc; a test compares the two."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

#: The longest time in seconds, and the longest heartbeat.
_LONGEST, _LONGEST_HEARTBEAT = 30 * 86400, 3600
_NO_BOUND = 9e15


class EngineVariable(NamedTuple):
    """A variable, with the least and the greatest number, or the words that it may have (none: any text).

    Args:
        note: what one of the words means, for a help.
    """

    kind: Literal["text", "switch", "integer", "number"] = "text"
    least: float = 0
    most: float = 0
    words: tuple[str, ...] = ()
    note: str = ""

    def allowed(self) -> str:
        """What the variable may have, for a help."""
        if self.kind == "switch":
            return "0 or 1"
        if self.kind == "text":
            return f"one of {', '.join(one or 'nothing' for one in self.words)}{self.note}"
        kind = "an integer" if self.kind == "integer" else "a number"
        return f"{kind} from {self.least:g} to {self.most:.0f}"

    def accepts(self, value: str) -> bool:
        if self.kind == "switch":
            return value in ("0", "1")
        if self.kind == "text":
            return not self.words or value in self.words
        form = r"-?\d{1,18}" if self.kind == "integer" else r"-?(\d{1,18}(\.\d{0,18})?|\.\d{1,18})(e[+-]?\d{1,2})?"
        if re.fullmatch(form, value, re.ASCII | re.IGNORECASE) is None:
            return False
        return self.least <= float(value) <= self.most


ENGINE_VARIABLES = {
    "SMDP_INTERFACE": EngineVariable(),
    "SMDP_TRANSPORT": EngineVariable(words=("auto", "tcp", "ofi"), note="; auto uses EFA if every host has it"),
    "SMDP_LIBFABRIC": EngineVariable(),
    "SMDP_FABRIC_WRITES": EngineVariable("switch"),
    "SMDP_FABRIC_RAILS": EngineVariable("integer", 0, 8),
    "SMDP_PORT_RANGE": EngineVariable(),
    "SMDP_IPV6": EngineVariable("switch"),
    "SMDP_RENDEZVOUS_PORT": EngineVariable("integer", 1, 65535),
    "SMDP_RENDEZVOUS_TIMEOUT_S": EngineVariable("number", 0.01, _LONGEST),
    "SMDP_REFUSAL_GRACE_S": EngineVariable("number", -1, _LONGEST),
    "SMDP_OPERATION_TIMEOUT_S": EngineVariable("number", 0.01, _LONGEST),
    "SMDP_WARN_S": EngineVariable("number", 0.01, _LONGEST),
    "SMDP_HEARTBEAT_S": EngineVariable("number", 0.1, _LONGEST_HEARTBEAT),
    "SMDP_CLOSE_TIMEOUT_S": EngineVariable("number", 0, _LONGEST),
    "SMDP_STREAMS": EngineVariable("integer", 1, 16),
    "SMDP_PIECE_KIB": EngineVariable("integer", 4, 65536),
    "SMDP_SMALL_KIB": EngineVariable("integer", 0, 65536),
    "SMDP_BULK_KIB": EngineVariable("integer", 64, 1 << 20),
    "SMDP_WINDOW": EngineVariable("integer", 1, 4096),
    "SMDP_BUFFERS_IN_FLIGHT": EngineVariable("integer", 1, 1024),
    "SMDP_ARENA_MIB": EngineVariable("integer", 16, 1 << 20),
    "SMDP_REGISTERED_MIB": EngineVariable("integer", 0, 1 << 20),
    "SMDP_LOCAL_REDUCER": EngineVariable(words=("shm", "nccl", "gloo", "smddp")),
    "SMDP_WIRE_DTYPE": EngineVariable(words=("", "bfloat16", "float16")),
    "SMDP_CONGESTION": EngineVariable(),
    "SMDP_PIN_CPU": EngineVariable("integer", -1, 4095),
    "SMDP_COPY_THREADS": EngineVariable("integer", -1, 64),
    "SMDP_SPIN_US": EngineVariable("integer", 0, 1000000),
    "SMDP_KERNELS": EngineVariable(words=("auto", "portable", "avx2", "avx512", "neon")),
    "SMDP_HOST_ID": EngineVariable(),
    "SMDP_JOB_TOKEN": EngineVariable(),
    "SMDP_GENERATION": EngineVariable("integer", 0, _NO_BOUND),
    "SMDP_FLIGHT_RECORDS": EngineVariable("integer", 0, 1000000),
    "SMDP_TRACE_DIR": EngineVariable(),
    "SMDP_TRACE_SIGNAL": EngineVariable(words=("", "USR1", "USR2", "QUIT", "HUP")),
    "SMDP_TIMELINE": EngineVariable(),
    "SMDP_TIMELINE_MIB": EngineVariable("integer", 1, 1 << 20),
    "SMDP_COUNTERS_S": EngineVariable("number", 0, _LONGEST),
    "SMDP_VERBOSE": EngineVariable("switch"),
}

#: SMDP_PIECE_KIB and SMDP_SMALL_KIB are at most this fraction of SMDP_ARENA_MIB.
PIECES_IN_ARENA = 16

#: Variables of the entrypoint, of the packages in the container and of the local cloud, which a job may set or get.
OTHER_VARIABLES = frozenset(
    f"SMDP_{one}"
    for one in (
        *("ADAPTER_CACHE", "CHECKPOINT_DIR", "CONTROL_PORT", "CUDA_ON_CPU", "ENGINE_BUILD", "EVENT_PIPE"),
        *("HANG", "HANG_AFTER_S", "HANG_FACTOR", "HEALTH_CHECK", "HOSTS_TIMEOUT", "MASTER_PORT", "NETWORK_GBIT"),
        *("NETWORK_ONLY", "NETWORK_PROBE_S", "NETWORK_REQUIRE", "NETWORK_WAIT_S", "PROBE_FOLDER", "REHEARSED_HANG"),
        *("REQUIRE_GPU", "RETRIES", "SERVE_ADDRESS", "SERVE_QUEUE", "SERVE_TOKEN", "STACKS", "STOP_BUDGET"),
        *("TIMING_COUNTERS", "TIMING_LOADER", "TIMING_S", "TORCH_FROM", "TRACKING_EXIT_S", "WORKERS_PER_HOST"),
    )
)
