"""All that says something about a job, the strongest first, as one document:

    --set  >  SMDP_JOB__* variables  >  the job file  >  smdp-defaults.yaml of the project, then of the user
           >  SageMaker's defaults file  >  AWS_REGION  >  what is built in

Mappings are merged, key by key; lists and everything else replace. Each value keeps the place it came from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from smdp_launch.diagnostics import Diagnostic, Severity, Span
from smdp_launch.jobfile import sagemaker_defaults
from smdp_launch.jobfile.yaml.document import Document, Entry, Layer, Location, parse, read

#: ``SMDP_JOB__COMPUTE__MAX_RUN=3600`` is ``compute: {max_run: 3600}``.
VARIABLE_PREFIX = "SMDP_JOB__"
DEFAULTS_FILE = "smdp-defaults.yaml"

Found = tuple[Document, list[Diagnostic]]


def gather(
    path: Path, settings: Sequence[str], environ: Mapping[str, str], contents: Mapping[str, bytes] | None = None
) -> Found:
    """Read the job file at ``path`` and every layer around it.

    Args:
        settings: what stood after ``--set``, such as ``compute.max_run=3600``.
        environ: the process's environment.
        contents: of files by their paths, in place of what they hold.
    """
    job = read(path, environ, contents=contents)
    if any(one.code == "SMDP102" for one in job[1]):
        from smdp_launch.jobfile.yaml_fixes import with_edits  # most files are YAML

        job = with_edits(job, environ)
    return around(job, path.parent, settings, environ, contents)


def around(
    job: Found,
    folder: Path,
    settings: Sequence[str],
    environ: Mapping[str, str],
    contents: Mapping[str, bytes] | None = None,
) -> Found:
    """The job as read, with every layer around it.

    Args:
        folder: where the job is, and the project's defaults are looked for from.
        contents: of files by their paths, in place of what they hold.
    """
    document, problems = job
    if not document.data:
        return document, problems
    # The strongest first; of several settings of one value the last counts.
    flags = [_setting(one, environ) for one in reversed(settings)]
    stronger = [*flags, *_variables(environ)]
    weaker = [*_defaults(folder, environ, contents), sagemaker_defaults.read_files(environ), _region(environ)]
    layers = [*stronger, (document, []), *weaker]
    found = [*problems, *(problem for _, several in [*stronger, *weaker] for problem in several)]
    merged = Document(file=document.file, folder=document.folder, top=document.top)
    for layer, _ in layers:
        _merge(merged, layer)
    return merged, found


def _merge(into: Document, layer: Document) -> None:
    """Add what ``layer`` says where nothing stronger has spoken."""
    if Layer.SAGEMAKER is layer.layer and "environment" in into.data:
        # The SageMaker SDK replaces the environment as a whole where a job gives one.
        layer.data.pop("environment", None)
    taken = set(_merge_mappings(into.data, layer.data, ()))

    def is_taken(at: Location) -> bool:
        return any(at[:length] in taken for length in range(1, len(at) + 1))

    into.entries.update({at: entry for at, entry in layer.entries.items() if is_taken(at)})
    into.unresolved.update(at for at in layer.unresolved if is_taken(at))
    into.layouts.update(layer.layouts)


def _merge_mappings(ours: dict[str, object], more: dict[str, object], at: Location) -> Iterator[Location]:
    """Add to ``ours`` what only ``more`` has; yields where."""
    for key, value in more.items():
        present = ours.get(key)
        if key not in ours:
            ours[key] = value
            yield (*at, key)
        elif isinstance(present, dict) and isinstance(value, dict):
            yield from _merge_mappings(present, value, (*at, key))


def _setting(text: str, environ: Mapping[str, str]) -> Found:
    key, equals, value = text.partition("=")
    # A dot within a name is written \. as in script.hyperparameters.model\.depth=3
    names = [one.replace("\\.", ".") for one in re.split(r"(?<!\\)\.", key.strip())]
    if not equals or not all(names):
        document = Document(file="--set", folder=Path(), layer=Layer.FLAG)
        span = Span("--set", 1, 1, len(text) + 1, text)
        help_ = "write --set KEY=VALUE, such as --set compute.max_run=3600"
        return document, [Diagnostic("SMDP207", f"--set {text} names no value", span, text, help_)]
    return _one_value("--set", Layer.FLAG, names, text, value, len(key) + 1, environ)


def _variables(environ: Mapping[str, str]) -> Iterator[Found]:
    for name in sorted(environ):
        if name.startswith(VARIABLE_PREFIX):
            names = name.removeprefix(VARIABLE_PREFIX).lower().split("__")
            yield _one_value(f"${name}", Layer.ENVIRONMENT, names, environ[name], environ[name], 0, environ)


def _one_value(
    file: str, layer: Layer, names: list[str], source: str, value: str, offset: int, environ: Mapping[str, str]
) -> Found:
    """A document of one value, read as YAML would read it in the job file."""
    document = Document(file=file, folder=Path(), layer=layer, top=Span(file, 1, 1, 1, source))
    inner = Document(file=file, folder=Path(), layer=layer)
    # Below a key, so that a scalar is as good as a mapping; the spaces put the columns right.
    inner, problems = parse(f"value:\n{' ' * offset} {value}", inner, environ)

    def placed(span: Span) -> Span:
        return Span(file, 1, max(1, span.column - 1), max(2, span.end_column - 1), source)

    for problem in problems:
        message = f"{file} {'.'.join(names)}: {problem.message}"
        span = Span(file, 1, offset + 1, len(source) + 1, source)
        return document, [Diagnostic("SMDP207", message, span, value, problem.help)]
    key = Span(file, 1, 1, max(2, offset), source)
    at: Location = tuple(names)
    tree: object = inner.data["value"]
    for location, entry in inner.entries.items():
        key_place = key if location == ("value",) else placed(entry.key)
        document.entries[(*at, *location[1:])] = Entry(
            key_place, placed(entry.value), entry.text, layer, is_empty=entry.is_empty
        )
    for name in reversed(names):
        tree = {name: tree}
    for length in range(1, len(at)):
        document.entries[at[:length]] = Entry(key, key, "", layer)
    document.data = tree if isinstance(tree, dict) else {}
    document.unresolved = {(*at, *one[1:]) for one in inner.unresolved}
    return document, []


def _defaults(folder: Path, environ: Mapping[str, str], contents: Mapping[str, bytes] | None) -> Iterator[Found]:
    project = _project_file(folder)
    if project is not None:
        yield _defaults_file(project, Layer.PROJECT, environ, contents)
    user = _user_file()
    if user is not None and user.is_file():
        yield _defaults_file(user, Layer.USER, environ)


def _defaults_file(
    path: Path, layer: Layer, environ: Mapping[str, str], contents: Mapping[str, bytes] | None = None
) -> Found:
    document, problems = read(path, environ, layer, contents)
    version = document.data.pop("schema", 1)
    if version != 1:
        span = document.entry(("schema",)).value
        message = f"{path}: schema {version} is not known"
        edits = document.replacing(("schema",), "1")
        problems.append(Diagnostic("SMDP208", message, span, str(version), "write `schema: 1`", edits=edits))
    return document, problems


def _project_file(folder: Path) -> Path | None:
    """The nearest one from the job's folder upwards, not beyond the repository's root.

    Without a repository only the job's own folder counts: what lies in ``/tmp`` is nobody's project.
    """
    above = range(1, len(folder.absolute().parts))
    folders = [folder, *(folder / Path(*[".."] * up) for up in above)]
    root = next((number for number, one in enumerate(folders) if (one / ".git").exists()), 0)
    return next((one / DEFAULTS_FILE for one in folders[: root + 1] if (one / DEFAULTS_FILE).is_file()), None)


def _user_file() -> Path | None:
    try:
        import platformdirs

        return platformdirs.user_config_path("smdp-launch") / DEFAULTS_FILE
    except (OSError, RuntimeError, KeyError):  # nobody's home
        return None


def _region(environ: Mapping[str, str]) -> Found:
    names = [name for name in ("AWS_REGION", "AWS_DEFAULT_REGION") if environ.get(name)]
    document = Document(file="", folder=Path(), layer=Layer.AWS)
    if not names:
        return document, []
    # botocore reads only AWS_DEFAULT_REGION, newer tools only AWS_REGION.
    document, problems = _one_value(
        f"${names[0]}", Layer.AWS, ["region"], environ[names[0]], environ[names[0]], 0, environ
    )
    return document, problems


def regions_differ(document: Document, environ: Mapping[str, str]) -> list[Diagnostic]:
    """A warning if the region is AWS_REGION's and AWS_DEFAULT_REGION says another."""
    other = environ.get("AWS_DEFAULT_REGION")
    if document.origin(("region",)) is not Layer.AWS or other in (None, "", document.data.get("region")):
        return []
    message = f"AWS_REGION is {document.data['region']} and AWS_DEFAULT_REGION is {other}; the first is taken"
    help_ = "write `region:` in the job file"
    return [Diagnostic("SMDP209", message, document.entry(("region",)).value, help=help_, severity=Severity.WARNING)]
