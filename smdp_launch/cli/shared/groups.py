from __future__ import annotations

import click

from smdp_launch.cli.shared.help import HelpContext, with_help_layout


class Group(click.Group):
    """Lists its commands in the order of their definition, above the options. Suggests the closest command if there is
    none of the given name."""

    context_class = HelpContext

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        if command is None:
            return None
        page = self.epilog.removeprefix("Documentation: ") if self.epilog else None
        return with_help_layout(command, page)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            raise click.UsageError(f"there is no command {name}: {self._hint(ctx, name)}", ctx)
        return super().resolve_command(ctx, args)

    def _hint(self, ctx: click.Context, name: str) -> str:
        from smdp_launch.diagnostics import closest

        known = self.list_commands(ctx)
        match = closest(name, known)
        return f"did you mean {match}?" if match else f"one of {', '.join(known)}"
