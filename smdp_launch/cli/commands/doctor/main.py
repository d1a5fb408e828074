from __future__ import annotations

from typing import TYPE_CHECKING

import click

from smdp_launch.cli.shared import options

if TYPE_CHECKING:
    from smdp_launch.errors import ExitCode


@click.command("doctor")
@click.option("--aws", "call_aws", is_flag=True, help="Also call AWS: check the credentials and compare the clocks.")
@click.option("--report", "as_report", is_flag=True, help="Print text for a bug report, without private data.")
@options.json_document
def command(call_aws: bool, as_report: bool, as_json: bool) -> ExitCode:
    """Check whether this machine can run jobs: Python, packages, framework, engine, limits, isolation, AWS settings.

    The command prints each problem with a fix. The most probable cause is first. The command changes nothing, and calls
    AWS only with --aws. --json and --report omit user names, host names, paths below the home folder and account
    numbers. The exit code is 4 if there is an error. Otherwise it is 0, even if there are warnings.
    """
    from smdp_launch.cli.render.doctor import print_examination, print_json, print_report
    from smdp_launch.cli.render.terminal.bars import busy
    from smdp_launch.doctor.examination import examine
    from smdp_launch.errors import ExitCode

    if as_report and as_json:
        raise click.UsageError("--report and --json exclude each other: pass one of them")
    with busy("checking this machine"):
        examination = examine(call_aws=call_aws)
    if as_json:
        print_json(examination.without_private_data())
    elif as_report:
        print_report(examination.without_private_data())
    else:
        print_examination(examination)
    return ExitCode.ENVIRONMENT if examination.errors else ExitCode.OK
