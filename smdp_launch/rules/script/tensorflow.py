"""The use of ``smdistributed.dataparallel.tensorflow`` in the script: ``init``, names, ``model.fit``."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.catalog.instances import instance
from smdp_launch.diagnostics import Severity
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.rules.base.script_places import place
from smdp_launch.rules.script.tensorflow_library import GUIDE, NAMES, argument_problem, instead_of
from smdp_launch.source.script.library_uses import TENSORFLOW_LIBRARY, LibraryUse
from smdp_launch.source.syntax.tree import Mark

#: Functions and classes that work only after ``init``.
_AFTER_INIT = frozenset(
    {
        *("rank", "size", "local_rank", "local_size", "allreduce", "oob_allreduce", "broadcast", "allgather"),
        *("barrier", "broadcast_variables", "broadcast_global_variables", "BroadcastGlobalVariablesHook"),
        *("DistributedGradientTape", "DistributedOptimizer"),
    }
)
#: Names that only the native engine has.
ENGINE_ONLY = frozenset({"BroadcastVariablesCallback", "MetricAverageCallback", "allgather", "barrier"})
#: In the text of a script that may limit each worker to a GPU, or to a part of the memory.
_CHOOSES_GPU = ("visible_device", "logical_device", "virtual_device", "gpu_options")
#: Names that may place the computation on a GPU.
_PLACES = frozenset({"device", "distribute"})


def help_to_average(facts: Facts, *, is_fit: bool) -> str:
    """How a script for TensorFlow averages its gradients. ``is_fit``: it trains with ``model.fit``."""
    if is_fit and _is_library_of_aws(facts):
        return f"AWS's library does not support model.fit: write `engine: native`, or use a GradientTape ({GUIDE})"
    if is_fit:
        return (
            f"call init() of {TENSORFLOW_LIBRARY}, wrap the optimizer in its DistributedOptimizer, "
            "and add its BroadcastVariablesCallback to the callbacks"
        )
    return f"call init() of {TENSORFLOW_LIBRARY}, and wrap the tape in its DistributedGradientTape"


def _is_library_of_aws(facts: Facts) -> bool:
    return facts.has("engine") and facts.spec.engine == "smdistributed"


def _uses(facts: Facts) -> list[tuple[str, LibraryUse]]:
    """The uses of the library; none if the same name may be Horovod."""
    if "horovod" in facts.program.names:
        return []
    return [(name, one) for name, file in facts.program.files for one in file.library_uses]


@rule("SMDP440", "script.entry", "framework.name", severity=Severity.WARNING)
def library_is_initialised(facts: Facts) -> Iterator[Problem]:
    uses = _uses(facts)
    # A module that is passed to a function has another name there, so a call of any `init` may be the library's.
    calls_init = any("init" in file.calls for _, file in facts.program.files)
    if calls_init or any(one.name in ("init", "*") for _, one in uses) or not facts.program.is_understood:
        return
    for name, one in uses:
        if one.name in _AFTER_INIT:
            message = f"the script uses {TENSORFLOW_LIBRARY} but does not call its init()"
            yield _problem(facts, name, one.mark, message, "call init() once, before the first use")
            return


@rule("SMDP457", "script.entry", "framework.name", "compute.instance_type", severity=Severity.WARNING)
def workers_choose_gpus(facts: Facts) -> Iterator[Problem]:
    program, type_ = facts.program, instance(facts.spec.compute.instance_type)
    uses = _uses(facts)
    if type_ is None or type_.gpus < 2 or program.frameworks != ["tensorflow"] or not program.is_understood:
        return
    if not uses or any(library_is_initialised.check(facts)):
        return
    text = "\n".join(line for one in facts.scripts.values() for line in one.lines).lower()
    if any(one in text for one in _CHOOSES_GPU) or not program.names.isdisjoint(_PLACES):
        return
    effect = "computes on the first of the" if "memory_growth" in text else "takes the memory of all"
    name, first = next((use for use in uses if use[1].name == "init"), uses[0])
    message = f"the script does not choose a GPU, so each worker {effect} {type_.gpus} GPUs of its host"
    help_ = (
        'after init(), call tf.config.set_visible_devices(gpus[local_rank()], "GPU");'
        ' gpus is tf.config.list_physical_devices("GPU")'
    )
    yield _problem(facts, name, first.mark, message, help_)


def _missing(facts: Facts, *, certain: bool) -> Iterator[Problem]:
    """The first use of each name that the job's library does not have. AWS documents not all names of its library, and
    the native engine replaces it locally."""
    reported: set[str] = set()
    for file, one in _uses(facts):
        is_missing, is_error = one.name not in NAMES, one.certain
        if _is_library_of_aws(facts):
            is_error &= one.name in ENGINE_ONLY and not facts.local
            is_missing |= one.name in ENGINE_ONLY
        if not is_missing or one.conditional or one.name in reported or one.name.startswith(("_", "*")):
            continue
        reported.add(one.name)
        if is_error == certain:
            yield _problem(facts, file, one.mark, *_texts(facts, one.name))


def _texts(facts: Facts, name: str) -> tuple[str, str]:
    if name in ENGINE_ONLY:
        message = f"AWS's {TENSORFLOW_LIBRARY} has no {name}"
        return message, f"write `engine: native`, whose module has it ({GUIDE})"
    return f"{TENSORFLOW_LIBRARY} has no {name}", instead_of(name)


def _arguments(facts: Facts, *, certain: bool) -> Iterator[Problem]:
    """The first call of each function with each argument that it refuses. AWS does not document all arguments of its
    library."""
    reported: set[tuple[str, str]] = set()
    if not _uses(facts):
        return
    calls = [(name, one) for name, file in facts.program.files for one in file.library_calls]
    for file, call in calls:
        use = call.use
        for argument in () if use.conditional else call.arguments:
            problem = argument_problem(use.name, argument)
            if problem is None or (use.name, argument.name) in reported:
                continue
            reported.add((use.name, argument.name))
            if (use.certain and not _is_library_of_aws(facts)) == certain:
                yield _problem(facts, file, argument.mark, *problem)


@rule("SMDP456", "script.entry", "framework.name", "engine")
def library_has_the_names(facts: Facts) -> Iterator[Problem]:
    yield from _missing(facts, certain=True)
    yield from _arguments(facts, certain=True)


@rule("SMDP456", "script.entry", "framework.name", "engine", severity=Severity.WARNING)
def library_supports_the_script(facts: Facts) -> Iterator[Problem]:
    yield from _missing(facts, certain=False)
    yield from _arguments(facts, certain=False)
    optimizers = [one for _, one in _uses(facts) if one.name == "DistributedOptimizer"]
    if not _is_library_of_aws(facts) or not optimizers:
        return
    for name, file in facts.program.files:
        if file.fit is not None and file.fit == file.step:
            help_ = f"write `engine: native`, or average the gradients with a DistributedGradientTape ({GUIDE})"
            yield _problem(facts, name, file.fit, "AWS's library does not support model.fit", help_)


def _problem(facts: Facts, name: str, mark: Mark, message: str, help_: str) -> Problem:
    span = place(facts, name, mark)
    return Problem((), message, help_, text=span.source[mark.column - 1 : mark.end_column - 1], place=span)
