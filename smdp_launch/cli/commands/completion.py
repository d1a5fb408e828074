from __future__ import annotations

import sys

import click

#: The file that a shell reads at its start, and the line that installs the script when it stands there.
_INSTALL = {
    "bash": ("~/.bashrc", 'eval "$(smdp-launch completion bash)"'),
    "zsh": ("~/.zshrc", 'autoload -Uz compinit; compinit; eval "$(smdp-launch completion zsh)"'),
    "fish": ("~/.config/fish/config.fish", "smdp-launch completion fish | source"),
}
_HELP = """\
Print the script that lets SHELL complete commands, options, job files, codes and the catalogue's words.

The line that installs it stands in the file that the shell reads at its start:

\b
""" + "\n\b\n".join(f"{file}\n  {line}" for file, line in _INSTALL.values())


@click.command("completion", short_help="Print the script that completes commands in your shell.", help=_HELP)
@click.argument("shell", type=click.Choice(list(_INSTALL)), metavar="SHELL")
def command(shell: str) -> None:
    from click.shell_completion import get_completion_class

    from smdp_launch.cli.render.next import say_next

    made = get_completion_class(shell)
    if made is None:
        raise LookupError(f"click has no completion for {shell}")
    root = click.get_current_context().find_root().command
    click.echo(made(root, {}, "smdp-launch", "_SMDP_LAUNCH_COMPLETE").source())
    if sys.stdout.isatty():  # a shell that installs it would tell it at each start
        file, line = _INSTALL[shell]
        say_next(f"write into {file}: {line}")
