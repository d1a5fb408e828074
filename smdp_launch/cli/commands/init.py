from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from smdp_launch.catalog.engines import ENGINES
from smdp_launch.systems import command_line, linux_refusal

if TYPE_CHECKING:
    from smdp_launch.catalog.engines import Engine
    from smdp_launch.draft.draft import Draft
    from smdp_launch.source.scan import SourceTree


def _folder(_: click.Context, __: click.Parameter, value: Path) -> Path:
    try:
        str(value.absolute()).encode()
    except UnicodeEncodeError:
        raise click.BadParameter("its path is not valid UTF-8, as a job file requires") from None
    return value


def _name(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    from smdp_launch.draft.draft import job_name

    if value is not None and job_name(value) != value:
        raise click.BadParameter(f"letters, digits and inner hyphens, such as {job_name(value)}")
    return value


class _Template(click.Choice[str]):
    """The name of a template, or no value, which lists them."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return value if value == _NO_NAME else super().convert(value, param, ctx)


_NO_NAME = " "


@click.command("init")
@click.argument(
    "folder",
    metavar="[FOLDER]",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    callback=_folder,
)
@click.option("--entry", metavar="FILE", help="The training script, relative to FOLDER.")
@click.option(
    "--template",
    type=_Template(["mnist", "mnist_tf2", "mnist_keras", "bert", "bert_loop", "detection"]),
    is_flag=False,
    flag_value=_NO_NAME,
    help="Write a complete example: a job file, its scripts and its data. Without a name: list the examples.",
)
@click.option(
    "--from",
    "sdk_file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Write the job file of the estimator or ModelTrainer (SageMaker SDK) in this notebook or script.",
)
@click.option("--name", metavar="NAME", callback=_name, help="The job's name. Default: the folder's name.")
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    help="The engine. Default: nccl if the script uses NCCL, otherwise native if it supports the framework.",
)
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    default=Path("job.yaml"),
    help="The job file to write. Default: job.yaml.",
)
@click.option("--notebook", is_flag=True, help="Also write a notebook that runs the job. An existing job file is kept.")
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@click.option("--yes", "-y", is_flag=True, help="Ask no questions.")
def command(
    folder: Path,
    entry: str | None,
    template: str | None,
    sdk_file: Path | None,
    name: str | None,
    engine: Engine | None,
    output: Path,
    notebook: bool,
    force: bool,
    yes: bool,
) -> None:
    """Write a commented job file for the training script in FOLDER (default: the current folder).

    The command reads the scripts without running them. If several scripts may be the training script, it asks which
    one to use. The job file has placeholders for the role, region, image and buckets: fill them in before a launch on
    AWS.

    With --from, the command reads a notebook or script without running it, and writes the job file for its call of the
    SageMaker Python SDK (PyTorch, TensorFlow, HuggingFace, Estimator or ModelTrainer).
    """
    from smdp_launch.checking.job import check_job
    from smdp_launch.cli.render.diagnostics import print_diagnostics
    from smdp_launch.cli.render.terminal.bars import busy
    from smdp_launch.draft.draft import make_draft
    from smdp_launch.draft.jobfile import job_file
    from smdp_launch.source.scan import DEFAULT_LIMIT, scan_source

    if template == _NO_NAME:
        _list_templates()
        return
    if template is not None:
        given = {
            "FOLDER": folder != Path(),
            "--from": sdk_file,
            "--entry": entry,
            "--name": name,
            "--engine": engine,
        }
        if any(given.values()):
            raise click.UsageError(f"--template excludes {', '.join(one for one, value in given.items() if value)}")
        _write_example(template, output, notebook, force)
        return
    if sdk_file is not None:
        given = {"FOLDER": folder != Path(), "--entry": entry}
        if any(given.values()):
            raise click.UsageError(f"--from excludes {', '.join(one for one, value in given.items() if value)}")
        _write_from_sdk(sdk_file, output, engine, name, notebook, force)
        return
    if notebook and output.is_file() and folder == Path() and not (force or entry or engine or name):
        _add_notebook(output)
        return
    _refuse_to_overwrite(output, force)
    if notebook:
        _refuse_to_overwrite(output.with_suffix(".ipynb"), force)
    with busy(f"scanning {folder}"):
        tree = scan_source(folder, DEFAULT_LIMIT)
    can_ask = not yes and sys.stdin is not None and sys.stdin.isatty()
    script = _find_entry(tree, can_ask) if entry is None else _entry_of(tree, entry)
    draft = make_draft(tree, script, output, engine, name)
    _write_schema(output)
    _write(output, job_file(draft), force)
    checked = check_job(output)
    _print_draft(draft, output, [one.field for one in checked.placeholders])
    if notebook:
        _write_notebook(output, folder, force)
    checked.require()
    print_diagnostics(checked.diagnostics)
    _print_next(draft, output)


def _write_from_sdk(
    file: Path, output: Path, engine: Engine | None, name: str | None, notebook: bool, force: bool
) -> None:
    """Write the job file of the call in ``file``, and report its errors as ``validate`` does."""
    from smdp_launch.checking.job import check_job
    from smdp_launch.cli.render.diagnostics import print_diagnostics
    from smdp_launch.cli.render.next_step import print_note
    from smdp_launch.diagnostics import Diagnostic
    from smdp_launch.draft.sdk_call.draft import draft_of
    from smdp_launch.draft.sdk_call.find import Unreadable, find_call
    from smdp_launch.draft.sdk_call.text import job_file_text
    from smdp_launch.errors import JobFileRefused

    _refuse_to_overwrite(output, force)
    if notebook:
        _refuse_to_overwrite(output.with_suffix(".ipynb"), force)
    try:
        found = find_call(file)
    except Unreadable as error:
        help_ = "give the file that makes the estimator, or `smdp-launch init FOLDER` for the folder of the script"
        raise JobFileRefused([Diagnostic("SMDP402", str(error), text=str(file), help=help_)]) from error
    job = draft_of(found, file, output, engine, name)
    _write_schema(output)
    _write(output, job_file_text(job, file.name, found.place), force)
    click.echo(f"wrote {output} from {found.made.name} in {file}, {found.place}")
    for note in job.notes:
        print_note(note)
    checked = check_job(output)
    to_fill_in = dict.fromkeys([*(one.field for one in checked.placeholders), *job.to_fill_in])
    if to_fill_in:
        click.echo(f"  to fill in {', '.join(to_fill_in)}")
    if notebook:
        _write_notebook(output, output.parent / job.values["script", "source"], force)
    checked.require()
    print_diagnostics(checked.diagnostics)
    given = [] if output == Path("job.yaml") else [str(output)]
    click.echo(f"next: {command_line(['smdp-launch', 'plan', *given])}")


def _list_templates() -> None:
    from smdp_launch.cli.render.terminal.console import Console
    from smdp_launch.cli.render.terminal.table import Column, print_table
    from smdp_launch.draft.example import EXAMPLES, packages_of

    columns = [
        Column("template", list(EXAMPLES)),
        Column("trains and serves", [one.about for one in EXAMPLES.values()]),
        Column("needs, besides the framework", [", ".join(packages_of(one)) or "-" for one in EXAMPLES], drop=1),
    ]
    print_table(Console(highlight=False), columns)
    click.echo("next: smdp-launch init --template NAME [--notebook], in an empty folder")


def _write_example(template: str, output: Path, notebook: bool, force: bool) -> None:
    from smdp_launch.disk import why
    from smdp_launch.draft.example import EXAMPLES, SOURCE, files_of, job_text, write_data, write_scripts
    from smdp_launch.draft.notebook import notebook_for
    from smdp_launch.draft.user_files import removed_on_failure
    from smdp_launch.errors import EnvironmentProblem

    example, files = EXAMPLES[template], files_of(template, output)
    if notebook:
        files.append(output.with_suffix(".ipynb"))
    for file in files:
        _refuse_to_overwrite(file, force)
    with removed_on_failure([output.parent / SOURCE, *(one for one in files if one != output)]):
        try:
            write_scripts(template, output.parent)
            write_data(template, output.parent)
        except OSError as error:
            raise EnvironmentProblem(f"the example cannot be written: {why(error, output)}") from error
        _write_schema(output)
        if notebook:
            _write(output.with_suffix(".ipynb"), notebook_for(output, example.notebook), force)
        _write(output, job_text(template, output), force)
    click.echo(f"wrote {', '.join(map(str, files))}")
    can_run = linux_refusal("a local run") is None
    given = [] if output == Path("job.yaml") else [str(output)]
    options = (
        ["launch", *given, "--local", "--hosts", str(example.hosts), "--workers-per-host", "2"]
        if can_run
        else ["plan", *given]
    )
    click.echo(f"next: {command_line(['smdp-launch', *options])}")


def _refuse_to_overwrite(output: Path, force: bool) -> None:
    from smdp_launch.errors import Refused

    if os.path.lexists(output) and not force:
        raise Refused(f"{output} exists: add --force to overwrite it, or --output FILE to write another file")


def _entry_of(tree: SourceTree, entry: str) -> str:
    """The script that ``--entry`` names, relative to the folder or to the current one."""
    from smdp_launch.diagnostics import closest
    from smdp_launch.draft.draft import relative
    from smdp_launch.source.ignore import IGNORE_FILE
    from smdp_launch.source.scan import normal_name

    for name in (normal_name(entry), relative(Path(entry), tree.folder.absolute())):
        if tree.file(name) is not None:
            return name
        if tree.ignored.includes(name):
            raise click.BadParameter(f"{IGNORE_FILE} excludes {name}", param_hint="--entry")
    match = closest(normal_name(entry), [one.name for one in tree.files])
    hint = f"; did you mean {match}?" if match else ""
    raise click.BadParameter(f"there is no {entry} in {tree.folder}{hint}", param_hint="--entry")


def _find_entry(tree: SourceTree, can_ask: bool) -> str:
    """The training script. Ask the user if several are equally likely.

    Raises:
        JobFileRefused: no script trains.
    """
    from smdp_launch.draft.entry import python_scripts, training_scripts, unreadable

    scripts = python_scripts(tree)
    groups = training_scripts(scripts)
    if not groups:
        _refuse_folder(tree, unreadable(scripts))
    best = groups[0]
    if len(best) == 1:
        return best[0]
    if not can_ask:
        click.echo(f"using {best[0]}; other candidates: {', '.join(best[1:6])} (choose with --entry FILE)", err=True)
        return best[0]
    for number, script in enumerate(best, 1):
        click.echo(f"  {number}  {script}", err=True)
    answer: int = click.prompt(
        "Which one is the training script?", type=click.IntRange(1, len(best)), default=1, err=True
    )
    return best[answer - 1]


def _refuse_folder(tree: SourceTree, unreadable: Sequence[str]) -> NoReturn:
    from smdp_launch.diagnostics import Diagnostic
    from smdp_launch.errors import JobFileRefused

    message = f"no script in {tree.folder} imports PyTorch or TensorFlow"
    if unreadable:
        message += f"; {'; '.join(unreadable[:3])}"
    help_ = "pass the folder of the training script, or name the script with --entry FILE"
    raise JobFileRefused([Diagnostic("SMDP402", message, text=str(tree.folder), help=help_)])


def _write(output: Path, text: str, force: bool) -> None:
    """Write the file. Without ``force``, refuse to overwrite a file that another process has created meanwhile.

    Raises:
        EnvironmentProblem: it cannot be written.
    """
    from smdp_launch.draft.user_files import create_file, write_file

    try:
        (write_file if force else create_file)(output, text)
    except FileExistsError:
        _refuse_to_overwrite(output, force=False)


def _write_schema(output: Path) -> None:
    """Write the schema for editors beside the job file, whose first line names it."""
    from smdp_launch.draft.jobfile import SCHEMA_FILE
    from smdp_launch.errors import EnvironmentProblem
    from smdp_launch.jobfile.model.editor import schema_text
    from smdp_launch.jobs.records.history import state_folder
    from smdp_launch.rehearsals.saved import replace_file

    if not output.parent.is_dir():
        raise EnvironmentProblem(f"{output} cannot be written: there is no folder {output.parent}")
    state_folder(output.parent)
    replace_file(output.parent / SCHEMA_FILE, schema_text())


def _add_notebook(job_file: Path) -> None:
    """Write the notebook for an existing job file, and report the errors of the file."""
    from smdp_launch.checking.job import check_job
    from smdp_launch.cli.render.diagnostics import print_diagnostics

    _refuse_to_overwrite(job_file.with_suffix(".ipynb"), force=False)
    checked = check_job(job_file)
    _, source = checked.require()
    _write_notebook(job_file, source.folder, force=False, prefix=f"kept {job_file}, ")
    print_diagnostics(checked.diagnostics)


def _write_notebook(job_file: Path, source: Path, force: bool, prefix: str = "") -> None:
    from smdp_launch.draft.notebook import ignore_addition, notebook_for
    from smdp_launch.draft.user_files import write_file
    from smdp_launch.source.ignore import IGNORE_FILE

    path = job_file.with_suffix(".ipynb")
    _write(path, notebook_for(job_file), force)
    addition = ignore_addition(path, source)
    note = ""
    if addition:
        ignore = source / IGNORE_FILE
        write_file(ignore, (ignore.read_bytes() if ignore.exists() else b"") + addition.encode())
        note = f"; {IGNORE_FILE} excludes it from the source"
    click.echo(f"{prefix}wrote {path}{note}")


def _print_draft(draft: Draft, output: Path, to_fill_in: Sequence[str]) -> None:
    from smdp_launch.catalog.frameworks import TITLES
    from smdp_launch.jobfile.yaml.text import to_yaml

    build = draft.choice.build
    click.echo(f"wrote {output}")
    click.echo(f"  script     {to_yaml(draft.entry)} in {to_yaml(draft.source)}")
    click.echo(f"  framework  {TITLES[build.framework]} {build.version}: {draft.choice.reason}")
    channels = [f"{one} (local: {to_yaml(draft.local[one])})" if one in draft.local else one for one in draft.channels]
    click.echo(f"  channels   {', '.join(channels) or 'none: the script reads none'}")
    click.echo(f"  to fill in {', '.join(to_fill_in)}")
    for note in draft.notes:
        click.echo(f"note: {note}", err=True)


def _print_next(draft: Draft, output: Path) -> None:
    """Suggest a local run if every channel has local data, else the plan."""
    can_run = all(one in draft.local for one in draft.channels) and linux_refusal("a local run") is None
    arguments = ["launch", str(output), "--local"] if can_run else ["plan", str(output)]
    click.echo(f"next: {command_line(['smdp-launch', *arguments])}")
