"""A script and the modules that it imports, as one program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from smdp_launch.source.script.modules import files_of
from smdp_launch.source.script.packages import PLAIN
from smdp_launch.source.script.script import Script
from smdp_launch.source.script.training import Training
from smdp_launch.source.syntax.tree import Position

# Parts of these packages that may start a process group or wrap a model by themselves.
_NOT_PLAIN = (
    *("smdistributed.modelparallel", "torch.distributed.run", "torch.distributed.launch", "torch.distributed.elastic"),
    "sagemaker.pytorch",
)
_MANAGED = ("Trainer", "TrainingArguments", "HfArgumentParser", "Accelerator")


class Program:
    """All files of one script, by their names in the source folder; the entry point is the first."""

    def __init__(self, scripts: Mapping[str, Script]) -> None:
        self.scripts = scripts
        self._entry = next(iter(scripts), "")

    @property
    def files(self) -> Iterator[tuple[str, Training]]:
        for name, script in self.scripts.items():
            yield name, script.training

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset().union(*(one.names for _, one in self.files))

    @cached_property
    def frameworks(self) -> list[str]:
        return list(dict.fromkeys(name for one in self.scripts.values() for name in one.frameworks))

    @cached_property
    def is_understood(self) -> bool:
        """Whether the files show everything that starts a process group, wraps a model or divides data.

        False if a file cannot be read, if the program runs code that the files do not show, or if it imports a package
        that may do these things by itself.
        """
        if not self.scripts or any(one.problem is not None or one.training.is_dynamic for one in self.scripts.values()):
            return False
        return all(self._is_plain(one.name, name) for name, file in self.files for one in file.imports)

    @property
    def nodes_of_lightning(self) -> str | None:
        """The name of the option for the number of hosts of Lightning's Trainer; None if none is known."""
        return next((one.nodes_of_lightning.name for _, one in self.files if one.nodes_of_lightning is not None), None)

    def is_run_by_all(self, name: str, at: Position) -> bool:
        """Whether every rank runs the code at ``at`` in the file ``name``; False if that cannot be determined."""
        waiting, visited, starts = [(self.scripts[name].training, at)], set[str](), False
        while waiting:
            file, place = waiting.pop()
            if file.extents.is_guarded(place):
                return False
            function = file.extents.function(place)
            if function is None:
                starts = True
                continue
            called = function.called_as
            if called is None:
                return False
            if called in visited:
                continue
            visited.add(called)
            calls = [(one, each) for _, one in self.files for each in one.calls.get(called, ())]
            if not calls:
                return False
            waiting += calls
        return starts

    def _is_plain(self, module: str, importer: str) -> bool:
        if any(one in self.scripts for one in files_of(module, importer, self._entry)):
            return True
        if module.startswith((".", *_NOT_PLAIN)):
            return False
        top, _, rest = module.partition(".")
        if top == "transformers":
            return not rest.rpartition(".")[2].endswith(_MANAGED) and not (not rest and self._uses_a_trainer)
        return top in PLAIN

    @cached_property
    def _uses_a_trainer(self) -> bool:
        return any(one.endswith(_MANAGED) for one in self.names)
