"""A job file as it is read: plain values, and the place in a file of every key and value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from smdp_launch.diagnostics import Diagnostic, Edit, Span
from smdp_launch.edits import apply_edits, split_lines
from smdp_launch.jobfile.yaml import layout as yaml_layout
from smdp_launch.jobfile.yaml.layout import Layout
from smdp_launch.jobfile.yaml.text import key as key_text

Location = yaml_layout.Location


class ConfigSource(Enum):
    """What can set a value, the strongest first."""

    FLAG = "flag"
    ENVIRONMENT = "environment"
    JOB_FILE = "job file"
    PYTHON = "Python"
    PROJECT = "project defaults"
    USER = "user defaults"
    SAGEMAKER = "SageMaker defaults"
    AWS = "AWS environment"
    BUILT_IN = "built-in"

    @property
    def is_transient(self) -> bool:
        """Whether the source applies to one command only, not to every run of the job."""
        return self in {ConfigSource.FLAG, ConfigSource.ENVIRONMENT, ConfigSource.AWS}


#: The sources whose files a fix may change. The user's own defaults apply to other projects too.
EDITABLE = frozenset({ConfigSource.JOB_FILE, ConfigSource.PROJECT})


class Entry(NamedTuple):
    """The places of one value.

    Args:
        key: of its key, or of its ``-`` item.
        value: of the value itself.
        text: the value as it is written, if it is a scalar.
        folder: the folder from which a relative path in the value starts.
        is_empty: whether nothing is written after the key.
    """

    key: Span
    value: Span
    text: str
    source: ConfigSource = ConfigSource.JOB_FILE
    folder: Path = Path()
    is_empty: bool = False


def value_at(data: Any, location: Location) -> Any:
    """The value at ``location`` of ``data``; None if there is none."""
    for part in location:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return None
    return data


@dataclass
class Document:
    """The plain values (dict, list, str, int, float, bool, None) of a job file, and the place of each.

    Args:
        unresolved: where a ``${NAME}`` cannot be replaced. Other errors at these places follow from that.
        text: of the file, whether it is YAML or not.
        layouts: by file name, of each file that was read and is YAML.
    """

    file: str
    folder: Path
    source: ConfigSource = ConfigSource.JOB_FILE
    data: dict[str, Any] = field(default_factory=dict)
    entries: dict[Location, Entry] = field(default_factory=dict)
    unresolved: set[Location] = field(default_factory=set)
    top: Span = field(default_factory=lambda: Span("", 1, 1, 1))
    text: str = field(default="", repr=False, compare=False)
    layouts: dict[str, Layout] = field(default_factory=dict, repr=False, compare=False)

    def entry(self, location: Location) -> Entry:
        """The entry at ``location``, or of its nearest parent in the file."""
        for length in range(len(location), 0, -1):
            if location[:length] in self.entries:
                return self.entries[location[:length]]
        return Entry(self.top, self.top, "", ConfigSource.BUILT_IN, self.folder)

    def place(self, location: Location, *, of_key: bool = False) -> Span:
        """Of the value at ``location``, or of its key; of the key of its nearest parent if it is not written."""
        entry = self.entry(location)
        return entry.key if of_key or not self.is_written(location) else entry.value

    def source_of(self, location: Location) -> ConfigSource:
        """The source that set the value at ``location``."""
        return self.entries[location].source if location in self.entries else ConfigSource.BUILT_IN

    def path(self, location: Location, value: str) -> Path:
        """``value``, which is at ``location``, as a path relative to the file that contains it."""
        return self.entry(location).folder / value

    def is_written(self, location: Location) -> bool:
        """Whether a file, a flag or a variable sets the value at ``location``."""
        return location in self.entries

    def is_editable(self, location: Location) -> bool:
        """Whether the value at ``location`` is in a file that a fix may change."""
        return self._layout(location) is not None

    def is_in_flow(self, location: Location) -> bool:
        """Whether the entry at ``location`` is between braces or brackets."""
        layout = self._layout(location)
        return layout is not None and layout.is_in_flow(location)

    def value(self, location: Location) -> Any:
        """The value at ``location``; None if there is none."""
        return value_at(self.data, location)

    def replacing(self, location: Location, text: str, *, on_key: bool = False) -> tuple[Edit, ...]:
        """The edit that writes ``text``, one line of YAML, in place of the value at ``location``, or of its key.

        Empty if no file can be edited: a flag or a variable sets the value, or an anchor shares it.
        """
        layout = self._layout(location)
        if layout is None or self.entries[location].is_empty:
            return ()
        is_key = on_key and isinstance(location[-1], str)
        return layout.rename(location, text) if is_key else layout.replace(location, text)

    def removing(self, location: Location) -> tuple[Edit, ...]:
        """The edit that removes the entry at ``location`` from its file; empty as for ``replacing``."""
        layout = self._layout(location)
        return layout.remove(location) if layout is not None else ()

    def writing(self, location: Location, text: str, order: Sequence[str] = ()) -> tuple[Edit, ...]:
        """The edit that replaces the value at ``location`` with ``text``, one line of YAML, or adds it.

        Args:
            order: the known keys of the mapping that gets a new one, in their usual order.
        """
        if self.is_written(location) and not self.entries[location].is_empty:
            return self.replacing(location, text)
        *above, name = location
        parent = tuple(above)
        if parent and not self.is_written(parent):
            return self.writing(parent, f"{{{key_text(str(name))}: {text}}}", order)
        layout = self._layout(parent) if parent else self.layouts.get(self.file)
        return layout.add(location, text, order) if layout is not None else ()

    def can_apply(self, edits: Sequence[Edit]) -> bool:
        """Whether no two of the edits change the same text."""
        for file in {one.file for one in edits} if len(edits) > 1 else ():
            try:
                apply_edits(self.layouts[file].text, [one for one in edits if one.file == file])
            except ValueError:
                return False
        return True

    def one_line_yaml(self, location: Location) -> str | None:
        """The value at ``location`` as the file has it, if it is one line that can be at any other place.

        None for a block of one line.
        """
        value, layout = self.value(location), self._layout(location)
        offsets = layout.range(location) if layout is not None else None
        text = layout.text[slice(*offsets)] if layout is not None and offsets is not None else ""
        is_block = isinstance(value, dict | list) and not text.startswith(("{", "["))
        return text if text and len(split_lines(text)) == 1 and not is_block else None

    def _layout(self, location: Location) -> Layout | None:
        """Of the file that has ``location``, if that file may be edited."""
        entry = self.entries.get(location)
        if entry is None or entry.source not in EDITABLE:
            return None
        return self.layouts.get(entry.value.file)


#: A document, and the errors of its text.
Parsed = tuple[Document, list[Diagnostic]]
