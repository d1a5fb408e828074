"""The serving script: whether the container finds it, can import it, and can load the model with it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from smdp_launch.catalog.hosting.images import distribution_of, installed_packages
from smdp_launch.diagnostics import Severity, Span, closest
from smdp_launch.jobfile.yaml.document import Location
from smdp_launch.request.serving import serving_image
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.rules.serve.hosting import IMAGE_FIELDS, section
from smdp_launch.source.requirements import REQUIREMENTS_FILE
from smdp_launch.source.scan import normal_name
from smdp_launch.source.script.modules import always_run, files_of

_ENTRY: Location = ("serve", "entry")
#: The only name that TensorFlow's serving container looks for.
_TENSORFLOW_ENTRY = "inference.py"
_HANDLERS = {"pytorch": ("model_fn",), "tensorflow": ("handler", "input_handler", "output_handler")}
_TRAINING_ONLY = ("smdp_engine", "smdistributed")
#: What a script names that writes to the model's folder.
_WRITES_MODEL = re.compile(r"SM_MODEL_DIR|/opt/ml/model|model[_-]?dir|output[_-]dir|sagemaker_training", re.IGNORECASE)
#: A model that PyTorch's default handler loads without a script.
_SELF_CONTAINED = re.compile(r"jit\.(save|script|trace)|\.save\(.*ScriptModule")


@rule("SMDP460", "serve.kind", "serve.entry", "script.source", "framework.name")
def serving_script_exists(facts: Facts) -> Iterator[Problem]:
    serve, tree = section(facts), facts.source
    if serve is None or serve.entry is None or tree is None or not tree.exists or tree.too_large:
        return
    name = normal_name(serve.entry)
    if tree.file(name) is None:
        message = f"the serving script {serve.entry} is not in the source folder {tree.folder}"
        meant = closest(name, [one.name for one in tree.files if "/" not in one.name], cutoff=0.8)
        help_ = f"did you mean {meant}?" if meant is not None else "create it with `model_fn`, or correct the name"
        yield Problem(_ENTRY, message, help_, replacement=meant)
    elif "/" in name or not name.endswith(".py"):
        message = f"the container imports the serving script as a module, which {serve.entry} is not"
        yield Problem(_ENTRY, message, "name a .py file at the top of the source folder")
    elif facts.spec.framework.name == "tensorflow" and name != _TENSORFLOW_ENTRY:
        message = f"TensorFlow's serving container runs only a script called {_TENSORFLOW_ENTRY}"
        yield Problem(_ENTRY, message, f"rename {serve.entry} to {_TENSORFLOW_ENTRY}")


@rule("SMDP461", "serve.kind", "serve.entry", "serve.image", "script.source", "framework.name")
def model_can_be_loaded(facts: Facts) -> Iterator[Problem]:
    serve, framework = section(facts), facts.spec.framework.name
    if serve is None:
        return
    if serve.entry is None:
        if serve.image is None and framework == "pytorch" and not _is_self_contained(facts):
            message = "no script loads the model, and the container by itself can load only a TorchScript model"
            help_ = (
                "add `entry:` with a script that has `model_fn(model_dir)`, or `image:` with one that serves by itself"
            )
            yield Problem(("serve",), message, help_)
        return
    name = normal_name(serve.entry)
    script = facts.serve_scripts.get(name)
    if script is None or script.problem is not None or "*" in {one.name[-1:] for one in script.imports}:
        return
    wanted = _HANDLERS[framework]
    if framework == "tensorflow" and facts.spec.engine == "native" and serving_image(facts.spec) == facts.spec.image:
        wanted = (*wanted, "model_fn")  # the native engine's image has both contracts
    if script.definitions.isdisjoint(wanted):
        names = " or ".join(f"`{one}`" for one in wanted)
        message = f"{name} does not define {names}, so the container cannot load the model"
        example = "`def model_fn(model_dir):`, which returns the model" if framework == "pytorch" else names
        if framework == "pytorch" and _is_self_contained(facts):
            return
        yield Problem(_ENTRY, message, f"define {example}")


def _is_self_contained(facts: Facts) -> bool:
    """Whether the training script saves a TorchScript model, or cannot be read."""
    scripts = facts.scripts.values()
    if not scripts or any(one.problem is not None for one in scripts):
        return True
    return any(_SELF_CONTAINED.search(line) for one in scripts for line in one.lines)


@rule("SMDP462", "serve.entry", *IMAGE_FIELDS, severity=Severity.WARNING)
def packages_are_installed(facts: Facts) -> Iterator[Problem]:
    """Only for AWS's image, whose packages are known."""
    serve, tree = section(facts), facts.source
    installed = installed_packages(facts.spec.framework.name)
    if serve is None or tree is None or installed is None or not facts.serve_scripts:
        return
    if serve.image is not None or serving_image(facts.spec) in (None, facts.spec.image):
        return
    if facts.requirements.includes or facts.requirements.problems:
        return
    required = {one.name for one in facts.requirements.packages}
    local, entry, seen = {one.name for one in tree.files}, next(iter(facts.serve_scripts)), set[str]()
    for file in always_run(facts.serve_scripts):
        script = facts.serve_scripts[file]
        for one in script.imports:
            top = one.name.partition(".")[0]
            if not top or one.name not in script.always_imported or top in seen:
                continue
            is_local = any(path in local for path in files_of(top, file, entry))
            if is_local or top in sys.stdlib_module_names or top in installed or distribution_of(top) in required:
                continue
            seen.add(top)
            line = script.lines[one.line - 1]
            place = Span(str(tree.folder / file), one.line, 1, len(line) + 1, line)
            message = f"the serving script imports {top}, which AWS's inference image does not have"
            help_ = f"add {distribution_of(top)} to {REQUIREMENTS_FILE} in the source folder, or do not import it"
            if top in _TRAINING_ONLY:
                help_ = "do not import it: it is for training only"
            yield Problem((), message, help_, text=line.strip(), place=place)


@rule("SMDP463", "serve.kind", "script.entry", "script.source", "script.hyperparameters", severity=Severity.WARNING)
def training_saves_a_model(facts: Facts) -> Iterator[Problem]:
    if section(facts) is None or not facts.scripts or not facts.program.is_understood:
        return
    texts = [line for one in facts.scripts.values() for line in one.lines]
    texts += [f"{name} {value}" for name, value in facts.spec.script.hyperparameters.items()]
    if any(_WRITES_MODEL.search(one) for one in texts):
        return
    message = "the training script writes nothing to SM_MODEL_DIR, so the job has no model to serve"
    yield Problem(("script", "entry"), message, "save the model in os.environ['SM_MODEL_DIR']")


@rule("SMDP464", "serve.kind", "serve.entry", "script.source")
def serving_script_parses(facts: Facts) -> Iterator[Problem]:
    if section(facts) is None or facts.source is None:
        return
    for name in always_run(facts.serve_scripts):
        problem = facts.serve_scripts[name].problem
        if problem is None or not problem.is_syntax or name in facts.scripts:
            continue  # another rule reports the training script's own modules
        span = Span(
            str(facts.source.folder / name), problem.line or 1, problem.column, problem.column + 1, problem.source
        )
        message = f"{name} has a syntax error: {problem.reason.removeprefix('not Python 3: ')}"
        yield Problem((), message, "fix the serving script", text=problem.source.strip(), place=span)
