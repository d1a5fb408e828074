"""What the rule of CUDA 11 would say to an image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from smdp_launch.image.inspection import Inspection

RULE = "SMDP303"
_WANTED = 11


@dataclass(frozen=True)
class Verdict:
    """``fits`` under policy strict, ``refused`` there, or ``unknown`` where the image does not tell its CUDA."""

    says: Literal["fits", "refused", "unknown"]
    reason: str


def judge(image: Inspection) -> Verdict:
    if image.cuda is None:
        return Verdict("unknown", "the image does not tell its CUDA version: in label, environment or tag")
    told = f"CUDA {image.cuda.value} ({image.cuda.source})"
    if image.cuda_major == _WANTED:
        return Verdict("fits", told)
    return Verdict("refused", f"{told}; policy strict needs CUDA 11, `policy: extended` takes it ({RULE})")
