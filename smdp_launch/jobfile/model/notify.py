"""The section ``notify``: what a command that follows the job calls at its end, or if it is in trouble."""

# No `from __future__ import annotations`: with it, pydantic compiles each string annotation at every start.
from typing import Annotated, Literal

from pydantic import Field

from smdp_launch.jobfile.model.section import Section
from smdp_launch.jobfile.model.types import SnsTopic, Text, WebhookVariable


class Notify(Section):
    on: Annotated[
        list[Literal["end", "trouble"]],
        Field(
            min_length=1,
            max_length=2,
            description="`end`: the job has ended; `trouble`: a spot interruption, or the job makes no progress.",
        ),
    ] = Field(default=["end", "trouble"])
    command: Annotated[
        Text | None,
        Field(
            description="Command that reads the message as JSON from standard input. It runs in the job file's folder."
        ),
    ] = None
    webhook: Annotated[
        WebhookVariable | None,
        Field(
            description="Environment variable that contains a URL. smdp-launch posts the message to this URL as JSON."
        ),
    ] = None
    sns: Annotated[
        SnsTopic | None,
        Field(
            description="ARN of an SNS topic. smdp-launch publishes the message to this topic with your credentials."
        ),
    ] = None
    local: Annotated[bool, Field(description="Also send messages about local runs.")] = False
