"""Whether the container can start the entry point, and whether Python can parse the script."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from smdp_launch.diagnostics import Severity, Span
from smdp_launch.rules.base import image_contents
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.rules.base.script_places import place
from smdp_launch.source.scan import normal_name
from smdp_launch.source.script.modules import always_run
from smdp_launch.source.syntax.tree import Mark

_ENTRY = ("script", "entry")
#: Errors that show Python 2.
_PYTHON_2 = ("Missing parentheses in call to 'print'", "multiple exception types must be parenthesized")


@rule("SMDP430", "script.entry", "script.source")
def syntax(facts: Facts) -> Iterator[Problem]:
    """Syntax errors of the entry point and of the modules that it imports in every run."""
    for name in always_run(facts.scripts):
        problem = facts.scripts[name].problem
        if problem is None or not problem.is_syntax:
            continue
        message = f"{name} has a syntax error: {problem.reason.removeprefix('not Python 3: ')}"
        is_old = any(one in problem.reason for one in _PYTHON_2)
        help_ = "the training images have Python 3; convert the script" if is_old else _correct(facts)
        yield Problem((), message, help_, text=problem.source.strip(), place=_place(facts, name, problem.line))


@rule("SMDP430", "script.entry", "script.source", severity=Severity.NOTE)
def script_can_be_checked(facts: Facts) -> Iterator[Problem]:
    for name in always_run(facts.scripts):
        problem = facts.scripts[name].problem
        if problem is not None and not problem.is_syntax:
            message = f"{name} is not checked: {problem.reason}"
            help_ = "split it into smaller modules, or test it with launch --local"
            yield Problem((), message, help_, text=problem.source.strip(), place=_place(facts, name, problem.line))


@rule("SMDP439", "script.entry", "script.source")
def relative_import(facts: Facts) -> Iterator[Problem]:
    name, script = next(iter(facts.scripts.items()), ("", None))
    imported = script.relative_import if script is not None else None
    if script is None or imported is None:
        return
    line = script.lines[imported.line - 1]
    message = f"{name} is started by its path, so it is in no package, and its relative import fails"
    help_ = "write an absolute import, such as `from package.module import name`,"
    mark = Mark(imported.line, len(line) - len(line.lstrip()) + 1, len(line.rstrip()) + 1)
    help_ = f"{help_} or name a script at the top of the source folder that imports the package"
    yield Problem((), message, help_, text=line.strip(), place=place(facts, name, mark))


def _correct(facts: Facts) -> str:
    """A help that names the image's Python version, if it is known."""
    known = facts.has("engine", "image", "framework.name", "framework.version", "framework.python")
    version = image_contents.python(facts.spec) if known else None
    if version is None:
        return "fix the script"
    is_known = facts.spec.engine != "native" or facts.spec.framework.python is not None
    own = "" if is_known else ", unless `framework.python` names another version"
    return f"fix the script; the job's image has Python {version[0]}.{version[1]}{own}"


def _place(facts: Facts, name: str, line: int | None) -> Span | None:
    problem, tree = facts.scripts[name].problem, facts.source
    if problem is None or tree is None:
        return None
    return Span(str(tree.folder / name), line or 1, problem.column, problem.column + 1, problem.source)


@rule("SMDP431", "script.entry", "script.source")
def kind_of_entry(facts: Facts) -> Iterator[Problem]:
    entry = facts.spec.script.entry
    if facts.entry_kind is None:
        return
    what = _NOT_STARTED.get(facts.entry_kind)
    if what is None:
        return
    name = PurePosixPath(normal_name(entry))
    help_ = "name a .py file, or a shell script that begins with #!/bin/bash"
    if facts.entry_kind == "notebook":
        help_ = f"export it with `jupyter nbconvert --to script {name.name}`, and name the .py file"
    elif facts.entry_kind == "unmarked python":
        help_ = f"rename it to {name}.py: the container starts only .py files with Python"
    elif facts.entry_kind == "crlf":
        help_ = f"save it with Unix line endings, for example with `sed -i 's/\\r$//' {name}`"
    yield Problem(_ENTRY, f"the entry point {entry} {what}", help_)


#: Kinds of ``source.script.entry_kind`` that the container cannot start.
_NOT_STARTED = {
    "notebook": "is a notebook, which the container would start as a shell script",
    "unmarked python": "is Python, but without the suffix .py the container starts it as a shell script",
    "data": "is neither Python nor a shell script: the container would start it as a shell script",
    "crlf": "has a carriage return at the end of its first line, as lines of Windows do: the container cannot start it",
}
