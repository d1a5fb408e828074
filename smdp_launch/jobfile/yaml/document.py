"""YAML text to plain values, with the place of every key and value kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, StreamMark, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from smdp_launch.diagnostics import Diagnostic, Edit, Span
from smdp_launch.edits import split_lines
from smdp_launch.jobfile.yaml import mistakes
from smdp_launch.jobfile.yaml.layout import Layout
from smdp_launch.jobfile.yaml.text import key as key_text
from smdp_launch.jobfile.yaml.text import quoted
from smdp_launch.jobfile.yaml.variables import substitute
from smdp_launch.jobfile.yaml.yaml12 import TAG, CoreSchema, TabScanner, kind_of

#: Where a value stands: keys of mappings and indices of lists, from the top.
Location = tuple[str | int, ...]

# A job file is written by a person. The bounds keep strange ones from taking more than moments and some megabytes.
MAX_BYTES = 1 << 20
MAX_NODES = 10_000  # keys and values; an alias counts as what it stands for
MAX_DEPTH = 50
MAX_DIGITS = 100

_WRITE_ONE = "give the path of a job file, or write one for the script in this folder: smdp-launch init"

# What YAML can write and neither a command line nor UTF-8 can carry: NUL, and halves of surrogate pairs.
_UNSENDABLE = re.compile(r"[\0\ud800-\udfff]")


class Layer(Enum):
    """Where a value comes from, the strongest first."""

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
    def transient(self) -> bool:
        """Whether it says something about one command, not about the job for good."""
        return self in {Layer.FLAG, Layer.ENVIRONMENT, Layer.AWS}


#: The layers whose files a fix may change. The user's own defaults hold for other projects too.
EDITABLE = frozenset({Layer.JOB_FILE, Layer.PROJECT})


class Entry(NamedTuple):
    """The places of one value: its key (or its ``-`` item), itself, and its text, as written, if it is a scalar.

    ``folder`` is what a relative path in it starts from; ``is_empty``: nothing is written behind the key.
    """

    key: Span
    value: Span
    text: str
    layer: Layer = Layer.JOB_FILE
    folder: Path = Path()
    is_empty: bool = False


@dataclass
class Document:
    """A job file as read: plain values (dict, list, str, int, float, bool, None) and where each one stands."""

    file: str
    folder: Path
    layer: Layer = Layer.JOB_FILE
    data: dict[str, Any] = field(default_factory=dict)
    entries: dict[Location, Entry] = field(default_factory=dict)
    #: Where a ``${NAME}`` could not be replaced: what else is wrong there follows from that.
    unresolved: set[Location] = field(default_factory=set)
    top: Span = field(default_factory=lambda: Span("", 1, 1, 1))
    #: Of the file itself, whether it is YAML or not.
    text: str = field(default="", repr=False, compare=False)
    #: Of each file that was read and is YAML, by its name.
    layouts: dict[str, Layout] = field(default_factory=dict, repr=False, compare=False)

    def entry(self, location: Location) -> Entry:
        """The entry at ``location``, or of the nearest parent that was written."""
        for length in range(len(location), 0, -1):
            if location[:length] in self.entries:
                return self.entries[location[:length]]
        return Entry(self.top, self.top, "", Layer.BUILT_IN, self.folder)

    def origin(self, location: Location) -> Layer:
        """Which layer gave the value at ``location``."""
        return self.entries[location].layer if location in self.entries else Layer.BUILT_IN

    def path(self, location: Location, value: str) -> Path:
        """``value``, found at ``location``, as a path: relative to the file that says so."""
        return self.entry(location).folder / value

    def written(self, location: Location) -> bool:
        return location in self.entries

    def replacing(self, location: Location, text: str, *, on_key: bool = False) -> tuple[Edit, ...]:
        """The edit that writes ``text``, one line of YAML, in place of the value at ``location``, or of its key.

        Empty where no file can be edited: the value comes from a flag or a variable, or an anchor shares it.
        """
        layout = self._layout(location)
        if layout is None or self.entries[location].is_empty:
            return ()
        return layout.rename(location, text) if on_key and _is_key(location) else layout.replace(location, text)

    def removing(self, location: Location) -> tuple[Edit, ...]:
        """The edit that removes the entry at ``location`` from its file; empty as above."""
        layout = self._layout(location)
        return layout.remove(location) if layout is not None else ()

    def writing(self, location: Location, text: str, order: Sequence[str] = ()) -> tuple[Edit, ...]:
        """The edit that makes ``text``, one line of YAML, the value at ``location``, whether there is one or not.

        Args:
            order: the known keys of the mapping that gets a new one, as they are usually ordered.
        """
        if self.written(location) and not self.entries[location].is_empty:
            return self.replacing(location, text)
        *above, name = location
        parent = tuple(above)
        if parent and not self.written(parent):
            return self.writing(parent, f"{{{key_text(str(name))}: {text}}}", order)
        layout = self._layout(parent) if parent else self.layouts.get(self.file)
        return layout.add(location, text, order) if layout is not None else ()

    def source(self, location: Location) -> str | None:
        """The YAML of the value at ``location`` as it is written, where that is one line of a file that may stand
        anywhere: a block of one line may not."""
        layout = self._layout(location)
        found = layout.range(location) if layout is not None else None
        text = layout.text[slice(*found)] if layout is not None and found is not None else ""
        is_block = isinstance(self._value(location), dict | list) and not text.startswith(("{", "["))
        return text if text and len(split_lines(text)) == 1 and not is_block else None

    def _value(self, location: Location) -> Any:
        value: Any = self.data
        for part in location:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return None
        return value

    def _layout(self, location: Location) -> Layout | None:
        """Of the file where ``location`` stands, if that may be edited."""
        entry = self.entries.get(location)
        if entry is None or entry.layer not in EDITABLE:
            return None
        return self.layouts.get(entry.value.file)


def _is_key(location: Location) -> bool:
    return isinstance(location[-1], str)


def read(
    path: Path,
    variables: Mapping[str, str] | None = None,
    layer: Layer = Layer.JOB_FILE,
    contents: Mapping[str, bytes] | None = None,
) -> tuple[Document, list[Diagnostic]]:
    """Read the file at ``path``; spans carry the path as it was given.

    Args:
        variables: what ``${NAME}`` may name; None leaves such text as it is.
        contents: of files by their paths, in place of what they hold.
    """
    document = Document(file=str(path), folder=path.parent, layer=layer, top=Span(str(path), 1, 1, 1))

    def refused(code: str, message: str, help_: str) -> tuple[Document, list[Diagnostic]]:
        return document, [Diagnostic(code, message, document.top, str(path), help_)]

    try:
        raw = _raw(path, contents or {})
    except FileNotFoundError:
        return refused("SMDP101", f"there is no file {path}", _WRITE_ONE)
    except OSError as error:
        return refused("SMDP101", f"{path} cannot be read: {error.strerror}", "give the path of a readable file")
    if len(raw) > MAX_BYTES:
        return refused("SMDP105", f"{path} has more than {MAX_BYTES} bytes", "a job file is a page of YAML")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - raw.rfind(b"\n", 0, error.start)
        document.top = Span(str(path), line, column, column + 1)
        return refused("SMDP101", f"line {line} of {path} is not UTF-8", "save the file as UTF-8")
    return parse(text, document, variables)


def _raw(path: Path, contents: Mapping[str, bytes]) -> bytes:
    if str(path) in contents:
        return contents[str(path)]
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)


def parse(
    text: str, document: Document, variables: Mapping[str, str] | None = None
) -> tuple[Document, list[Diagnostic]]:
    """Fill ``document`` from ``text``. Syntax errors end the parse; duplicate keys do not."""
    document.text = text
    builder = _Builder(document, split_lines(text), variables)
    root, problems = builder.compose(text)
    if problems:
        return document, problems
    if not isinstance(root, MappingNode):
        if isinstance(root, ScalarNode) and (named := mistakes.lines_without_blank(document.file, text)):
            return document, named
        found = "is empty" if root is None else "holds something else"
        message = f"a job file is one mapping of keys to values; this one {found}"
        return document, [Diagnostic("SMDP104", message, document.top, help="begin with `schema: 1`")]
    document.top = builder.span(root.start_mark, root.start_mark)
    document.layouts[document.file] = Layout(document.file, text, root)
    return builder.fill(root)


def fill(
    document: Document, root: MappingNode, variables: Mapping[str, str] | None = None
) -> tuple[Document, list[Diagnostic]]:
    """Fill ``document`` from a tree of nodes that stands in no text."""
    return _Builder(document, [], variables).fill(root)


class _TooLargeError(Exception):
    def __init__(self) -> None:
        super().__init__(f"more than {MAX_NODES} keys and values or {MAX_DEPTH} levels")


class _BoundedComposer(Composer):
    """Stops where the file becomes too large, not at its end."""

    def __init__(self, loader: Any = None) -> None:
        super().__init__(loader=loader)
        self.warn_double_anchors = False  # YAML allows them; the nearest before an alias counts
        self._nodes = 0
        self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._nodes += 1
        self._depth += 1
        if self._nodes > MAX_NODES or self._depth > MAX_DEPTH + 1:
            raise _TooLargeError
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _Builder:
    """Walks YAML nodes once, making plain values and noting where they stand."""

    def __init__(self, document: Document, lines: list[str], variables: Mapping[str, str] | None) -> None:
        self.document = document
        self.file = document.file
        self.lines = lines
        self.variables = variables
        self.entries: dict[Location, Entry] = {}
        self.problems: list[Diagnostic] = []
        self.nodes = 0

    @property
    def layout(self) -> Layout | None:
        return self.document.layouts.get(self.file) if self.document.layer in EDITABLE else None

    def compose(self, text: str) -> tuple[Node | None, list[Diagnostic]]:
        """The root of ``text``, or why there is none."""
        try:
            return _yaml().compose(text), []
        except _TooLargeError as error:
            return None, [self.too_large(error, "a job file is a page of YAML")]
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            failure = mark.line if mark is not None else 0
            named = mistakes.named(self.file, text, failure, _fails_at) if self.document.layer in EDITABLE else []
            return None, named or [self.syntax_error(error)]
        except ReaderError as error:
            return None, [self.forbidden_character(text, error)]
        except (YAMLError, ValueError) as error:
            return None, [Diagnostic("SMDP102", f"not valid YAML: {_first_line(error)}", self.document.top)]

    def too_large(self, error: _TooLargeError, fix: str) -> Diagnostic:
        return Diagnostic("SMDP105", str(error), self.document.top, help=fix)

    def fill(self, root: MappingNode) -> tuple[Document, list[Diagnostic]]:
        document = self.document
        try:
            document.data = self.mapping(root, (), 0)
        except _TooLargeError as error:
            return document, [self.too_large(error, "write it without aliases to aliases")]
        document.entries = self.entries
        return document, self.problems

    def span(self, start: StreamMark, end: StreamMark) -> Span:
        line = self.lines[start.line] if start.line < len(self.lines) else ""
        # A value over several lines is shown by its first.
        last = end.column if end.line == start.line else len(line)
        return Span(self.file, start.line + 1, start.column + 1, max(last, start.column + 1) + 1, line)

    def node_span(self, node: Node) -> Span:
        if isinstance(node, ScalarNode):
            return self.span(node.start_mark, node.end_mark)
        return self.span(node.start_mark, node.start_mark)

    def mapping(self, node: MappingNode, at: Location, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for index, (key_node, value_node) in enumerate(node.value):
            self.count(depth)
            key = self.key(key_node)
            if key is None:
                continue
            key_span = self.node_span(key_node)
            node_of_value = value_node
            if node.flow_style and _is_empty(value_node) and (name := mistakes.no_blank(key)) is not None:
                editable = self.document.layer in EDITABLE
                self.problems.append(mistakes.missing_blank(name, key_span, key, editable=editable))
                key, node_of_value = name, _split(key_node, name)
            if key in result:
                first = self.entries[(*at, key)].key.line
                message = f'"{key}" stands twice in one mapping; the first is on line {first}'
                edits = self.layout.remove_repeated(node, index) if self.layout is not None else ()
                self.problems.append(Diagnostic("SMDP103", message, key_span, key, "keep one of them", edits=edits))
                continue
            result[key] = self.value(node_of_value, (*at, key), key_span, depth + 1)
        return result

    def key(self, node: Node) -> str | None:
        """The key's text; None for one that stands for something else than itself."""
        if isinstance(node, ScalarNode) and node.value == "<<" and node.style is None:
            message = "<< merges nothing here: YAML 1.2, which job files are, has no merge keys"
            help_ = "write the keys out, or put what jobs share in smdp-defaults.yaml"
            self.problems.append(Diagnostic("SMDP102", message, self.node_span(node), "<<", help_))
            return None
        if isinstance(node, ScalarNode) and node.tag == f"{TAG}str":
            self.sendable(node)
            return str(node.value)
        text = str(node.value) if isinstance(node, ScalarNode) else "a list or mapping"
        message = f"a key is text, and YAML does not read {text} as text"
        edits = self.layout.replace_key(node, quoted(text)) if self.layout is not None else ()
        help_ = f'write "{text}": …'
        self.problems.append(Diagnostic("SMDP203", message, self.node_span(node), text, help_, edits=edits))
        return text

    def value(self, node: Node, at: Location, key_span: Span, depth: int) -> Any:
        self.count(depth)
        text = str(node.value) if isinstance(node, ScalarNode) else ""
        is_empty = _is_empty(node)
        # YAML may put a value that is not there at the next entry.
        span = key_span if is_empty else self.node_span(node)
        self.entries[at] = Entry(key_span, span, text, self.document.layer, self.document.folder, is_empty)
        if isinstance(node, MappingNode):
            return self.mapping(node, at, depth)
        if isinstance(node, SequenceNode):
            return [
                self.value(item, (*at, index), self.node_span(item), depth + 1) for index, item in enumerate(node.value)
            ]
        return self.scalar(node, at)

    def count(self, depth: int) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES or depth > MAX_DEPTH:
            raise _TooLargeError

    def scalar(self, node: Node, at: Location) -> Any:
        if self.variables is not None and "${" in str(node.value):
            node = self.with_variables(node, at, self.variables)
        text = str(node.value)
        if not self.sendable(node):
            self.document.unresolved.add(at)
        # Python itself refuses to read numbers of thousands of digits; no field takes one.
        kind = str(node.tag).removeprefix(TAG) if len(text) <= MAX_DIGITS else "str"
        if kind in _READ and (kind_of(text) == kind or (kind, kind_of(text)) == ("float", "int")):
            return _READ[kind](text)
        if kind in _READ or str(node.tag).startswith("!"):
            tag = str(node.tag).replace(TAG, "!!")
            message = f"the tag {tag} means nothing {'for this value' if kind in _READ else 'in a job file'}"
            edits = self.layout.remove_tag(node) if self.layout is not None else ()
            span = self.node_span(node)
            self.problems.append(Diagnostic("SMDP102", message, span, text, "remove the tag", edits=edits))
        # Everything else is text: dates, which YAML 1.2 does not know, too.
        return text

    def with_variables(self, node: Node, at: Location, variables: Mapping[str, str]) -> Node:
        """The node with ``${NAME}`` replaced. What stands alone and unquoted is read as if it had been written there;
        everything else stays text."""
        made = substitute(str(node.value), variables)
        span = self.node_span(node)
        if made.problems:
            self.document.unresolved.add(at)
        for problem in made.problems:
            self.problems.append(Diagnostic(problem.code, problem.message, span, problem.text, problem.help))
        if made.whole and isinstance(node, ScalarNode) and node.style is None:
            read_as = _compose_scalar(made.text)
            if read_as is not None:
                return read_as
        return ScalarNode(f"{TAG}str", made.text, node.start_mark, node.end_mark)

    def sendable(self, node: Node) -> bool:
        found = _UNSENDABLE.search(str(node.value))
        if found is None:
            return True
        message = f"the character U+{ord(found[0]):04X} can travel neither on a command line nor in a request"
        shown = str(node.value).encode("utf-8", "backslashreplace").decode()
        self.problems.append(Diagnostic("SMDP102", message, self.node_span(node), shown, "remove it"))
        return False

    def forbidden_character(self, text: str, error: ReaderError) -> Diagnostic:
        at = text.find(chr(error.character) if isinstance(error.character, int) else error.character)
        line, column = text.count("\n", 0, at), at - text.rfind("\n", 0, at) - 1
        source = self.lines[line] if line < len(self.lines) else ""
        span = Span(self.file, line + 1, column + 1, column + 2, source)
        message = f"not valid YAML: the character {text[at]!r} may not stand in it"
        return Diagnostic("SMDP102", message, span, text[at], "remove it")

    def syntax_error(self, error: MarkedYAMLError) -> Diagnostic:
        mark = error.problem_mark or error.context_mark
        span = self.span(mark, mark) if mark is not None else Span(self.file, 1, 1, 2)
        problem = error.problem or error.context or "it cannot be parsed"
        if "single document" in str(error.context or ""):
            message, code = "the file holds more than one YAML document", "SMDP104"
            return Diagnostic(code, message, span, span.source.strip(), "put each job in a file of its own")
        is_tab = span.source[span.column - 1 : span.column] == "\t"
        hint = "a tab cannot indent YAML: use spaces" if is_tab else _syntax_hint(problem)
        return Diagnostic("SMDP102", f"not valid YAML: {problem}", span, span.source.strip(), hint)


