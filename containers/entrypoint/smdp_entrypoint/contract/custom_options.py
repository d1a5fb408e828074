"""What of the job's options for mpirun has a meaning without mpirun: the variables that they export."""

from __future__ import annotations

from typing import Callable, Mapping

from smdp_entrypoint.contract.platform_files import Contract

_NAMES = ("sagemaker_distributed_dataparallel_custom_mpi_options", "sagemaker_mpi_custom_mpi_options")


def exported_variables(contract: Contract, environ: Mapping[str, str], say: Callable[[str], None]) -> dict[str, str]:
    """`-x NAME=VALUE`, `-x NAME` (as it is here), and the AWS toolkit's own `--NCCL_DEBUG VALUE`; what is left is
    named in the log. Options are split at white space, without quoting, as the toolkit does."""
    found: dict[str, str] = {}
    unused: list[str] = []
    for name in _NAMES:
        words = str(contract.hyperparameters.framework.get(name) or "").split()
        while words:
            _take(words, found, unused, environ)
    if unused:
        say(f"custom MPI options that have no meaning without mpirun are not used: {' '.join(unused)}")
    return found


def _take(words: list[str], found: dict[str, str], unused: list[str], environ: Mapping[str, str]) -> None:
    word = words.pop(0)
    option, given, value = word.partition("=")
    if word == "-x" and words:
        name, given, value = words.pop(0).partition("=")
        found[name] = value if given else environ.get(name, "")
    elif option == "--NCCL_DEBUG" and (given or words):
        found["NCCL_DEBUG"] = value if given else words.pop(0)
    else:
        unused.append(word)
