from __future__ import annotations

import json

import click

from smdp_launch.cli.shared import completing

#: Version of the JSON form.
_PAGE = 1


@click.command("explain", short_help="Tell more about a code such as SMDP301.")
@click.argument("code", required=False, shell_complete=completing.codes)
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON document: code, title and the page in Markdown (docs/json.md)."
)
def command(code: str | None, as_json: bool) -> None:
    """Tell why CODE is told and what happens otherwise, with a wrong and a right example.

    Without CODE, list them all.
    """
    from smdp_launch.rules.base import pages

    if code is None:
        _list([{"code": one, "title": pages.title(one)} for one in pages.codes()], as_json)
        return
    name = _known(code, pages.codes())
    if as_json:
        _print_json({"code": name, "title": pages.title(name), "page": pages.page(name)})
    else:
        from smdp_launch.cli.render.next import say_next
        from smdp_launch.cli.render.terminal.pages import show_page

        show_page(pages.page(name))
        say_next("smdp-launch validate")


def _known(code: str, known: tuple[str, ...]) -> str:
    from smdp_launch.diagnostics import closest

    # 301 and smdp301 are as good as SMDP301.
    name = f"SMDP{code}" if code.isdigit() else code.upper()
    if name in known:
        return name
    match = closest(name, known, cutoff=0.8)
    hint = f"did you mean {match}?" if match else "`smdp-launch explain` lists them all"
    raise click.BadParameter(f"there is no code {code}: {hint}", param_hint="CODE")


def _list(found: list[dict[str, str]], as_json: bool) -> None:
    if as_json:
        _print_json({"codes": found})
        return
    from smdp_launch.cli.render.next import say_next

    for one in found:
        click.echo(f"{one['code']}  {one['title']}")
    say_next(f"smdp-launch explain {found[0]['code']}")


def _print_json(document: dict[str, object]) -> None:
    click.echo(json.dumps({"explain": _PAGE, **document}, indent=2, ensure_ascii=False))
