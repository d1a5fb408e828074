"""What the training script pickles and the serving script reads: whether the endpoint can import and load it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

from smdp_launch.catalog.hosting.images import distribution_of, installed_packages
from smdp_launch.catalog.hosting.instances import has_gpus, has_other_accelerators
from smdp_launch.catalog.limits import endpoint_types, transform_types
from smdp_launch.diagnostics import Severity
from smdp_launch.jobfile.model.serve import Serve
from smdp_launch.request.serving import serving_image
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.rules.base.script_places import place
from smdp_launch.rules.serve.hosting import IMAGE_FIELDS, section
from smdp_launch.source.requirements import REQUIREMENTS_FILE
from smdp_launch.source.scan import normal_name
from smdp_launch.source.script.modules import always_run, files_of
from smdp_launch.source.script.pickles import FAMILIES, WRAPPERS, Pickle, Unpickle
from smdp_launch.source.syntax.tree import Mark

_FIELDS = ("serve.kind", "serve.entry", "script.entry", "script.source", "framework.name")
#: A serving script that puts the classes where the pickle looks for them, or reads pickles in its own way.
_OWN_READER = re.compile(r"import __main__|modules\[.__main__.\]|Unpickler|find_class|pickle_module|\bdill\b")
#: Calls that make objects of their own package. The values of other functions are not known: many return tensors.
_MAKES_OBJECT = re.compile(r"\.([A-Z]\w*|create_model|from_pretrained)$")
_MODELS = ("torch.nn.", "timm.", "transformers.")
#: The first version whose `torch.load` reads nothing but tensors by default.
_WEIGHTS_ONLY_SINCE = (2, 6)
_ALLOWS_CLASSES = re.compile(r"safe_globals")
_FORCED = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
_TO_CPU = re.compile(r"\.cpu\(|\.to\(\s*(torch\.device\()?[\"']cpu")


class _Pair(NamedTuple):
    """A pickle of the training script and the call of the serving script that reads it.

    Args:
        writer: the file of the training program with the call.
        certain: both have the same file name; otherwise the script writes to the folder of the model, and there is no
            other name.
    """

    writer: str
    written: Pickle
    reader: str
    read: Unpickle
    certain: bool


def _pairs(facts: Facts) -> Iterator[_Pair]:
    """The first reader of each pickle. Empty if the scripts do not show who reads what."""
    serving = facts.serve_scripts
    if section(facts) is None or any(one.problem is not None for one in serving.values()):
        return
    if any(_OWN_READER.search(line) for one in serving.values() for line in one.lines):
        return
    reads = [(name, one) for name, script in serving.items() for one in script.training.unpickles]
    for writer, script in facts.scripts.items():
        for written in script.training.pickles:
            both = [(name, one) for name, one in reads if one.call in FAMILIES[written.call]]
            same = [one for one in both if one[1].files & written.files]
            maybe = [one for one in both if written.in_model_folder and not (one[1].files and written.files)]
            for name, one in (same or maybe)[:1]:
                yield _Pair(writer, written, name, one, bool(same))


def _at(facts: Facts, name: str, mark: Mark, message: str, help_: str) -> Problem:
    span = place(facts, name, mark)
    return Problem((), message, help_, text=span.source[mark.column - 1 : mark.end_column - 1], place=span)


def _is_from_the_script(facts: Facts, *, certain: bool) -> Iterator[Problem]:
    for one in _pairs(facts):
        lost = dict(_not_importable(facts, one)) if one.certain == certain else {}
        if lost:
            names = ", ".join(lost)
            message = (
                f"{one.written.call} writes {' and '.join(lost.values())} by name, which the endpoint cannot import"
            )
            help_ = f"write {names} in a module at the top of the source folder, and import it from there"
            if one.written.call == "torch.save":
                help_ = f"save `state_dict()` and build the model in `model_fn`; or {help_}"
            yield _at(facts, one.writer, one.written.mark, message, help_)


def _not_importable(facts: Facts, pair: _Pair) -> Iterator[tuple[str, str]]:
    """The classes and functions that the endpoint does not find, each with the name that the pickle has."""
    entry = next(iter(facts.scripts))
    folder = entry.rpartition("/")[0]
    tree = {one.name for one in facts.source.files} if facts.source is not None else set()
    for need in pair.written.needs:
        if need in WRAPPERS:
            continue
        if "." not in need:
            if pair.writer == entry:
                yield need, f"`__main__.{need}`"
        elif folder and not need.startswith("."):
            beside = any(file in tree for file in files_of(need, pair.writer, entry))
            at_top = any(file in tree for file in files_of(need, pair.writer, ""))
            if beside and not at_top:
                yield need.rpartition(".")[2], f"`{need}`"


@rule("SMDP825", *_FIELDS)
def pickled_classes_can_be_imported(facts: Facts) -> Iterator[Problem]:
    yield from _is_from_the_script(facts, certain=True)


@rule("SMDP825", *_FIELDS, severity=Severity.WARNING)
def pickled_classes_can_probably_be_imported(facts: Facts) -> Iterator[Problem]:
    yield from _is_from_the_script(facts, certain=False)


@rule("SMDP826", *_FIELDS, *IMAGE_FIELDS, severity=Severity.WARNING)
def pickled_packages_are_installed(facts: Facts) -> Iterator[Problem]:
    installed, tree = installed_packages(facts.spec.framework.name), facts.source
    if tree is None or section(facts) is None:
        return
    files = {one.name for one in tree.files}
    imported = {one.partition(".")[0] for name in always_run(facts.serve_scripts) for one in _imports(facts, name)}
    required = {one.name for one in facts.requirements.packages}
    is_known = installed is not None and _is_awss_image(facts) and not facts.requirements.problems
    is_known = is_known and not facts.requirements.includes
    for one in _pairs(facts):
        wrapper = next((need for need in one.written.needs if need in WRAPPERS), None)
        if wrapper is not None:
            message = f"{one.written.call} writes the model in {wrapper}, which can be read only in a process group"
            yield _at(facts, one.writer, one.written.mark, message, "save its `.module`, or `.module.state_dict()`")
            continue
        for need in one.written.needs if is_known else ():
            top = need.partition(".")[0]
            is_local = need.startswith(".") or any(file in files for file in files_of(need, one.writer, one.writer))
            if not _MAKES_OBJECT.search(need) or is_local or top in imported or top in sys.stdlib_module_names:
                continue  # SMDP462 reports what the serving script imports
            if top in (installed or ()) or distribution_of(top) in required:
                continue
            message = f"{one.written.call} writes an object of {top}, which AWS's inference image does not have"
            help_ = f"add {distribution_of(top)} to {REQUIREMENTS_FILE} in the source folder"
            help_ += ", or save `state_dict()`" if one.written.call == "torch.save" else ""
            yield _at(facts, one.writer, one.written.mark, message, help_)
            break


def _imports(facts: Facts, name: str) -> frozenset[str]:
    return facts.serve_scripts[name].always_imported


def _is_awss_image(facts: Facts) -> bool:
    serve = facts.spec.serve
    return serve is not None and serve.image is None and serving_image(facts.spec) not in (None, facts.spec.image)


@rule("SMDP827", *_FIELDS, *IMAGE_FIELDS, "serve.environment")
def whole_models_are_allowed(facts: Facts) -> Iterator[Problem]:
    serve, framework = section(facts), facts.spec.framework
    if serve is None or serve.image is not None or framework.name != "pytorch":
        return
    numbers = [int(one) for one in framework.version.split(".")[:2] if one.isdecimal()]
    if tuple(numbers) < _WEIGHTS_ONLY_SINCE or _FORCED in serve.environment:
        return
    if any(_ALLOWS_CLASSES.search(line) for script in facts.serve_scripts.values() for line in script.lines):
        return
    for one in _pairs(facts):
        models = [need for need in one.written.needs if "." not in need or _is_model(need)]
        is_asked = not one.read.arguments.isdisjoint({"weights_only", "pickle_module", "**"})
        if one.certain and models and one.read.call == "torch.load" and not is_asked:
            message = f"the file has a whole model, and torch.load of PyTorch {framework.version} reads only tensors"
            help_ = "save `state_dict()` in the training script; or write `weights_only=False`, since the file is yours"
            yield _at(facts, one.reader, one.read.mark, message, help_)


def _is_model(need: str) -> bool:
    return need.startswith("torchvision.models.") or (
        need.startswith(_MODELS) and _MAKES_OBJECT.search(need) is not None
    )


def _lacks_gpus(serve: Serve) -> bool:
    """Whether the hosts of the endpoint have no GPUs. An unknown type may have some."""
    if serve.kind == "serverless":
        return True
    known = serve.instance_type in endpoint_types() | transform_types()
    return known and not has_gpus(str(serve.instance_type)) and not has_other_accelerators(str(serve.instance_type))


@rule("SMDP828", *_FIELDS, "serve.instance_type", severity=Severity.WARNING)
def tensors_of_gpus_are_moved(facts: Facts) -> Iterator[Problem]:
    serve = section(facts)
    if serve is None or not _lacks_gpus(serve):
        return
    files = [file for _, file in facts.program.files]
    names_one = any(one.names_other_devices for one in files)
    if not any(one.uses_other_devices or (one.uses_device_variables and names_one) for one in files):
        return
    if any(_TO_CPU.search(line) for one in facts.scripts.values() for line in one.lines):
        return
    hosts = "a serverless endpoint" if serve.kind == "serverless" else str(serve.instance_type)
    for one in _pairs(facts):
        if one.read.call.startswith("torch.") and one.read.arguments.isdisjoint({"map_location", "**"}):
            message = f"the model is saved from a GPU, and {hosts} has none: {one.read.call} fails without map_location"
            yield _at(facts, one.reader, one.read.mark, message, 'add map_location="cpu"')


#: Names with which a script, or what it imports, may use a GPU.
_DEVICE = re.compile(r"cuda|gpu|device|accelerat", re.IGNORECASE)
_PLAIN = frozenset({*sys.stdlib_module_names, "torch", "torchvision", "numpy", "PIL"})


@rule("SMDP829", "serve.kind", "serve.entry", "serve.instance_type", "framework.name", severity=Severity.WARNING)
def gpus_are_used(facts: Facts) -> Iterator[Problem]:
    serve, scripts = section(facts), facts.serve_scripts
    if serve is None or serve.kind == "serverless" or not scripts or facts.spec.framework.name != "pytorch":
        return
    if serve.instance_type not in endpoint_types() | transform_types() or not has_gpus(serve.instance_type):
        return
    entry = scripts.get(normal_name(str(serve.entry)))
    if entry is None or any(one.problem is not None or one.training.is_dynamic for one in scripts.values()):
        return
    # The default predict_fn moves the model and the data to the GPU.
    if "model_fn" not in entry.definitions or entry.definitions.isdisjoint({"predict_fn", "transform_fn"}):
        return
    if any(_DEVICE.search(line.partition("#")[0]) for one in scripts.values() for line in one.lines):
        return
    if all(_is_plain(facts, name, one.name) for name, script in scripts.items() for one in script.imports):
        message = f"the serving script uses no GPU, and those of {serve.instance_type} are paid for"
        help_ = 'move the model and the data to "cuda", or choose a type without GPUs'
        yield Problem(("serve", "instance_type"), message, help_)


def _is_plain(facts: Facts, importer: str, module: str) -> bool:
    is_local = any(one in facts.serve_scripts for one in files_of(module, importer, next(iter(facts.serve_scripts))))
    return is_local or module.partition(".")[0] in _PLAIN
