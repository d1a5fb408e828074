"""Which framework builds, with which CUDA and Python."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.catalog.frameworks import TITLES, build, is_cuda_11, minimum, native_builds, native_cuda, parts
from smdp_launch.catalog.transformers import pairs, pairs_of, transformers_versions
from smdp_launch.diagnostics import closest
from smdp_launch.jobfile.yaml.document import Location
from smdp_launch.rules.base import image_contents
from smdp_launch.rules.base.facts import Facts, Finding, rule

_VERSION: Location = ("framework", "version")
_TRANSFORMERS: Location = ("framework", "transformers")


@rule("SMDP302", "framework.name", "framework.version")
def framework_version(facts: Facts) -> Iterator[Finding]:
    name, version = facts.spec.framework.name, facts.spec.framework.version
    title, first = TITLES[name], minimum(name)
    suitable = image_contents.suitable_versions(facts)
    newest = f', such as "{suitable[-1]}"' if suitable else ""
    if name == "tensorflow" and parts(version)[0] < 2:
        message = f"TensorFlow 1.x has no distributed data parallel library, and this is {version}"
        yield Finding(_VERSION, message, f"TensorFlow {first} or later{newest}")
    elif parts(version) < parts(first)[: len(parts(version))]:
        message = f"{title} {version} is older than {first}, the first version the library was made for"
        yield Finding(_VERSION, message, f"{first} or later{newest}")
    elif not _exists(facts):
        near = closest(version, suitable)
        message = f"there is no training image of {title} {version}"
        help_ = f'the closest is "{near}"' if near else f"another version{newest}"
        yield Finding(_VERSION, message, help_, replacement=_alone(facts, near))


def _alone(facts: Facts, version: str | None) -> str | None:
    """``version`` as YAML where nothing else in the file names one; what goes together has to change together."""
    framework = facts.spec.framework
    others = (facts.spec.image, framework.python, framework.transformers)
    return None if version is None or any(one is not None for one in others) else f'"{version}"'


def _exists(facts: Facts) -> bool:
    framework = facts.spec.framework
    ours = (
        facts.spec.engine == "native" and image_contents.native_version(framework.name, framework.version) is not None
    )
    return ours or image_contents.held(facts) is not None


@rule("SMDP303", "framework.name", "framework.version", "framework.transformers", "policy", "engine", "image")
def cuda_11(facts: Facts) -> Iterator[Finding]:
    if needs_another_cuda(facts):
        framework = facts.spec.framework
        found = image_contents.held(facts)
        title = found.title if found is not None else f"{TITLES[framework.name]} {framework.version}"
        built = f"CUDA {found.cuda}" if found is not None else "a later CUDA"
        suitable = image_contents.suitable_versions(facts)
        newest = f'the newest with CUDA 11 is "{suitable[-1]}"; or ' if suitable else ""
        message = f"{title} is built with {built}; policy strict needs CUDA 11"
        yield Finding(_VERSION, message, f"{newest}`policy: extended`")


def needs_another_cuda(facts: Facts) -> bool:
    """Policy strict, and the framework's build is not one of CUDA 11.

    For AWS's library an image of the person's own may say otherwise; our engine's image has one of its own.
    """
    framework, native = facts.spec.framework, facts.spec.engine == "native"
    if facts.spec.policy != "strict":
        return False
    ours = image_contents.native_version(framework.name, framework.version) if native else None
    if ours is not None:
        return not is_cuda_11(native_cuda(framework.name, ours))
    found, told = image_contents.held(facts), None if native else image_contents.tag(facts).cuda
    return found is not None and not is_cuda_11(found.cuda) and not is_cuda_11(told)


@rule("SMDP304", "framework.name", "framework.version", "framework.python", "framework.transformers", "image")
def python_version(facts: Facts) -> Iterator[Finding]:
    wanted = facts.spec.framework.python
    found, named = image_contents.held(facts), image_contents.image(facts)
    if wanted is None or found is None:
        return
    if facts.spec.image is None and wanted != found.python:
        message = f"the image of {found.title} holds Python {found.python}, not {wanted}"
        help_ = f'write "{found.python}", or name an `image`'
        yield Finding(("framework", "python"), message, help_, replacement=f'"{found.python}"')
    told = image_contents.tag(facts).python
    # An image of the person's own may hold any Python, whatever its tag says.
    if named is not None and named.is_aws and told not in (None, wanted):
        message = f"the image's tag says Python {told}, not {wanted}"
        help_ = f'write "{told}", or name another `image`'
        yield Finding(("framework", "python"), message, help_, replacement=f'"{told}"')


@rule("SMDP306", "engine", "policy", "framework.name", "framework.version", "framework.transformers", "image")
def image_holds_library(facts: Facts) -> Iterator[Finding]:
    spec = facts.spec
    found = image_contents.held(facts)
    if spec.engine != "smdistributed" or spec.image is not None or found is None or found.library:
        return
    where = _VERSION if image_contents.hugging_face(facts) is None else _TRANSFORMERS
    message = f"AWS's image of {found.title} comes without the data parallel library"
    last = _last_with_library(facts)
    versions = f'"{last[_VERSION]}"'
    if _TRANSFORMERS in last:
        versions = f'transformers "{last[_TRANSFORMERS]}" with {TITLES[spec.framework.name]} {versions}'
    native = _or_native(facts)
    write = {at: f'"{version}"' for at, version in last.items()} if not native and spec.framework.python is None else {}
    yield Finding(where, message, f"the last that holds it is {versions}{native}", write=write)


def _last_with_library(facts: Facts) -> dict[Location, str]:
    """The versions to write for AWS's last image with the library."""
    pair = image_contents.hugging_face(facts)
    if pair is None:
        return {_VERSION: image_contents.suitable_versions(facts)[-1]}
    last = [one for one in pairs() if one.framework == pair.framework and one.smddp][-1]
    return {_VERSION: last.version, _TRANSFORMERS: last.transformers}


