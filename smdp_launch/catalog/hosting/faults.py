"""The fault of a local endpoint, in the form in which a client requests it from the local cloud."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal, get_args

from smdp_launch.catalog.faults import is_amount, read_fault

Kind = Literal["slow-start", "crash", "overload"]

KINDS: tuple[Kind, ...] = get_args(Kind)

#: In a model's Environment: the fault as JSON (`EndpointFault.to_text`). Only the local cloud reads it.
VARIABLE = "SMDP_LOCAL_ENDPOINT_FAULT"


@dataclass(frozen=True)
class EndpointFault:
    """One fault of the hosts that serve one model.

    Args:
        kind: ``slow-start``: the health check of each container fails for `seconds` after its start. ``crash``: the
            container of one host is killed, once, `after` seconds after all hosts are in service. ``overload``:
            `after` seconds after that, requests are refused with ServiceUnavailable for `seconds`.
    """

    kind: Kind
    seconds: float = 0.0
    after: float = 0.0

    def to_text(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def parse(text: str) -> EndpointFault:
        """Read the text that `to_text` writes.

        Raises:
            ValueError: the text is not that of a fault.
        """
        fault = read_fault(EndpointFault, text, KINDS, "a fault of an endpoint")
        if not (is_amount(fault.seconds) and is_amount(fault.after)):
            raise ValueError(f"{text!r} is not a fault of an endpoint: its numbers must be 0 or more")
        return fault
