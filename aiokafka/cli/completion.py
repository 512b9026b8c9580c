"""`aiokafka completion`: the script that lets a shell complete commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

__all__ = ["commands"]


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def commands(context: click.Context, shell: str) -> None:
    """Print the script with which a shell completes this program's commands.

    \b
    Example:
      eval "$(aiokafka completion bash)"
    """
    made = get_completion_class(shell)
    assert made is not None
    root = context.find_root()
    click.echo(made(root.command, {}, "aiokafka", "_AIOKAFKA_COMPLETE").source())
