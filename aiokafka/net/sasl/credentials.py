"""User name and password of one authentication."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING

from aiokafka._config.options import unsendable
from aiokafka._tasks import is_task_cancelled
from aiokafka.errors import AuthenticationFailedError, KafkaConnectionError, KafkaError

if TYPE_CHECKING:
    from aiokafka._config import Credential

__all__ = ["Credentials"]


class Credentials:
    """The user name and password. If they are configured as functions, `fetch` calls these."""

    __slots__ = ("_password", "_username", "password", "user")

    def __init__(self, username: Credential, password: Credential) -> None:
        self._username = username
        self._password = password
        self.user = username if isinstance(username, str) else ""
        self.password = password if isinstance(password, str) else ""

    async def fetch(self) -> None:
        """Set `user` and `password`. If they are configured as functions, call these.

        Raises KafkaConnectionError, which is retriable, if a function fails, and
        AuthenticationFailedError if a function does not return a valid text. Errors never contain
        the text.
        """
        self.user = await _text_of(self._username, "sasl_plain_username")
        self.password = await _text_of(self._password, "sasl_plain_password")


async def _text_of(source: Credential, keyword: str) -> str:
    if isinstance(source, str):
        return source
    try:
        text: object = source()
        if inspect.isawaitable(text):
            text = await text
    except KafkaError:
        raise
    except asyncio.CancelledError as error:
        if is_task_cancelled():
            raise
        text = f"{keyword}: the function awaited a cancelled task or future"
        raise KafkaConnectionError(text) from error
    except Exception as error:
        raise KafkaConnectionError(
            f"{keyword}: the function failed: {type(error).__name__}"
        ) from error
    if not isinstance(text, str) or not text:
        raise AuthenticationFailedError(
            f"{keyword}: the function returned {type(text).__name__}, not a non-empty string"
        )
    if reason := unsendable(text):
        raise AuthenticationFailedError(f"{keyword}: the function returned a string with {reason}")
    return text
