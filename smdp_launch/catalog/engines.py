"""The engines that a job can name, and who sums the gradients with each."""

from __future__ import annotations

from typing import Literal

Engine = Literal["native", "smdistributed", "nccl", "gloo"]

#: In the order in which they are listed.
ENGINES: tuple[Engine, ...] = ("native", "smdistributed", "nccl", "gloo")

#: torch.distributed with one of its own backends, started by torchrun or by this project's entrypoint.
TORCH_DISTRIBUTED: frozenset[str] = frozenset({"nccl", "gloo"})

#: The engines that run in AWS's images, so that ``image`` is not required.
IN_AWS_IMAGES: frozenset[str] = frozenset({"smdistributed", "nccl", "gloo"})

#: The engines whose exchange ``policy`` restricts to what AWS documents for its library.
WITH_POLICY: frozenset[str] = frozenset({"native", "smdistributed"})
