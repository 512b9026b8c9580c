"""`command` and `Session`, used by all commands: connection options, clients, and the output."""

from __future__ import annotations

import functools
import logging
import os
import sys
import warnings
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from aiokafka.cli.failures import parts
from aiokafka.cli.output import FORMATS, Output
from aiokafka.cli.running import can_ask, run, secret
from aiokafka.cli.settings import client_options, find_settings, read_line
from aiokafka.errors import AdminItemsError

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, AIOKafkaShareConsumer
    from aiokafka.admin import AIOKafkaAdminClient

K = TypeVar("K")
T = TypeVar("T")
Body = Callable[..., Coroutine[Any, Any, Any]]

_CLIENT_ID = "aiokafka-cli"

_FLAGS = (
    click.option(
        "-b", "--bootstrap-servers", metavar="HOST:PORT,...", help="Brokers to connect to first."
    ),
    click.option(
        "--bootstrap-controllers",
        metavar="HOST:PORT,...",
        help="Controllers to connect to instead of brokers (administration).",
    ),
    click.option("--profile", metavar="NAME", help="Profile of the configuration file."),
    click.option("--config", metavar="FILE", help="The configuration file (TOML)."),
    click.option("--properties", metavar="FILE", help="Properties file of a Java client."),
    click.option("--security-protocol", metavar="NAME", help="PLAINTEXT, SSL, SASL_SSL ..."),
    click.option("--sasl-mechanism", metavar="NAME", help="PLAIN, SCRAM-SHA-256, GSSAPI ..."),
    click.option("--username", metavar="NAME", help="User name for PLAIN and SCRAM."),
    click.option("--password-file", metavar="FILE", help="File that contains the password."),
    click.option(
        "--password-stdin", is_flag=True, help="Read the password from the first line of stdin."
    ),
    click.option("--ca-file", metavar="FILE", help="Certificates to trust (PEM)."),
    click.option("--cert-file", metavar="FILE", help="The client's certificate (PEM)."),
    click.option("--key-file", metavar="FILE", help="The key of the certificate (PEM)."),
    click.option("-X", "options", metavar="NAME=VALUE", multiple=True, help="Any client option."),
    click.option("-v", "--verbose", is_flag=True, help="Show the client's warnings."),
    click.option(
        "--debug", is_flag=True, help="Show the client's debug log, and tracebacks of errors."
    ),
)
# The options that the help lists in the section "Connection".
_CONNECTION = {
    *("bootstrap_servers", "bootstrap_controllers", "profile", "config", "properties"),
    *("security_protocol", "sasl_mechanism", "username", "password_file", "password_stdin"),
    *("ca_file", "cert_file", "key_file", "options"),
}
_OUTPUT = click.option(
    "-o",
    "--output",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="Format of the output; json has one object per line.",
)


class Verbs(click.Group):
    """A group of commands. Its help shows the first sentence of each command in full."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands; long summaries are wrapped, not cut."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, each.get_short_help_str(limit=200)) for name, each in found if each]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class Verb(click.Command):
    """A command whose help lists its own options before those of the connection."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write two sections of options."""
        own: list[tuple[str, str]] = []
        shared: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                (shared if parameter.name in _CONNECTION else own).append(record)
        for title, rows in (("Options", own), ("Connection", shared)):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


