from __future__ import annotations

import click


class Group(click.Group):
    """Says which command was probably meant where there is none of that name."""

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
