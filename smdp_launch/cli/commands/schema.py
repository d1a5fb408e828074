from __future__ import annotations

from pathlib import Path

import click


@click.command("schema")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the schema to this file.")
def command(output: Path | None) -> None:
    """Print the JSON Schema of job files. Editors use it to complete and check a job file while you type.

    Name the schema in the first line of the job file:

    \b
    # yaml-language-server: $schema=job.schema.json
    """  # noqa: D301 - click reads \b as "keep the line breaks of this paragraph"
    from smdp_launch.cli.render.next_step import print_next
    from smdp_launch.draft.user_files import write_file
    from smdp_launch.jobfile.model.editor import schema_text

    if output is None:
        click.echo(schema_text(), nl=False)
        print_next("smdp-launch schema --output job.schema.json")
        return
    write_file(output, schema_text())
    click.echo(f"wrote {output}", err=True)
    print_next(f"name it in a job file's first line: # yaml-language-server: $schema={output}")
