"""The environment variables that the job's mpirun options export; all other mpirun options have no effect."""

from __future__ import annotations

from typing import Callable, Container, Mapping

from smdp_entrypoint.contract.platform_files import Contract

_NAMES = ("sagemaker_distributed_dataparallel_custom_mpi_options", "sagemaker_mpi_custom_mpi_options")


def exported_variables(
    contract: Contract, environ: Mapping[str, str], given: Container[str], say: Callable[[str], None]
) -> dict[str, str]:
    """The variables of `-x NAME=VALUE`, `-x NAME` (the value in `environ`) and the AWS toolkit's own `--NCCL_DEBUG
    VALUE`; a log line lists the other options, and another one the names that are neither in `environ` nor among the
    variables `given` to all workers. Options are split at white space, without quoting, as in the toolkit."""
    variables: dict[str, str] = {}
    unused: list[str] = []
    unset: list[str] = []
    for name in _NAMES:
        words = str(contract.hyperparameters.framework.get(name) or "").split()
        while words:
            _parse_option(words, variables, unused, unset, environ)
    unset = [name for name in unset if name not in given]
    if unset:
        say(f"the custom MPI options export variables that are not set: {' '.join(unset)}")
    if unused:
        say(f"ignoring custom MPI options that need mpirun: {' '.join(unused)}")
    return variables


def _parse_option(
    words: list[str], variables: dict[str, str], unused: list[str], unset: list[str], environ: Mapping[str, str]
) -> None:
    word = words.pop(0)
    option, equals, value = word.partition("=")
    if word == "-x" and words:
        name, equals, value = words.pop(0).partition("=")
        if equals or name in environ:
            variables[name] = value if equals else environ[name]
        else:
            unset.append(name)
    elif option == "--NCCL_DEBUG" and (equals or words):
        variables["NCCL_DEBUG"] = value if equals else words.pop(0)
    else:
        unused.append(word)
