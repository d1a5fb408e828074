"""The options of each engine."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from smdp_launch.catalog.engines import TORCH_DISTRIBUTED
from smdp_launch.jobfile.model.spec import EngineOptions
from smdp_launch.rules.base.facts import Facts, Problem, rule

_OPTIONS = "engine_options"
_MPI = "custom_mpi_options"

# The toolkit splits the text at blanks and starts mpirun without a shell.
_SHELL = (";", "|", "&", ">", "<", "`", "$(", "\\")


@rule("SMDP319", "engine", "engine_options")
def options_of_this_engine(facts: Facts) -> Iterator[Problem]:
    engine, options = facts.spec.engine, facts.spec.engine_options
    for name in EngineOptions.model_fields:
        of_mpi = name == _MPI
        applies = of_mpi == (engine == "smdistributed") and engine not in TORCH_DISTRIBUTED
        if not facts.loaded.has(_OPTIONS, name) or getattr(options, name) is None or applies:
            continue
        if engine in TORCH_DISTRIBUTED:
            message = f"{name} has no effect with engine {engine}, which reads its options from variables"
            help_ = "remove it, and set the variables of torch.distributed and NCCL in `environment`"
            yield Problem((_OPTIONS, name), message, help_, on_key=True, remove=True)
            continue
        other = "smdistributed" if of_mpi else "native"
        reason = "which starts its workers without mpirun" if of_mpi else "which is AWS's library"
        message = f"{name} has no effect with engine {engine}, {reason}"
        help_ = f"remove it, or choose `engine: {other}`"
        yield Problem((_OPTIONS, name), message, help_, on_key=True, remove=True)


@rule("SMDP319", "engine", "network.require")
def network_requirement_of_this_engine(facts: Facts) -> Iterator[Problem]:
    if facts.spec.network.require is not None and facts.spec.engine != "native":
        message = f"require has no effect with engine {facts.spec.engine}: only engine native probes the network"
        yield Problem(
            ("network", "require"), message, "remove it, or choose `engine: native`", on_key=True, remove=True
        )


@rule("SMDP319", "engine", "engine_options.custom_mpi_options")
def mpi_options(facts: Facts) -> Iterator[Problem]:
    text = facts.spec.engine_options.custom_mpi_options
    problem = _mpi_problem(text) if text and facts.spec.engine == "smdistributed" else None
    if problem is not None:
        help_ = "write options as mpirun takes them, such as -x NCCL_DEBUG=VERSION"
        yield Problem((_OPTIONS, _MPI), f"{_MPI}: {problem}", help_)


def _mpi_problem(text: str) -> str | None:
    try:
        words = shlex.split(text)
    except ValueError:
        return "a quote is not closed"
    if not words or not words[0].startswith("-"):
        return f"{words[0] if words else 'it'} is not an option, so mpirun would take it for the program"
    syntax = next((one for one in _SHELL if one in text), None)
    return f"{syntax} is shell syntax, but no shell reads the options" if syntax else None
