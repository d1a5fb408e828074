"""The sections ``hang`` and ``retries``: what happens to a job that stops making progress or fails."""

# No `from __future__ import annotations`: with it, pydantic compiles each string annotation at every start.
from typing import Annotated, Literal

from pydantic import Field

from smdp_launch.jobfile.model.section import Section

Failure = Literal["hardware", "spot", "hang"]


class Hang(Section):
    """A rank hangs if it makes no progress for ``after`` seconds and for ``factor`` times its usual step."""

    action: Annotated[
        Literal["report", "end", "ignore"] | None,
        Field(
            description="Action if a rank hangs. By default `end` if `retries.on` contains hang, otherwise `report`."
        ),
    ] = None
    after: Annotated[
        float | None,
        Field(
            ge=1,
            le=86400,
            description="A rank hangs at the earliest after so many seconds without progress; 60 by default.",
        ),
    ] = None
    factor: Annotated[
        float | None,
        Field(
            ge=1,
            le=10000,
            description=(
                "A rank hangs only after `hang.after`, and after so many times its usual step time; 10 by default."
            ),
        ),
    ] = None


class Retries(Section):
    on: Annotated[
        list[Failure],
        Field(min_length=1, max_length=3, description="Failures after which `launch` and `follow` resume the job."),
    ]
    at_most: Annotated[int, Field(ge=1, le=20, description="Maximum number of times that the job is resumed.")] = 3
