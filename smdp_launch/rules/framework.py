"""Which framework builds, with which CUDA, Python and image."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.catalog.frameworks import TITLES, build, minimum, parts, versions
from smdp_launch.diagnostics import closest
from smdp_launch.rules.facts import Facts, Finding, rule

_VERSION = ("framework", "version")


@rule("SMDP302", "framework.name", "framework.version")
def framework_version(facts: Facts) -> Iterator[Finding]:
    name, version = facts.spec.framework.name, facts.spec.framework.version
    title, first = TITLES[name], minimum(name)
    if name == "tensorflow" and parts(version)[0] < 2:
        message = "TensorFlow 1.x has no distributed data parallel library"
        yield Finding(_VERSION, message, f'TensorFlow {first} or later, such as "{versions(name)[-1]}"')
    elif parts(version) < parts(first)[: len(parts(version))]:
        message = f"{title} {version} is older than {first}, the first version the library was made for"
        yield Finding(_VERSION, message, f'{first} or later, such as "{_newest_cuda11(name)}"')
    elif build(name, version) is None:
        match = closest(version, versions(name))
        message = f"there is no training image of {title} {version}"
        yield Finding(_VERSION, message, f'the closest is "{match or _newest_cuda11(name)}"')


@rule("SMDP303", "framework.name", "framework.version", "policy")
def cuda_11(facts: Facts) -> Iterator[Finding]:
    framework = facts.spec.framework
    found = build(framework.name, framework.version)
    if facts.spec.policy == "strict" and found is not None and found.cuda_major != 11:
        message = (
            f"{TITLES[framework.name]} {found.version} is built with CUDA {found.cuda}; policy strict needs CUDA 11"
        )
        help_ = f'the newest with CUDA 11 is "{_newest_cuda11(framework.name)}"; or `policy: extended`'
        yield Finding(_VERSION, message, help_)


@rule("SMDP304", "framework.name", "framework.version", "framework.python", "image")
def python_version(facts: Facts) -> Iterator[Finding]:
    framework = facts.spec.framework
    found = build(framework.name, framework.version)
    # An image of the person's own may hold any Python.
    if found is None or framework.python in (None, found.python) or facts.spec.image is not None:
        return
    message = (
        f"the image of {TITLES[framework.name]} {found.version} holds Python {found.python}, not {framework.python}"
    )
    yield Finding(("framework", "python"), message, f'write "{found.python}", or name an `image`')


@rule("SMDP305", "engine", "image")
def native_image(facts: Facts) -> Iterator[Finding]:
    if facts.spec.engine == "native" and facts.spec.image is None:
        message = "engine native runs in an image that you build and push, and none is named"
        help_ = "add `image:` with its URI, or choose `engine: smdistributed` for AWS's own"
        yield Finding(("engine",), message, help_)


@rule("SMDP306", "engine", "framework.name", "framework.version", "image")
def image_holds_library(facts: Facts) -> Iterator[Finding]:
    framework = facts.spec.framework
    found = build(framework.name, framework.version)
    if facts.spec.engine != "smdistributed" or facts.spec.image is not None or found is None or found.smddp:
        return
    last = next(one for one in reversed(versions(framework.name)) if _holds_library(framework.name, one))
    message = f"AWS's image of {TITLES[framework.name]} {found.version} comes without the data parallel library"
    yield Finding(_VERSION, message, f'the last that holds it is "{last}"; or `engine: native`')


def _newest_cuda11(name: str) -> str:
    found = [build(name, one) for one in versions(name)]
    return [one.version for one in found if one is not None and one.cuda_major == 11][-1]


def _holds_library(name: str, version: str) -> bool:
    found = build(name, version)
    return found is not None and found.smddp is not None
