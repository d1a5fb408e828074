from __future__ import annotations

import sys

import click

#: The start-up file of each shell, and the line in it that enables completion.
_INSTALL = {
    "bash": ("~/.bashrc", 'eval "$(smdp-launch completion bash)"'),
    "zsh": ("~/.zshrc", 'autoload -Uz compinit; compinit; eval "$(smdp-launch completion zsh)"'),
    "fish": ("~/.config/fish/config.fish", "smdp-launch completion fish | source"),
}
_HELP = """\
Print the script that completes commands, options, job files, codes and catalog values in SHELL.

To enable completion, add the line for your shell to its start-up file:

\b
""" + "\n\b\n".join(f"{file}\n  {line}" for file, line in _INSTALL.values())


@click.command("completion", help=_HELP)
@click.argument("shell", type=click.Choice(list(_INSTALL)), metavar="SHELL")
def command(shell: str) -> None:
    from click.shell_completion import get_completion_class

    from smdp_launch.cli.render.next_step import print_next

    completion = get_completion_class(shell)
    if completion is None:
        raise LookupError(f"click has no completion for {shell}")
    root = click.get_current_context().find_root().command
    click.echo(completion(root, {}, "smdp-launch", "_SMDP_LAUNCH_COMPLETE").source())
    if sys.stdout.isatty():  # not when a start-up file runs the command
        file, line = _INSTALL[shell]
        print_next(f"add to {file}: {line}")
