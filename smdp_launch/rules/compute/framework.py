"""The framework version, its CUDA and its Python."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.catalog.engines import TORCH_DISTRIBUTED, WITH_POLICY
from smdp_launch.catalog.frameworks import (
    TITLES,
    build,
    is_cuda_11,
    minimum,
    native_cuda,
    native_images,
    native_since,
    native_supports,
    parts,
    torchrun_since,
)
from smdp_launch.catalog.transformers import pairs, pairs_of, transformers_versions
from smdp_launch.diagnostics import closest
from smdp_launch.jobfile.yaml.document import Location
from smdp_launch.request.batch import on_cpus
from smdp_launch.rules.base import image_contents
from smdp_launch.rules.base.facts import Facts, Problem, rule

_VERSION: Location = ("framework", "version")
_TRANSFORMERS: Location = ("framework", "transformers")


@rule("SMDP302", "framework.name", "framework.version")
def framework_version(facts: Facts) -> Iterator[Problem]:
    name, version = facts.spec.framework.name, facts.spec.framework.version
    title, first = TITLES[name], minimum(name)
    needed = native_since(name) if facts.spec.engine == "native" else first
    if is_torch_distributed(facts) and (_names_image(facts) or torchrun_problem(facts) is not None):
        return
    suitable = image_contents.suitable_versions(facts)
    newest = f', such as "{suitable[-1]}"' if suitable else ""
    if name == "tensorflow" and parts(version)[0] < 2:
        message = f"there is no distributed data parallel library for TensorFlow 1.x, such as {version}"
        yield Problem(_VERSION, message, f"write TensorFlow {needed} or later{newest}")
    elif parts(version) < parts(first)[: len(parts(version))]:
        message = f"{title} {version} is older than {first}, the first version that the library supports"
        yield Problem(_VERSION, message, f"write {needed} or later{newest}")
    elif not _exists(facts):
        # Never a version that is only spelled alike: 2.10 is not a misspelled 2.1.0.
        near = next((one for one in suitable if parts(one)[:2] == parts(version)[:2]), None)
        message = f"there is no training image of {title} {version}"
        help_ = (
            f'did you mean "{near}"?' if near else f"choose another version{newest}; see smdp-launch catalog frameworks"
        )
        yield Problem(_VERSION, message, help_, replacement=_alone(facts, near))


def is_torch_distributed(facts: Facts) -> bool:
    return facts.has("engine") and facts.spec.engine in TORCH_DISTRIBUTED


def _names_image(facts: Facts) -> bool:
    return not facts.has("image") or facts.spec.image is not None


def torchrun_problem(facts: Facts) -> tuple[Location, str, str] | None:
    """Why torch.distributed cannot start with the job's framework: the field, the message and the help."""
    framework, engine, own = facts.spec.framework, facts.spec.engine, _names_image(facts)
    if framework.name != "pytorch":
        message = f"engine {engine} is torch.distributed, which {TITLES[framework.name]} does not use"
        return ("framework", "name"), message, "choose `engine: native` or `engine: smdistributed`"
    first = torchrun_since()
    if not own and parts(framework.version) < parts(first)[: len(parts(framework.version))]:
        message = f"AWS's image of PyTorch {framework.version} does not start torchrun; images from {first} on do"
        newest = image_contents.suitable_versions(facts)[-1]
        return _VERSION, message, f'write "{first}" or later, such as "{newest}", or name your own `image`'
    known = facts.has("framework.transformers", "compute.instance_type")
    if not own and known and framework.transformers is not None and on_cpus(facts.spec):
        message = "AWS's images with transformers are for GPUs, and this job trains on CPUs"
        return _TRANSFORMERS, message, "name your own `image`, or install transformers in requirements.txt"
    return None


@rule("SMDP325", "engine", "framework.name", "framework.version")
def torch_distributed_starts(facts: Facts) -> Iterator[Problem]:
    problem = torchrun_problem(facts) if is_torch_distributed(facts) else None
    if problem is not None:
        yield Problem(*problem)


def _alone(facts: Facts, version: str | None) -> str | None:
    """``version`` as YAML; None if other fields, which would have to change too, depend on the version."""
    framework = facts.spec.framework
    others = (facts.spec.image, framework.python, framework.transformers)
    return None if version is None or any(one is not None for one in others) else f'"{version}"'


def _exists(facts: Facts) -> bool:
    framework = facts.spec.framework
    # The native engine runs in the user's own image, with versions that the catalogue does not know too. SMDP307
    # reports those that are too old.
    major = parts(native_since(framework.name))[0]
    in_own_image = facts.spec.engine == "native" and parts(framework.version)[0] <= major
    return in_own_image or image_contents.aws_image(facts) is not None


@rule("SMDP303", "framework.name", "framework.version", "framework.transformers", "policy", "engine", "image")
def cuda_11(facts: Facts) -> Iterator[Problem]:
    if needs_another_cuda(facts):
        framework = facts.spec.framework
        contents = image_contents.aws_image(facts)
        title = contents.title if contents is not None else f"{TITLES[framework.name]} {framework.version}"
        of_native = native_cuda(framework.name, framework.version) if facts.spec.engine == "native" else None
        version = of_native or (contents.cuda if contents is not None else None)
        cuda = f"CUDA {version}" if version is not None else "a later CUDA"
        suitable = image_contents.suitable_versions(facts)
        newest = f'write "{suitable[-1]}", the newest version with CUDA 11, or ' if suitable else "write "
        message = f"{title} is built with {cuda}; policy strict needs CUDA 11"
        yield Problem(_VERSION, message, f"{newest}`policy: extended`")


