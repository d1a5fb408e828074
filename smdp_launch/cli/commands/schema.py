from __future__ import annotations

from pathlib import Path

import click


@click.command("schema", short_help="The job file's schema, for editors.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write it to this file.")
def command(output: Path | None) -> None:
    """Print the job file's JSON Schema, by which editors complete and check job files while they are written.

    A job file names it in its first line:  # yaml-language-server: $schema=job.schema.json
    """
    from smdp_launch.cli.render.next import say_next
    from smdp_launch.disk import why
    from smdp_launch.errors import EnvironmentProblem
    from smdp_launch.jobfile.model.editor import schema_text

    if output is None:
        click.echo(schema_text(), nl=False)
        say_next("smdp-launch schema --output job.schema.json")
        return
    try:
        output.write_text(schema_text(), encoding="utf-8")
    except OSError as error:
        raise EnvironmentProblem(f"{output} cannot be written: {why(error, output)}") from error
    click.echo(f"{output} written", err=True)
    say_next(f"name it in a job file's first line: # yaml-language-server: $schema={output}")
