"""The root command, shell completion, and the exit code of the program."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

import click

from aiokafka import __version__
from aiokafka.cli.output import note, printable, styled
from aiokafka.cli.running import Interrupted

# The first word of a command ("noun") -> (the module with its group `commands`, or module:name for
# another command; the help text). A module is imported only if its noun is used.
NOUNS = {
    "acls": ("security:acls", "List, add and delete entries of access control lists."),
    "brokers": ("brokers", "Show brokers, features, the quorum and log directories."),
    "cluster": ("cluster", "Show whether all partitions have a leader and all their replicas."),
    "completion": ("app:completion", "Print a script for shell completion."),
    "configs": ("configs", "Show and change settings of topics, brokers and others."),
    "consume": ("consuming", "Print the records of topics."),
    "groups": ("groups", "List, describe, reset and delete groups; watch their lag."),
    "help": ("app:help_", "Show the help of a command."),
    "info": ("brokers:info", "Show versions, codecs and the brokers."),
    "perf": ("perf", "Measure throughput and latency."),
    "produce": ("producing", "Send records from stdin or files."),
    "profile": ("profiles", "Create, list, show and choose profiles of connection options."),
    "quotas": ("security:quotas", "Show and change quotas of users, client ids and IP addresses."),
    "records": ("topics:records", "Delete old records."),
    "request": ("request", "Send any request of Kafka's protocol."),
    "testing": ("serving", "Serve a fake cluster to programs in any language."),
    "tokens": ("security:tokens", "List, create, renew and expire delegation tokens."),
    "topics": ("topics", "List, describe, create, grow and delete topics."),
    "transactions": ("transactions", "List, describe and fence transactions; find hanging ones."),
    "users": ("security:users", "List users with SCRAM passwords; set and delete passwords."),
    "version": ("app:version", "Print the version."),
}


class HungUp(BaseException):
    """The reader of stdout has closed the pipe.

    This replaces BrokenPipeError, for which click would exit with code 1.
    """


class Nouns(click.Group):
    """Imports the module of a noun (the first word of a command) only if it is used, so that the
    program starts quickly."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the nouns in alphabetical order."""
        return sorted(NOUNS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a noun; None for an unknown noun."""
        if cmd_name not in NOUNS:
            return None
        module, _, name = NOUNS[cmd_name][0].partition(":")
        imported = importlib.import_module(f"aiokafka.cli.{module}")
        found: click.Command = getattr(imported, name or "commands")
        return found

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments before the noun. The error for an unknown option before the noun says
        that options come after the command."""
        try:
            rest: list[str] = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            advice = "Options stand after the command: aiokafka topics list -b localhost:9092"
            raise click.UsageError(f"{error.message} {advice}", ctx) from None
        return rest

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of a noun. The error for an unknown noun suggests a similar noun, if
        there is one."""
        try:
            found: tuple[str | None, click.Command | None, list[str]]
            found = super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib  # imported only for this error

            nearest = difflib.get_close_matches(args[0], NOUNS, 1)
            if not nearest:
                raise
            raise click.UsageError(f"{error.message} Did you mean {nearest[0]!r}?", ctx) from None
        return found

    def invoke(self, ctx: click.Context) -> object:
        """Run the command. Raises HungUp if the reader of stdout has closed the pipe."""
        try:
            result: object = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            raise HungUp from None
        return result

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of nouns without importing their modules."""
        with formatter.section("Commands"):
            formatter.write_dl([(noun, NOUNS[noun][1]) for noun in self.list_commands(ctx)])


@click.group(cls=Nouns, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="aiokafka", message="%(prog)s %(version)s")
def root() -> None:
    """Work with Apache Kafka from a shell.

    Connection settings are read from the options of each command, from environment variables
    (AIOKAFKA_...), from a profile in a TOML file, and from a Java client's properties file.

    \b
    Example:
      aiokafka topics list -b localhost:9092
    """


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script that makes the shell complete the commands of this program.

    \b
    Example:
      eval "$(aiokafka completion bash)"
    """
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    root = context.find_root()
    click.echo(made(root.command, {}, "aiokafka", "_AIOKAFKA_COMPLETE").source())


@click.command("version")
def version() -> None:
    """Print the version, as --version does.

    \b
    Example:
      aiokafka version
    """
    click.echo(f"aiokafka {__version__}")


@click.command("help")
@click.argument("words", nargs=-1, metavar="[COMMAND]...")
@click.pass_context
def help_(context: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a command, as --help does.

    \b
    Example:
      aiokafka help topics create
    """
    root = context.find_root()
    found, current = root.command, root
    for word in words:
        following = found.get_command(current, word) if isinstance(found, click.Group) else None
        if following is None:
            raise click.UsageError(f"No such command {' '.join(words)!r}.", context)
        found, current = following, click.Context(following, current, word)
    click.echo(found.get_help(current))


def invoke(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code. Prints errors on stderr, one line each.

    By default, `arguments` are the arguments of this process.
    """
    if sys.stdout is None:
        # The shell has closed stdout (>&-). The next file that this process opens would get
        # descriptor 1, and the output would be written to that file.
        click.echo("aiokafka: stdout is closed", err=True)
        return 1
    try:
        code = root.main(arguments, prog_name="aiokafka", standalone_mode=False)
    except click.ClickException as error:
        return _explain(error)
    except (click.Abort, KeyboardInterrupt):
        return 130
    except Interrupted as signal:
        if signal.failure is not None:
            _fail(signal.failure)
        return signal.code
    except HungUp:
        return _hang_up()
    except Exception as error:
        return _fail(error)
    return code if isinstance(code, int) else 0


def _explain(error: click.ClickException) -> int:
    """Print a usage error as one line, and return its exit code."""
    context = getattr(error, "ctx", None)
    hint = f" (see {context.command_path} --help)" if context is not None else ""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
    else:
        text = " ".join(error.format_message().split())
        _complain(f"{text}{hint}")
    return error.exit_code


def _complain(line: str) -> None:
    if sys.stderr is not None:
        note(f"{styled('aiokafka:', sys.stderr, fg='red')} {printable(line)}")


def _hang_up() -> int:
    """Return exit code 0, without an error message: the reader of stdout has closed the pipe."""
    # Python flushes stdout again at exit. Replace stdout by the null device, so that this flush
    # succeeds.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _fail(error: Exception) -> int:
    from aiokafka.cli.failures import code_of, lines_of

    for line in lines_of(error):
        _complain(line)
    if os.environ.get("AIOKAFKA_DEBUG"):
        import traceback

        traceback.print_exception(error)
    return code_of(error)