class Session:
    """One run of a command: creates clients from the connection options, and prints results."""

    def __init__(self, flags: dict[str, Any], form: str = "table") -> None:
        self.output = Output(form)
        #: The error to raise after the command has printed its results; None if there is none.
        self.failure: Exception | None = None
        self._flags = flags
        self._found: dict[str, Any] | None = None
        # Read the password before the command itself reads stdin, for records or a confirmation.
        self._password = read_line() if flags.get("password_stdin") else None

    @property
    def client_options(self) -> dict[str, Any]:
        """The keyword arguments with which all clients are created."""
        return {"client_id": _CLIENT_ID, **self._given_options}

    @property
    def _given_options(self) -> dict[str, Any]:
        if self._found is None:
            settings = find_settings(self._flags, os.environ)
            self._found = client_options(_with_password(settings, self._password))
        return self._found

    def other(self, flags: dict[str, Any]) -> Session:
        """Return a session for a second cluster. `flags` override the flags of this session.

        With a profile in `flags`, the settings are only those of the profile: the other flags of
        this session and the environment variables do not apply, except for the path of the
        configuration file.
        """
        profile = flags.get("profile")
        if profile is not None:
            kept = {"config": self._flags.get("config"), "profile": profile}
            found = Session({**dict.fromkeys(self._flags), **kept}, self.output.form)
            found._found = client_options(find_settings(found._flags, _file_variables()))
            return found
        given = {name: value for name, value in flags.items() if value is not None}
        return Session({**self._flags, **given, "password_stdin": None}, self.output.form)

    def admin(self) -> AIOKafkaAdminClient:
        """Create an admin client."""
        from aiokafka.admin import AIOKafkaAdminClient

        return AIOKafkaAdminClient(**self.client_options)

    def admin_for_client(self) -> AIOKafkaAdminClient:
        """Create an admin client for a command that has a producer or consumer.

        Ignores those options of -X that an admin client does not have.
        """
        from aiokafka.admin import AIOKafkaAdminClient
        from aiokafka.options import AdminOptions

        known = AdminOptions.__annotations__.keys()
        options = {name: value for name, value in self.client_options.items() if name in known}
        return AIOKafkaAdminClient(**options)

    def producer(self, **options: Any) -> AIOKafkaProducer:
        """Create a producer. The user's options (-X) override `options`."""
        from aiokafka import AIOKafkaProducer

        return AIOKafkaProducer(**{**options, **self._broker_client_options()})

    def consumer(self, **options: Any) -> AIOKafkaConsumer:
        """Create a consumer. The user's options (-X) override `options`."""
        from aiokafka import AIOKafkaConsumer

        return AIOKafkaConsumer(**self._consumer_options(options))

    def share_consumer(self, *topics: str, **options: Any) -> AIOKafkaShareConsumer[Any, Any]:
        """Create a share consumer. The user's options (-X) override `options`."""
        from aiokafka import AIOKafkaShareConsumer

        return AIOKafkaShareConsumer(*topics, **self._consumer_options(options))

    def _consumer_options(self, options: dict[str, Any]) -> dict[str, Any]:
        found = {**options, **self._broker_client_options()}
        if found.get("group_id") is not None and "client_id" not in self._given_options:
            # `groups describe` shows client ids and hosts. With the process id in the client id,
            # they identify the process.
            found["client_id"] = f"{_CLIENT_ID}-{os.getpid()}"
        return found

    def _broker_client_options(self) -> dict[str, Any]:
        options = self.client_options
        if "bootstrap_controllers" in options:
            raise click.UsageError("controllers have no records: give --bootstrap-servers")
        return options

    async def parts(
        self, call: Awaitable[Mapping[K, Any] | None], items: Collection[K] | None
    ) -> Mapping[K, Any]:
        """Return the results of an admin call about items, such as topics. If items have failed,
        their errors are raised after the command has printed the results (`failure`).

        Args:
            call: the call.
            items: the items; None if the call itself finds the items, such as all brokers.

        If `items` has only one item, an AdminItemsError is raised at once.
        """
        found, failed = await parts(call, items)
        if failed is not None:
            self.fail_at_end(failed)
        return found

    def fail_at_end(self, error: AdminItemsError) -> None:
        """Add `error` to `failure`, which is raised after the command has printed its results."""
        earlier = self.failure.errors if isinstance(self.failure, AdminItemsError) else {}
        self.failure = AdminItemsError({**earlier, **error.errors}, error.results)

    async def run_body(self, body: Coroutine[Any, Any, T]) -> T:
        """Run the body of a command, then raise `failure` if it is set."""
        result = await body
        if self.failure is not None:
            raise self.failure
        return result


def _file_variables() -> dict[str, str]:
    """Return the environment variables that determine the path of the configuration file."""
    names = ("AIOKAFKA_CONFIG", "XDG_CONFIG_HOME")
    return {name: os.environ[name] for name in names if name in os.environ}


def _with_password(settings: dict[str, Any], password: str | None) -> dict[str, Any]:
    """Add the password that was read from stdin. If there is a user name without any password,
    prompt for the password.

    Raises click.UsageError if no user can be prompted.
    """
    if password is not None:
        return {**settings, "password": password}
    if "username" in settings and not {"password", "password_file"} & settings.keys():
        if not can_ask():
            raise click.UsageError(
                "a user name without a password: use --password-stdin, --password-file or "
                "AIOKAFKA_PASSWORD"
            )
        return {**settings, "password": secret(f"Password of {settings['username']}")}
    return settings


def command(group: click.Group | None, name: str, *, prints: bool = True) -> Callable[[Body], Any]:
    """Create a command from a coroutine function, whose arguments are the session and the command's
    own options.

    The docstring of the function is the help text. With `prints`, the command has the option
    --output.
    """

    def decorate(function: Body) -> Any:
        @functools.wraps(function)
        def call(**given: Any) -> Any:
            flags = {each.name: given.pop(each.name) for each in shared}
            _set_up_logging(flags["verbose"], flags["debug"])
            session = Session(flags, flags.pop("output", "table"))
            return run(session.run_body(function(session, **given)))

        call.__dict__.setdefault("__click_params__", [])
        found: Any = call
        for option in reversed((_OUTPUT, *_FLAGS) if prints else _FLAGS):
            found = option(found)
        # In the help, click lists the options first that were added last: here, the shared options.
        # Change the order so that the command's own options are listed first.
        params = found.__click_params__
        own = len(params) - len(_FLAGS) - prints
        shared = params[own:]
        found.__click_params__ = shared + params[:own]
        made = click.command(name, cls=Verb)(found)
        if group is not None:
            group.add_command(made)
        return made

    return decorate


def _set_up_logging(verbose: bool, debug: bool) -> None:
    level = logging.DEBUG if debug else logging.WARNING if verbose else logging.CRITICAL
    logging.basicConfig(level=level, format="aiokafka: %(levelname)s %(message)s")
    if debug:
        os.environ["AIOKAFKA_DEBUG"] = "1"
    if not sys.warnoptions:
        warnings.simplefilter("default" if verbose or debug else "ignore")
