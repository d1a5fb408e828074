from __future__ import annotations

import click

from smdp_launch.cli.render.json_output import print_document
from smdp_launch.cli.shared import completers, options

#: Version of the JSON form.
_VERSION = 1


@click.command("explain")
@click.argument("code", required=False, shell_complete=completers.codes)
@options.json_document
def command(code: str | None, as_json: bool) -> None:
    """Explain the diagnostic CODE: its reason, its consequences, and an example of the error and of the fix.

    Without CODE, list all codes.
    """
    from smdp_launch.rules.base import pages

    if code is None:
        _print_list([{"code": one, "title": pages.title(one)} for one in pages.codes()], as_json)
        return
    name = _known_code(code, pages.codes())
    if as_json:
        _print_json({"code": name, "title": pages.title(name), "page": pages.page(name)})
    else:
        from smdp_launch.cli.render.next_step import print_next
        from smdp_launch.cli.render.terminal.pages import print_page

        print_page(pages.page(name))
        print_next("smdp-launch validate")


def _known_code(code: str, known: tuple[str, ...]) -> str:
    """The code in full: 301 and smdp301 stand for SMDP301."""
    from smdp_launch.diagnostics import closest

    name = f"SMDP{code}" if code.isdigit() else code.upper()
    if name in known:
        return name
    match = closest(name, known, cutoff=0.8)
    hint = f"did you mean {match}?" if match else "`smdp-launch explain` lists all codes"
    raise click.BadParameter(f"there is no code {code}: {hint}", param_hint="CODE")


def _print_list(codes: list[dict[str, str]], as_json: bool) -> None:
    if as_json:
        _print_json({"codes": codes})
        return
    from smdp_launch.cli.render.next_step import print_next

    for one in codes:
        click.echo(f"{one['code']}  {one['title']}")
    print_next(f"smdp-launch explain {codes[0]['code']}")


def _print_json(document: dict[str, object]) -> None:
    print_document({"explain": _VERSION, **document})
