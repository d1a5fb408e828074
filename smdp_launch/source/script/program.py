"""A script and the modules that it imports, as one program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from smdp_launch.source.script.modules import files_of
from smdp_launch.source.script.packages import PLAIN
from smdp_launch.source.script.script import Script
from smdp_launch.source.script.syntax import Position
from smdp_launch.source.script.training import Training

# Parts of these packages that do more.
_NOT_PLAIN = (
    *("smdistributed.modelparallel", "torch.distributed.run", "torch.distributed.launch", "torch.distributed.elastic"),
    "sagemaker.pytorch",
)
_MANAGED = ("Trainer", "TrainingArguments", "HfArgumentParser", "Accelerator")


class Program:
    """All files of one script, by their names in the source folder; the entry is the first."""

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
        """Is everything read that could start a process group, wrap a model or divide data?

        False where a file could not be read, where code runs that no file shows, and where a package is imported that
        may do so by itself.
        """
        if not self.scripts or any(one.problem is not None or one.training.is_dynamic for one in self.scripts.values()):
            return False
        return all(self._is_plain(one.name, name) for name, file in self.files for one in file.imports)

    def is_run_by_all(self, name: str, at: Position) -> bool:
        """Does every rank run what stands at ``at`` in the file ``name``? False where that cannot be known."""
        waiting, seen, begins = [(self.scripts[name].training, at)], set[str](), False
        while waiting:
            file, place = waiting.pop()
            if file.extents.is_guarded(place):
                return False
            function = file.extents.function(place)
            if function is None:
                begins = True
                continue
            called = function.called_as
            if called is None:
                return False
            if called in seen:
                continue
            seen.add(called)
            calls = [(one, each) for _, one in self.files for each in one.calls.get(called, ())]
            if not calls:
                return False
            waiting += calls
        return begins

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
