"""YAML text to a `Document`: plain values with the place of every key and value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, StreamMark, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from smdp_launch.diagnostics import Diagnostic, Span
from smdp_launch.edits import split_lines
from smdp_launch.jobfile.yaml import common_errors, syntax_causes
from smdp_launch.jobfile.yaml.document import EDITABLE, ConfigSource, Document, Entry, Location, Parsed
from smdp_launch.jobfile.yaml.layout import Layout, is_empty, is_merge_key
from smdp_launch.jobfile.yaml.text import quoted
from smdp_launch.jobfile.yaml.variables import substitute
from smdp_launch.jobfile.yaml.yaml12 import READERS, TAG, CoreSchema, TabScanner, kind_of

# A person writes a job file. These limits keep the time short and the memory small for any other input.
MAX_BYTES = 1 << 20
MAX_NODES = 10_000  # keys and values; an alias counts as the nodes that it refers to
MAX_DEPTH = 50
MAX_DIGITS = 100

_HOW_TO_START = "give the path of a job file, or write one for the script in this folder: smdp-launch init"

# Characters that YAML can represent, and a command line or UTF-8 cannot: NUL, and halves of surrogate pairs.
_UNSENDABLE = re.compile(r"[\0\ud800-\udfff]")


def read(
    path: Path,
    variables: Mapping[str, str] | None = None,
    source: ConfigSource = ConfigSource.JOB_FILE,
    contents: Mapping[str, bytes] | None = None,
) -> Parsed:
    """Read the file at ``path``; spans have the path as the caller gave it.

    Args:
        variables: the values for ``${NAME}``; None leaves such text as it is.
        contents: the bytes of files by path, in place of the files on disk.
    """
    document = Document(file=str(path), folder=path.parent, source=source, top=Span(str(path), 1, 1, 1))

    def refused(code: str, message: str, help_: str) -> Parsed:
        return document, [Diagnostic(code, message, document.top, str(path), help_)]

    try:
        raw = _raw(path, contents or {})
    except FileNotFoundError:
        return refused("SMDP101", f"there is no file {path}", _HOW_TO_START)
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


def parse(text: str, document: Document, variables: Mapping[str, str] | None = None) -> Parsed:
    """Fill ``document`` from ``text``. A syntax error ends the parse; a duplicate key does not."""
    document.text = text
    builder = _Builder(document, split_lines(text), variables)
    root, problems = builder.compose(text)
    if problems:
        return document, problems
    if not isinstance(root, MappingNode):
        if isinstance(root, ScalarNode) and (errors := common_errors.lines_without_space(document.file, text)):
            return document, errors
        actual = "is empty" if root is None else "contains something else"
        message = f"a job file is one mapping of keys to values; this one {actual}"
        return document, [Diagnostic("SMDP104", message, document.top, help="start with `schema: 1`")]
    document.layouts[document.file] = Layout(document.file, text, root)
    document.top = builder.span(root.start_mark, root.start_mark)
    return builder.fill(root)


def fill(document: Document, root: MappingNode, variables: Mapping[str, str] | None = None) -> Parsed:
    """Fill ``document`` from a tree of nodes that has no text."""
    return _Builder(document, [], variables).fill(root)


class _TooLargeError(Exception):
    def __init__(self) -> None:
        super().__init__(f"more than {MAX_NODES} keys and values or {MAX_DEPTH} levels")


class _BoundedComposer(Composer):
    """Stops as soon as the file is too large, not at its end."""

    def __init__(self, loader: Any = None) -> None:
        super().__init__(loader=loader)
        self.warn_double_anchors = False  # YAML allows them; an alias means the nearest one before it
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
    """Walks YAML nodes once: makes plain values and records their places."""

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
        return self.document.layouts.get(self.file) if self.document.source in EDITABLE else None

    def compose(self, text: str) -> tuple[Node | None, list[Diagnostic]]:
        """The root node of ``text``, or the syntax errors that leave it without one."""
        try:
            return _yaml().compose(text), []
        except _TooLargeError as error:
            return None, [self.too_large(error, "a job file is a page of YAML")]
        except ReaderError as error:
            return None, [self.forbidden_character(text, error)]
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            failure = mark.line if mark is not None else 0
            is_file, plain = self.document.source in EDITABLE, self.syntax_error(error)
            if not is_file or plain.code != "SMDP102":
                return None, [plain]
            errors = common_errors.find(self.file, text, failure, _fails_at)
            return None, errors or syntax_causes.find(self.file, text, failure, error, _fails_at) or [plain]
        except (YAMLError, ValueError) as error:
            return None, [Diagnostic("SMDP102", f"not valid YAML: {_first_line(error)}", self.document.top)]

    def too_large(self, error: _TooLargeError, fix: str) -> Diagnostic:
        return Diagnostic("SMDP105", str(error), self.document.top, help=fix)

    def fill(self, root: MappingNode) -> Parsed:
        document = self.document
        try:
            document.data = self.mapping(root, (), 0)
        except _TooLargeError as error:
            return document, [self.too_large(error, "write it without aliases that refer to other aliases")]
        document.entries = self.entries
        return document, self.problems

    def span(self, start: StreamMark, end: StreamMark) -> Span:
        line = self.lines[start.line] if start.line < len(self.lines) else ""
        # A value on several lines is shown by its first line.
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
            if node.flow_style and is_empty(value_node) and (name := common_errors.key_without_space(key)) is not None:
                editable = self.document.source in EDITABLE
                self.problems.append(common_errors.missing_space(name, key_span, key, editable=editable))
                key, node_of_value = name, _split(key_node, name)
            if key in result:
                first = self.entries[(*at, key)].key.line
                message = f'"{key}" appears twice in one mapping; the first is on line {first}'
                edits = self.layout.remove_repeated(node, index) if self.layout is not None else ()
                self.problems.append(Diagnostic("SMDP103", message, key_span, key, "keep one of them", edits=edits))
                continue
            result[key] = self.value(node_of_value, (*at, key), key_span, depth + 1)
        return result

    def key(self, node: Node) -> str | None:
        """The key's text; None for the merge key ``<<``."""
        if is_merge_key(node):
            message = "<< does not merge: job files are YAML 1.2, which has no merge keys"
            help_ = "write the keys out, or put the keys that jobs share in smdp-defaults.yaml"
            self.problems.append(Diagnostic("SMDP102", message, self.node_span(node), "<<", help_))
            return None
        if isinstance(node, ScalarNode) and node.tag == f"{TAG}str":
            self.sendable(node)
            return str(node.value)
        text = str(node.value) if isinstance(node, ScalarNode) else "a list or mapping"
        message = f"a key must be text, and YAML does not read {text} as text"
        edits = self.layout.replace_key(node, quoted(text)) if self.layout is not None else ()
        help_ = f'write "{text}": …'
        self.problems.append(Diagnostic("SMDP203", message, self.node_span(node), text, help_, edits=edits))
        return text

    def value(self, node: Node, at: Location, key_span: Span, depth: int) -> Any:
        self.count(depth)
        text = str(node.value) if isinstance(node, ScalarNode) else ""
        has_no_text = is_empty(node)
        # The parser can place a missing value at the next entry.
        span = key_span if has_no_text else self.node_span(node)
        self.entries[at] = Entry(key_span, span, text, self.document.source, self.document.folder, has_no_text)
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
        # Python refuses to read numbers with thousands of digits, and no field accepts one.
        kind = str(node.tag).removeprefix(TAG) if len(text) <= MAX_DIGITS else "str"
        if kind in READERS and (kind_of(text) == kind or (kind, kind_of(text)) == ("float", "int")):
            return READERS[kind](text)
        if kind in READERS or str(node.tag).startswith("!"):
            tag = str(node.tag).replace(TAG, "!!")
            message = f"the tag {tag} does not fit {'this value' if kind in READERS else 'a job file'}"
            span = self.node_span(node)
            edits = self.layout.remove_tag(node) if self.layout is not None else ()
            self.problems.append(Diagnostic("SMDP102", message, span, text, "remove the tag", edits=edits))
        # Everything else is text. YAML 1.2 has no dates.
        return text

    def with_variables(self, node: Node, at: Location, variables: Mapping[str, str]) -> Node:
        """The node with ``${NAME}`` replaced by its value.

        If the node is one reference without quotes, its value is read as YAML. Otherwise the result is text."""
        substituted = substitute(str(node.value), variables)
        span = self.node_span(node)
        if substituted.problems:
            self.document.unresolved.add(at)
        for problem in substituted.problems:
            self.problems.append(Diagnostic(problem.code, problem.message, span, problem.text, problem.help))
        if substituted.whole and isinstance(node, ScalarNode) and node.style is None:
            scalar = _compose_scalar(substituted.text)
            if scalar is not None:
                return scalar
        return ScalarNode(f"{TAG}str", substituted.text, node.start_mark, node.end_mark)

    def sendable(self, node: Node) -> bool:
        match = _UNSENDABLE.search(str(node.value))
        if match is None:
            return True
        message = f"the character U+{ord(match[0]):04X} is not allowed: no command line and no request can contain it"
        shown = str(node.value).encode("utf-8", "backslashreplace").decode()
        self.problems.append(Diagnostic("SMDP102", message, self.node_span(node), shown, "remove it"))
        return False

    def forbidden_character(self, text: str, error: ReaderError) -> Diagnostic:
        at = text.find(chr(error.character) if isinstance(error.character, int) else error.character)
        line, column = text.count("\n", 0, at), at - text.rfind("\n", 0, at) - 1
        source = self.lines[line] if line < len(self.lines) else ""
        span = Span(self.file, line + 1, column + 1, column + 2, source)
        message = f"not valid YAML: the character {text[at]!r} is not allowed"
        return Diagnostic("SMDP102", message, span, text[at], "remove it")

    def syntax_error(self, error: MarkedYAMLError) -> Diagnostic:
        mark = error.problem_mark or error.context_mark
        span = self.span(mark, mark) if mark is not None else Span(self.file, 1, 1, 2)
        problem = error.problem or error.context or "it cannot be parsed"
        if "single document" in str(error.context or ""):
            message, code = "the file contains more than one YAML document", "SMDP104"
            return Diagnostic(code, message, span, span.source.strip(), "put each job in a file of its own")
        is_tab = span.source[span.column - 1 : span.column] == "\t"
        hint = "a tab cannot indent YAML: use spaces" if is_tab else _syntax_hint(problem, span.source)
        return Diagnostic("SMDP102", f"not valid YAML: {problem}", span, span.source.strip(), hint)


def _yaml() -> YAML:
    """A parser that composes nodes by the rules of YAML 1.2."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer, yaml.Resolver, yaml.Scanner = _BoundedComposer, CoreSchema, TabScanner
    return yaml


def _fails_at(text: str) -> int | None:
    """The line, from 0, at which ``text`` stops being valid YAML; None if all of it is valid."""
    try:
        _yaml().compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        return mark.line if mark is not None else 0
    except (YAMLError, ValueError, _TooLargeError):
        return 0
    return None


def _split(node: Node, key: str) -> ScalarNode:
    """The text after the colon of ``key``; the text of ``node`` starts with that key."""
    text = str(node.value)[len(key) + 1 :]
    return ScalarNode(f"{TAG}{kind_of(text)}", text, node.start_mark, node.end_mark)


def _compose_scalar(text: str) -> ScalarNode | None:
    try:
        node = _yaml().compose(text)
    except (YAMLError, ValueError):
        return None
    return node if isinstance(node, ScalarNode) else None


def _syntax_hint(problem: str, line: str) -> str:
    if "mapping values are not allowed" in problem and syntax_causes.has_second_colon(line):
        return 'text that contains ": " needs quotes'
    return "check the indentation and the quotes just before this place"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