def _yaml() -> YAML:
    """A parser of YAML 1.2 to nodes."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer, yaml.Resolver, yaml.Scanner = _BoundedComposer, CoreSchema, TabScanner
    return yaml


def _fails_at(text: str) -> int | None:
    """In which line, from 0, ``text`` is no YAML; None if it is YAML."""
    try:
        _yaml().compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        return mark.line if mark is not None else 0
    except (YAMLError, ValueError, _TooLargeError):
        return 0
    return None


def _is_empty(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.start_mark.index == node.end_mark.index


def _split(node: Node, key: str) -> ScalarNode:
    """What stands behind the colon of ``key``, with which the text of ``node`` begins."""
    text = str(node.value)[len(key) + 1 :]
    return ScalarNode(f"{TAG}{kind_of(text)}", text, node.start_mark, node.end_mark)


def _compose_scalar(text: str) -> ScalarNode | None:
    try:
        node = _yaml().compose(text)
    except (YAMLError, ValueError):
        return None
    return node if isinstance(node, ScalarNode) else None


def _syntax_hint(problem: str) -> str:
    if "mapping values are not allowed" in problem:
        return 'text that holds ": " needs quotes'
    return "check the indentation and quotes just before this place"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _whole_number(text: str) -> int:
    # YAML 1.2: 022 is twenty-two, octal is written 0o22.
    base = {"0x": 16, "0o": 8}.get(text[:2], 10)
    return int(text[2:] if base != 10 else text, base)


def _number(text: str) -> float:
    """Python writes infinity and NaN without the dot."""
    return float(text.replace(".", "") if text.lower().endswith(("inf", "nan")) else text)


#: What is made of a plain scalar's text, by its kind.
_READ: Mapping[str, Callable[[str], object]] = {
    "null": lambda _: None,
    "bool": lambda text: text.lower() == "true",
    "int": _whole_number,
    "float": _number,
}
