"""All sources of a job's values as one document. The sources, the strongest first:

    --set  >  SMDP_JOB__* variables  >  the job file  >  smdp-defaults.yaml of the project, then of the user
           >  SageMaker's defaults file  >  AWS_REGION  >  built-in defaults

Mappings are merged key by key. Lists and scalars replace the value of a weaker source. Each value keeps its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from smdp_launch.diagnostics import Diagnostic, Severity, Span
from smdp_launch.jobfile import sagemaker_defaults
from smdp_launch.jobfile.model import schema
from smdp_launch.jobfile.yaml.document import ConfigSource, Document, Entry, Location, Parsed
from smdp_launch.jobfile.yaml.parser import parse, read

#: ``SMDP_JOB__COMPUTE__MAX_RUN=3600`` is ``compute: {max_run: 3600}``.
VARIABLE_PREFIX = "SMDP_JOB__"
DEFAULTS_FILE = "smdp-defaults.yaml"


def read_job(
    path: Path, settings: Sequence[str], environ: Mapping[str, str], contents: Mapping[str, bytes] | None = None
) -> Parsed:
    """Read the job file at ``path`` and merge all other configuration sources into it.

    Args:
        settings: the values of ``--set``, such as ``compute.max_run=3600``.
        environ: the process's environment.
        contents: the bytes of files by path, in place of the files on disk.
    """
    job = read(path, environ, contents=contents)
    if any(one.code == "SMDP102" for one in job[1]):
        from smdp_launch.jobfile.syntax_fixes import add_edits  # most files are valid YAML

        job = add_edits(job, environ)
    return merge_sources(job, path.parent, settings, environ, contents)


def merge_sources(
    job: Parsed,
    folder: Path,
    settings: Sequence[str],
    environ: Mapping[str, str],
    contents: Mapping[str, bytes] | None = None,
) -> Parsed:
    """The job with the values of all other configuration sources.

    Args:
        folder: the job's folder. The search for the project's defaults starts there.
        contents: the bytes of files by path, in place of the files on disk.
    """
    document, problems = job
    if not document.data:
        return document, problems
    _fill_empty_mappings(document)
    # The strongest first. The last of several settings of one value wins.
    flags = [_setting(one, environ) for one in reversed(settings)]
    stronger = [*flags, *_variables(environ)]
    weaker = [*_defaults(folder, environ, contents), sagemaker_defaults.read_files(environ), _region(environ)]
    merged = Document(file=document.file, folder=document.folder, top=document.top)
    for source, _ in [*stronger, (document, []), *weaker]:
        _merge(merged, source)
    problems = [*problems, *(problem for _, several in [*stronger, *weaker] for problem in several)]
    return merged, problems + _regions_differ(merged, environ)


def _fill_empty_mappings(document: Document) -> None:
    """Read ``hyperparameters:`` without entries, for example with only comments below it, as a mapping."""
    for at, entry in document.entries.items():
        if entry.is_empty and schema.has_free_names(at, document.data):
            document.value(at[:-1])[at[-1]] = {}


def _merge(into: Document, weaker: Document) -> None:
    """Add the values of ``weaker`` that ``into`` does not have."""
    if weaker.source is ConfigSource.SAGEMAKER and "environment" in into.data:
        # The SageMaker SDK does not merge environments: that of the job replaces that of the defaults file.
        weaker.data.pop("environment", None)
    added = set(_merge_mappings(into.data, weaker.data, ()))

    def is_added(at: Location) -> bool:
        return any(at[:length] in added for length in range(1, len(at) + 1))

    into.entries.update({at: entry for at, entry in weaker.entries.items() if is_added(at)})
    into.unresolved.update(at for at in weaker.unresolved if is_added(at))
    into.layouts.update(weaker.layouts)


def _merge_mappings(into: dict[str, object], weaker: dict[str, object], at: Location) -> Iterator[Location]:
    """Add the values that only ``weaker`` has to ``into``, and yield their locations."""
    for key, value in weaker.items():
        present = into.get(key)
        if key not in into:
            into[key] = value
            yield (*at, key)
        elif isinstance(present, dict) and isinstance(value, dict):
            yield from _merge_mappings(present, value, (*at, key))


def _setting(text: str, environ: Mapping[str, str]) -> Parsed:
    key, equals, value = text.partition("=")
    # A dot in a name is escaped: \. as in script.hyperparameters.model\.depth=3
    names = [one.replace("\\.", ".") for one in re.split(r"(?<!\\)\.", key.strip())]
    if not equals or not all(names):
        document = Document(file="--set", folder=Path(), source=ConfigSource.FLAG)
        span = Span("--set", 1, 1, len(text) + 1, text)
        help_ = "write --set KEY=VALUE, such as --set compute.max_run=3600"
        return document, [Diagnostic("SMDP207", f"--set {text} does not set a value", span, text, help_)]
    return _one_value("--set", ConfigSource.FLAG, names, text, value, len(key) + 1, environ)


def _variables(environ: Mapping[str, str]) -> Iterator[Parsed]:
    for name in sorted(environ):
        if name.startswith(VARIABLE_PREFIX):
            names = name.removeprefix(VARIABLE_PREFIX).lower().split("__")
            yield _one_value(f"${name}", ConfigSource.ENVIRONMENT, names, environ[name], environ[name], 0, environ)


def _one_value(
    file: str,
    source: ConfigSource,
    names: list[str],
    line: str,
    value: str,
    offset: int,
    environ: Mapping[str, str],
) -> Parsed:
    """A document of one value, which is read as YAML.

    Args:
        names: the keys of the value's location.
        line: the whole text of the flag or variable, in which ``value`` starts after ``offset`` characters.
    """
    document = Document(file=file, folder=Path(), source=source, top=Span(file, 1, 1, 1, line))
    inner = Document(file=file, folder=Path(), source=source)
    # The value goes below a key, because a document is a mapping. The spaces correct the columns.
    inner, problems = parse(f"value:\n{' ' * offset} {value}", inner, environ)

    def placed(span: Span) -> Span:
        return Span(file, 1, max(1, span.column - 1), max(2, span.end_column - 1), line)

    for problem in problems:
        message = f"{file} {'.'.join(names)}: {problem.message}"
        span = Span(file, 1, offset + 1, len(line) + 1, line)
        return document, [Diagnostic("SMDP207", message, span, value, problem.help)]
    key = Span(file, 1, 1, max(2, offset), line)
    at: Location = tuple(names)
    tree: object = inner.data["value"]
    for location, entry in inner.entries.items():
        key_place = key if location == ("value",) else placed(entry.key)
        document.entries[(*at, *location[1:])] = Entry(
            key_place, placed(entry.value), entry.text, source, is_empty=entry.is_empty
        )
    for name in reversed(names):
        tree = {name: tree}
    for length in range(1, len(at)):
        document.entries[at[:length]] = Entry(key, key, "", source)
    document.data = tree if isinstance(tree, dict) else {}
    document.unresolved = {(*at, *one[1:]) for one in inner.unresolved}
    return document, []


def _defaults(folder: Path, environ: Mapping[str, str], contents: Mapping[str, bytes] | None) -> Iterator[Parsed]:
    project = _project_file(folder)
    if project is not None:
        yield _defaults_file(project, ConfigSource.PROJECT, environ, contents)
    user = _user_file()
    if user is not None and user.is_file():
        yield _defaults_file(user, ConfigSource.USER, environ)


def _defaults_file(
    path: Path, source: ConfigSource, environ: Mapping[str, str], contents: Mapping[str, bytes] | None = None
) -> Parsed:
    document, problems = read(path, environ, source, contents)
    version = document.data.pop("schema", 1)
    if version != 1:
        span = document.entry(("schema",)).value
        message = f"{path}: schema {version} is not supported"
        edits = document.replacing(("schema",), "1")
        problems.append(Diagnostic("SMDP208", message, span, str(version), "write `schema: 1`", edits=edits))
    return document, problems


def _project_file(folder: Path) -> Path | None:
    """The nearest defaults file from the job's folder up to the repository's root.

    Outside a repository, only the job's own folder counts: a file in ``/tmp`` belongs to no project.
    """
    above = range(1, len(folder.absolute().parts))
    folders = [folder, *(folder / Path(*[".."] * up) for up in above)]
    root = next((number for number, one in enumerate(folders) if (one / ".git").exists()), 0)
    return next((one / DEFAULTS_FILE for one in folders[: root + 1] if (one / DEFAULTS_FILE).is_file()), None)


def _user_file() -> Path | None:
    try:
        import platformdirs

        return platformdirs.user_config_path("smdp-launch") / DEFAULTS_FILE
    except (OSError, RuntimeError, KeyError):  # the user has no home folder
        return None


def _region(environ: Mapping[str, str]) -> Parsed:
    names = [name for name in ("AWS_REGION", "AWS_DEFAULT_REGION") if environ.get(name)]
    document = Document(file="", folder=Path(), source=ConfigSource.AWS)
    if not names:
        return document, []
    # botocore reads only AWS_DEFAULT_REGION, newer tools only AWS_REGION.
    document, problems = _one_value(
        f"${names[0]}", ConfigSource.AWS, ["region"], environ[names[0]], environ[names[0]], 0, environ
    )
    return document, problems


def _regions_differ(document: Document, environ: Mapping[str, str]) -> list[Diagnostic]:
    """A warning if AWS_REGION sets the region and AWS_DEFAULT_REGION is another region."""
    other = environ.get("AWS_DEFAULT_REGION")
    if document.source_of(("region",)) is not ConfigSource.AWS or other in (
        None,
        "",
        document.data.get("region"),
    ):
        return []
    message = f"AWS_REGION is {document.data['region']} and AWS_DEFAULT_REGION is {other}; AWS_REGION is used"
    help_ = "write `region:` in the job file"
    return [Diagnostic("SMDP209", message, document.entry(("region",)).value, help=help_, severity=Severity.WARNING)]
