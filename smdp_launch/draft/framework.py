"""The framework build of a draft: the one that the requirements pin, or else the newest one with the library."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from smdp_launch.catalog.engines import TORCH_DISTRIBUTED, Engine
from smdp_launch.catalog.frameworks import (
    TITLES,
    Build,
    build,
    builds,
    is_cuda_11,
    minimum,
    native_cuda,
    native_image,
    native_supports,
    parts,
    torchrun_since,
)
from smdp_launch.draft.needed_versions import Need
from smdp_launch.source.commandline.options import Option
from smdp_launch.source.requirements import REQUIREMENTS_FILE, Requirement, Requirements
from smdp_launch.source.script.training import Backend

_PACKAGES = {"pytorch": ("torch",), "tensorflow": ("tensorflow", "tensorflow-gpu")}

# The library's own module for PyTorch was deprecated in 1.4 and is not documented for 2.x.
_LAST_WITH_MODULE = 1


@dataclass(frozen=True)
class Choice:
    """A build, the policy that allows it, and the reason for the choice.

    Args:
        cuda: of the image that the job runs in: AWS's, or with the native engine that of ``image build``.
    """

    build: Build
    policy: Literal["strict", "extended"]
    reason: str
    cuda: str


def choose_framework(frameworks: list[str], requirements: Requirements) -> str:
    """The framework that the script imports, or else a required one, or else PyTorch."""
    required = [name for name, packages in _PACKAGES.items() if requirements.package(*packages)]
    return [*frameworks, *required, "pytorch"][0]


def choose_engine(
    framework: str, requirements: Requirements, backends: Sequence[Backend] = (), options: Sequence[Option] = ()
) -> Engine:
    """The native engine, unless the requirements pin a version that AWS's library supports and ``image build`` does
    not, or the script's process groups use NCCL on GPUs.

    Args:
        backends: the script's calls that start a process group. One without a backend uses NCCL for GPUs.
        options: its command line options. If one has the default nccl, a backend that is not known is NCCL.
    """
    default = frozenset({"nccl"} if any(one.default == "nccl" for one in options) else ())
    each = [frozenset({"nccl"}) if one.omitted else one.values or default for one in backends]
    if each and all("nccl" in one and one <= {"nccl", "gloo"} for one in each):
        return "nccl"
    required = requirements.package(*_PACKAGES[framework])
    pinned = _pinned(framework, required)
    only_theirs = pinned is not None and pinned.smddp is not None and native_image(framework, pinned.version) is None
    return "smdistributed" if only_theirs else "native"


def choose_build(
    framework: str,
    engine: Engine,
    library: str | None,
    requirements: Requirements,
    needs: Sequence[Need] = (),
) -> Choice:
    """The build for a script that uses ``library`` as ``source.script.Script`` names it, and ``needs`` versions."""
    old_module = engine == "smdistributed" and library == "module"
    need = max(needs, key=lambda one: parts(one.version), default=None)
    if need is not None and engine == "native" and parts(need.version) > parts(_newest_native(framework).version):
        best = _newest_native_image(framework)
        least = need.version.rpartition(".")[0]
        reason = f"the newest with CUDA 11 that the engine supports; {need.what} needs {least}"
    elif engine == "native":
        best, reason = _newest_native(framework), "the newest with CUDA 11 that the engine supports"
    elif engine in TORCH_DISTRIBUTED:
        best, reason = builds(framework)[-1], "the newest with an image of AWS"
    else:
        best = _newest(framework, old_module)
        reason = f"the newest with CUDA 11 and AWS's library{' with its own module' if old_module else ''}"
    required = requirements.package(*_PACKAGES[framework])
    if required is None:
        return Choice(best, "strict", reason, _cuda(best, engine))
    if required.pin is None:
        return _allowed(best, reason, engine, required)
    pinned = _pinned(framework, required)
    refusal = _refusal(required, pinned, engine)
    if pinned is None or refusal:
        return Choice(best, "strict", f"{reason}; {refusal}", _cuda(best, engine))
    where = f"{REQUIREMENTS_FILE}, line {required.line}"
    cuda = _cuda(pinned, engine)
    is_strict = is_cuda_11(cuda) or engine in TORCH_DISTRIBUTED
    return Choice(pinned, "strict" if is_strict else "extended", where, cuda)


def _allowed(best: Build, reason: str, engine: Engine, required: Requirement) -> Choice:
    """``best``, or the newest build that the requirement allows, if it does not allow ``best``."""
    others = [one for one in builds(best.framework) if required.allows(one.version) and not _refuses(one, engine)]
    if required.allows(best.version) or not others:
        return Choice(best, "strict", reason, _cuda(best, engine))
    cuda = {one.version: _cuda(one, engine) for one in others}
    allowed = [one for one in others if is_cuda_11(cuda[one.version]) or engine in TORCH_DISTRIBUTED]
    newest = (allowed or others)[-1]
    where = f"the newest that {REQUIREMENTS_FILE}, line {required.line}, allows"
    return Choice(newest, "strict" if allowed else "extended", where, cuda[newest.version])


def _refuses(build_: Build, engine: Engine) -> bool:
    if engine == "native":
        return native_image(build_.framework, build_.version) != build_.version
    return engine == "smdistributed" and build_.smddp is None


def _pinned(framework: str, required: Requirement | None) -> Build | None:
    pin = required.pin if required is not None else None
    return build(framework, pin) if pin is not None and re.fullmatch(r"\d+(\.\d+){1,2}", pin) else None


def _newest_native(framework: str) -> Build:
    return [one for one in builds(framework) if native_supports(framework, one.version) and one.cuda_major == 11][-1]


def _newest_native_image(framework: str) -> Build:
    """The newest version that ``image build`` makes with CUDA 11."""
    known = (one for one in builds(framework) if native_image(framework, one.version) == one.version)
    return [one for one in known if is_cuda_11(native_cuda(framework, one.version))][-1]


def _cuda(chosen: Build, engine: Engine) -> str:
    of_native = native_cuda(chosen.framework, chosen.version) if engine == "native" else None
    return of_native or chosen.cuda


def _newest(framework: str, old_module: bool) -> Build:
    with_library = [one for one in builds(framework) if one.cuda_major == 11 and one.smddp is not None]
    if old_module:
        with_library = [one for one in with_library if one.smddp and parts(one.smddp)[0] <= _LAST_WITH_MODULE]
    return with_library[-1]


def _refusal(required: Requirement, pinned: Build | None, engine: Engine) -> str:
    requirement = f"{REQUIREMENTS_FILE}, line {required.line}, requires {required.name} {required.pin}, "
    if pinned is None:
        return requirement + "for which there is no training image"
    first = torchrun_since() if engine in TORCH_DISTRIBUTED else minimum(pinned.framework)
    if parts(pinned.version) < parts(first):
        return requirement + f"which is older than {TITLES[pinned.framework]} {first}"
    if engine == "native" and native_image(pinned.framework, pinned.version) is None:
        return requirement + "for which `smdp-launch image build` has no recipe"
    if engine == "smdistributed" and pinned.smddp is None:
        return requirement + "whose image does not contain AWS's library"
    return ""
