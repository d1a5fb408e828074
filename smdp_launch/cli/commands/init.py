from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

import click

if TYPE_CHECKING:
    from smdp_launch.draft.draft import Draft
    from smdp_launch.draft.framework import Engine
    from smdp_launch.source.scan import SourceTree


def _folder(_: click.Context, __: click.Parameter, value: Path) -> Path:
    try:
        str(value.absolute()).encode()
    except UnicodeEncodeError:
        raise click.BadParameter("its path is not UTF-8, and a job file is") from None
    return value


def _name(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    from smdp_launch.draft.draft import job_name

    if value is not None and job_name(value) != value:
        raise click.BadParameter(f"letters, digits and inner hyphens, such as {job_name(value)}")
    return value


@click.command("init", short_help="Write a job file for the script in a folder.")
@click.argument(
    "folder",
    metavar="[FOLDER]",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    callback=_folder,
)
@click.option("--entry", metavar="FILE", help="The training script, within FOLDER.")
@click.option("--name", metavar="NAME", callback=_name, help="The job's name; the folder's by default.")
@click.option(
    "--engine",
    type=click.Choice(["native", "smdistributed"]),
    help="Default: native where it has a build for the script's framework.",
)
@click.option(
    "--output", metavar="FILE", type=click.Path(path_type=Path), default=Path("job.yaml"), help="Default: ./job.yaml."
)
@click.option("--notebook", is_flag=True, help="Also write a notebook that goes from the file to the model.")
@click.option("--force", is_flag=True, help="Overwrite the file if it is there.")
@click.option("--yes", "-y", is_flag=True, help="Ask nothing.")
def command(
    folder: Path,
    entry: str | None,
    name: str | None,
    engine: Engine | None,
    output: Path,
    notebook: bool,
    force: bool,
    yes: bool,
) -> None:
    """Write a commented job file for the training script in FOLDER (default: this one).

    It reads the scripts without running them, and asks only which of several trains. Placeholders stand for what a
    folder cannot tell: role, region, image and buckets.
    """
    from smdp_launch.checking.job import check_job
    from smdp_launch.cli.render.diagnostics import show_diagnostics
    from smdp_launch.draft.draft import make_draft
    from smdp_launch.draft.jobfile import job_file
    from smdp_launch.source.scan import DEFAULT_LIMIT, scan_source

    _refuse_to_overwrite(output, force)
    if notebook:
        _refuse_to_overwrite(output.with_suffix(".ipynb"), force)
    tree = scan_source(folder, DEFAULT_LIMIT)
    asks = not yes and sys.stdin is not None and sys.stdin.isatty()
    chosen = _find_entry(tree, asks) if entry is None else _given_entry(tree, entry)
    draft = make_draft(tree, chosen, output, engine, name)
    _write(output, job_file(draft), "w" if force else "x")
    _write_schema(output)
    checked = check_job(output)
    _show(draft, output, [one.field for one in checked.placeholders])
    if notebook:
        _write_notebook(output, folder, force)
    checked.require()
    show_diagnostics(checked.diagnostics)
    _show_next(draft, output)


def _refuse_to_overwrite(output: Path, force: bool) -> None:
    from smdp_launch.errors import Refused

    if os.path.lexists(output) and not force:
        raise Refused(f"{output} is there already: --force overwrites it, --output FILE writes another")


def _given_entry(tree: SourceTree, entry: str) -> str:
    """The script that ``--entry`` names, within the folder or as it lies from here."""
    from smdp_launch.diagnostics import closest
    from smdp_launch.source.ignore import IGNORE_FILE
    from smdp_launch.source.scan import normal_name

    from_here = Path(os.path.relpath(entry, tree.folder)).as_posix()
    for name in (normal_name(entry), from_here):
        if tree.file(name) is not None:
            return name
        if tree.ignored.holds(name):
            raise click.BadParameter(f"{IGNORE_FILE} leaves {name} out", param_hint="--entry")
    match = closest(normal_name(entry), [one.name for one in tree.files])
    hint = f"; did you mean {match}?" if match else ""
    raise click.BadParameter(f"there is no {entry} in {tree.folder}{hint}", param_hint="--entry")


def _find_entry(tree: SourceTree, asks: bool) -> str:
    """The script that trains, asked for where several are equally good.

    Raises:
        JobFileRefused: there is none.
    """
    from smdp_launch.draft.entry import python_scripts, training_scripts, unreadable

    scripts = python_scripts(tree)
    groups = training_scripts(scripts)
    if not groups:
        _refuse_folder(tree, unreadable(scripts))
    best = groups[0]
    if len(best) == 1:
        return best[0]
    if not asks:
        click.echo(f"{best[0]} was taken; {', '.join(best[1:6])} may train as well: --entry FILE chooses", err=True)
        return best[0]
    for number, script in enumerate(best, 1):
        click.echo(f"  {number}  {script}", err=True)
    answer: int = click.prompt("Which of them trains?", type=click.IntRange(1, len(best)), default=1, err=True)
    return best[answer - 1]


def _refuse_folder(tree: SourceTree, unreadable: Sequence[str]) -> NoReturn:
    from smdp_launch.diagnostics import Diagnostic
    from smdp_launch.errors import JobFileRefused

    message = f"no script in {tree.folder} imports PyTorch or TensorFlow"
    if unreadable:
        message += f"; {'; '.join(unreadable[:3])}"
    help_ = "give the folder that holds the training script, or name the script with --entry FILE"
    raise JobFileRefused([Diagnostic("SMDP402", message, text=str(tree.folder), help=help_)])


def _write(output: Path, text: str, mode: Literal["x", "w", "a"]) -> None:
    """Write the file; with mode "x" not over one that came into being since.

    Raises:
        EnvironmentProblem: it cannot be written.
    """
    from smdp_launch.disk import why
    from smdp_launch.errors import EnvironmentProblem

    try:
        with output.open(mode, encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        _refuse_to_overwrite(output, force=False)
    except OSError as error:
        raise EnvironmentProblem(f"{output} cannot be written: {why(error, output)}") from error


def _write_schema(output: Path) -> None:
    """Beside the job file, whose first line names it: editors complete and check by it."""
    from smdp_launch.draft.jobfile import SCHEMA_FILE
    from smdp_launch.jobfile.model.editor import schema_text
    from smdp_launch.jobs.records.history import state_folder
    from smdp_launch.rehearsals.saved import write_whole

    state_folder(output.parent)
    write_whole(output.parent / SCHEMA_FILE, schema_text())


def _write_notebook(job_file: Path, source: Path, force: bool) -> None:
    from smdp_launch.draft.notebook import ignore_addition, notebook_for
    from smdp_launch.source.ignore import IGNORE_FILE

    path = job_file.with_suffix(".ipynb")
    _write(path, notebook_for(job_file), "w" if force else "x")
    addition = ignore_addition(path, source)
    left_out = ""
    if addition:
        _write(source / IGNORE_FILE, addition, "a")
        left_out = f", which {IGNORE_FILE} leaves out of the source"
    click.echo(f"wrote {path}{left_out}")


def _show(draft: Draft, output: Path, to_fill_in: Sequence[str]) -> None:
    from smdp_launch.catalog.frameworks import TITLES
    from smdp_launch.jobfile.yaml.text import written

    build = draft.choice.build
    click.echo(f"wrote {output}")
    click.echo(f"  script     {written(draft.entry)} in {written(draft.source)}")
    click.echo(f"  framework  {TITLES[build.framework]} {build.version}: {draft.choice.reason}")
    told = [f"{one} ({written(draft.local[one])} here)" if one in draft.local else one for one in draft.channels]
    click.echo(f"  channels   {', '.join(told)}")
    click.echo(f"  to fill in {', '.join(to_fill_in)}")
    for note in draft.notes:
        click.echo(f"note: {note}", err=True)


def _show_next(draft: Draft, output: Path) -> None:
    """The file was checked already; with data for every channel it can run here."""
    runs_here = all(one in draft.local for one in draft.channels)
    arguments = ["launch", str(output), "--local"] if runs_here else ["plan", str(output)]
    click.echo(f"next: {shlex.join(['smdp-launch', *arguments])}")