def _or_native(facts: Facts) -> str:
    framework = facts.spec.framework
    return (
        "; or `engine: native`" if image_contents.native_version(framework.name, framework.version) is not None else ""
    )


@rule("SMDP307", "engine", "policy", "framework.name", "framework.version", "framework.transformers", "image")
def native_build(facts: Facts) -> Iterator[Finding]:
    framework = facts.spec.framework
    name, version, title = framework.name, framework.version, TITLES[framework.name]
    wrong_anyway = any(framework_version.check(facts)) or needs_another_cuda(facts)
    if facts.spec.engine != "native" or wrong_anyway or image_contents.native_version(name, version) is not None:
        return
    suitable = image_contents.suitable_versions(facts)
    message = f"the native engine has no build for {title} {version}; it has {', '.join(native_builds(name))}"
    meant = closest(version, suitable) or suitable[-1] if suitable else None
    # An image that says another version is not one of the version that is to be written.
    told = image_contents.tag(facts).version
    image = " and name an image of it" if meant is not None and told not in (None, meant) else ""
    write = f'write "{meant}"{image}, or ' if meant is not None else ""
    is_alone = not image and framework.python is None and framework.transformers is None
    replacement = f'"{meant}"' if meant is not None and is_alone else None
    yield Finding(_VERSION, message, f"{write}choose `engine: smdistributed`", replacement=replacement)


@rule("SMDP316", "framework.name", "framework.version", "framework.transformers", "image")
def transformers_pair(facts: Facts) -> Iterator[Finding]:
    framework = facts.spec.framework
    wanted, title = framework.transformers, TITLES[framework.name]
    unknown = build(framework.name, framework.version) is None
    if facts.spec.image is not None or wanted is None or unknown or image_contents.hugging_face(facts) is not None:
        return
    known = transformers_versions(framework.name)
    with_it = [one.version for one in pairs_of(wanted) if one.framework == framework.name]
    message = f"AWS has no image of transformers {wanted} with {title} {framework.version}"
    near = None
    if with_it:
        help_ = f"transformers {wanted} comes with {title} {', '.join(with_it)}"
    else:
        version = framework.version
        fitting = [one for one in known if any(_fits(x.version, version) for x in pairs_of(one))]
        choices = fitting or known
        help_ = f"with {title} {version} come {', '.join(fitting)}" if fitting else f"known are {', '.join(choices)}"
        near = closest(wanted, choices, cutoff=0.8)
        help_ = f'did you mean "{near}"?' if near else help_
    only: dict[Location, str] = {}
    if len(with_it) == 1 and framework.python is None:
        only = {_VERSION: f'"{with_it[0]}"'}
    found = f'"{near}"' if near else None
    yield Finding(("framework", "transformers"), message, help_, replacement=found, write=only)


def _fits(version: str, wanted: str) -> bool:
    return version == wanted or version.startswith(f"{wanted}.")