def needs_another_cuda(facts: Facts) -> bool:
    """Whether the policy is strict and the framework is not built with CUDA 11.

    With AWS's library, the tag of a user's own image takes precedence. With the native engine, the image that
    ``image build`` makes decides, which has the oldest CUDA that the framework version is published for.
    """
    framework, native = facts.spec.framework, facts.spec.engine == "native"
    if facts.spec.policy != "strict" or facts.spec.engine not in WITH_POLICY:
        return False
    if native:
        cuda = native_cuda(framework.name, framework.version)
        return native_supports(framework.name, framework.version) and (
            not is_cuda_11(cuda) if cuda is not None else _is_newer_than_images(framework.name, framework.version)
        )
    contents, of_tag = image_contents.aws_image(facts), image_contents.tag(facts).cuda
    return contents is not None and not is_cuda_11(contents.cuda) and not is_cuda_11(of_tag)


def _is_newer_than_images(name: str, version: str) -> bool:
    return parts(version) > parts(native_images(name)[-1])


@rule("SMDP304", "framework.name", "framework.version", "framework.python", "framework.transformers", "image")
def python_version(facts: Facts) -> Iterator[Problem]:
    wanted = facts.spec.framework.python
    contents, named = image_contents.aws_image(facts), image_contents.image(facts)
    if wanted is None or contents is None:
        return
    if facts.spec.image is None and wanted != contents.python:
        message = f"the image of {contents.title} contains Python {contents.python}, not {wanted}"
        help_ = f'write "{contents.python}", or name an `image`'
        yield Problem(("framework", "python"), message, help_, replacement=f'"{contents.python}"')
    of_tag = image_contents.tag(facts).python
    # A user's own image may contain another Python than its tag says.
    if named is not None and named.is_aws and of_tag not in (None, wanted):
        message = f"the image's tag says Python {of_tag}, not {wanted}"
        help_ = f'write "{of_tag}", or name another `image`'
        yield Problem(("framework", "python"), message, help_, replacement=f'"{of_tag}"')


@rule("SMDP306", "engine", "policy", "framework.name", "framework.version", "framework.transformers", "image")
def image_contains_library(facts: Facts) -> Iterator[Problem]:
    spec = facts.spec
    contents = image_contents.aws_image(facts)
    if spec.engine != "smdistributed" or spec.image is not None or contents is None or contents.library:
        return
    where = _VERSION if image_contents.hugging_face(facts) is None else _TRANSFORMERS
    message = f"AWS's image of {contents.title} does not contain the data parallel library"
    last = _last_with_library(facts)
    versions = f'"{last[_VERSION]}"'
    if _TRANSFORMERS in last:
        versions = f'transformers "{last[_TRANSFORMERS]}" with {TITLES[spec.framework.name]} {versions}'
    native = _or_native(facts)
    write = {at: f'"{version}"' for at, version in last.items()} if not native and spec.framework.python is None else {}
    yield Problem(where, message, f"write {versions}, the last version that contains it{native}", write=write)


def _last_with_library(facts: Facts) -> dict[Location, str]:
    """The versions of AWS's last image with the library, by field."""
    pair = image_contents.hugging_face(facts)
    if pair is None:
        return {_VERSION: image_contents.suitable_versions(facts)[-1]}
    last = [one for one in pairs() if one.framework == pair.framework and one.smddp][-1]
    return {_VERSION: last.version, _TRANSFORMERS: last.transformers}


def _or_native(facts: Facts) -> str:
    framework = facts.spec.framework
    return ", or choose `engine: native`" if native_supports(framework.name, framework.version) else ""


@rule("SMDP307", "engine", "policy", "framework.name", "framework.version", "framework.transformers", "image")
def native_build(facts: Facts) -> Iterator[Problem]:
    framework = facts.spec.framework
    name, version, title = framework.name, framework.version, TITLES[framework.name]
    is_reported = any(framework_version.check(facts)) or needs_another_cuda(facts)
    if facts.spec.engine != "native" or is_reported or native_supports(name, version):
        return
    suitable = image_contents.suitable_versions(facts)
    message = f"the native engine needs {title} {native_since(name)} or later, not {version}"
    meant = suitable[-1] if suitable else None
    # If the tag of the image has another version, the image has to change too.
    image = (
        " and name its image" if meant is not None and image_contents.tag(facts).version not in (None, meant) else ""
    )
    write = f'write "{meant}"{image}, or ' if meant is not None else ""
    is_alone = not image and framework.python is None and framework.transformers is None
    replacement = f'"{meant}"' if meant is not None and is_alone else None
    library = build(name, version)
    other = "choose `engine: smdistributed`" if library is not None and library.smddp is not None else ""
    yield Problem(
        _VERSION, message, f"{write}{other}" if other else write.removesuffix(", or "), replacement=replacement
    )


@rule("SMDP316", "framework.name", "framework.version", "framework.transformers", "image")
def transformers_pair(facts: Facts) -> Iterator[Problem]:
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
        help_ = f"transformers {wanted} is available with {title} {', '.join(with_it)}"
    else:
        version = framework.version
        fitting = [one for one in known if any(_fits(x.version, version) for x in pairs_of(one))]
        choices = fitting or known
        known_for = f"{title} {version}" if fitting else title
        help_ = f"AWS has images of {known_for} with transformers {', '.join(choices)}"
        near = closest(wanted, choices, cutoff=0.8)
        help_ = f'did you mean "{near}"?' if near else help_
    only: dict[Location, str] = {}
    if len(with_it) == 1 and framework.python is None:
        only = {_VERSION: f'"{with_it[0]}"'}
    replacement = f'"{near}"' if near else None
    yield Problem(("framework", "transformers"), message, help_, replacement=replacement, write=only)


def _fits(version: str, wanted: str) -> bool:
    return version == wanted or version.startswith(f"{wanted}.")
