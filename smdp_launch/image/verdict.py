"""Whether an image passes the rule about CUDA 11."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from smdp_launch.image.inspection import Inspection

RULE = "SMDP303"
_WANTED = 11


@dataclass(frozen=True)
class Verdict:
    """With policy strict the image ``fits`` or is ``refused``; ``unknown`` if it does not state its CUDA version."""

    says: Literal["fits", "refused", "unknown"]
    reason: str


def judge(image: Inspection) -> Verdict:
    if image.cuda is None:
        return Verdict("unknown", "the image does not state its CUDA version in a label, its environment or its tag")
    cuda = f"CUDA {image.cuda.value} ({image.cuda.source})"
    if image.cuda_major == _WANTED:
        return Verdict("fits", cuda)
    return Verdict("refused", f"{cuda}; policy strict needs CUDA 11, `policy: extended` accepts it ({RULE})")
