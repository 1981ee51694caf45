"""What can go wrong. Everything is a :class:`NetbltError`; most are Python's own, too, so that
``except PermissionError`` and ``except ConnectionError`` mean what they always mean."""

from __future__ import annotations

import builtins
from typing import Any

__all__ = [
    "DeniedError",
    "ExistsError",
    "FileError",
    "IsADirectoryError",
    "LostError",
    "MemoryShortError",
    "NetbltError",
    "NoRoomError",
    "NotADirectoryError",
    "NotFoundError",
    "ProtocolError",
    "RefusedError",
    "SilentError",
    "StoppedError",
    "SystemCallError",
    "UnreachableError",
    "UnverifiedError",
    "UsageError",
]


class NetbltError(Exception):
    """A transfer failed."""

    #: The number that the program ``netblt`` exits with for it.
    code: int
    #: Whether the same transfer may go well if it is tried again, with nothing changed but time.
    retryable: bool

    def __init__(
        self,
        message: str = "",
        code: int = 23,
        retryable: bool = False,
        errno: int | None = None,
        filename: str | None = None,
    ) -> None:
        if not isinstance(self, OSError):
            super().__init__(message)
        elif errno is None:
            OSError.__init__(self, message)
        else:
            OSError.__init__(self, errno, message, filename)
        self._made_of = (message, code, retryable, errno, filename)
        self.code = code
        self.retryable = retryable

    def __str__(self) -> str:
        return self._made_of[0]

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), self._made_of)


class UsageError(NetbltError, ValueError):
    """What was asked for makes no sense: a ticket, an option, what is to be sent."""


class FileError(NetbltError, OSError):
    """A file could not be read, written or created."""


class NotFoundError(FileError, FileNotFoundError):
    """A file is not there."""


class DeniedError(FileError, PermissionError):
    """A file may not be read, written or created."""


class ExistsError(FileError, FileExistsError):
    """A file is there already, and overwriting was not asked for."""


class IsADirectoryError(FileError, builtins.IsADirectoryError):
    """A directory stands where a file is needed."""


class NotADirectoryError(FileError, builtins.NotADirectoryError):
    """Something else stands where a directory is needed."""


class NoRoomError(FileError):
    """There is no room; ``errno`` is ``ENOSPC``."""


class SystemCallError(NetbltError, OSError):
    """A socket could not be opened or used, or a thread not started."""


class MemoryShortError(NetbltError, MemoryError):
    """There is no memory for the buffers."""


class RefusedError(NetbltError, ConnectionRefusedError):
    """The other end refused, or nobody listens there."""


class UnreachableError(NetbltError, ConnectionError):
    """The way to the other end is unknown."""


class SilentError(NetbltError, TimeoutError):
    """Nobody answered or came, or the other end fell silent, for as long as was allowed."""


class LostError(NetbltError, ConnectionResetError):
    """The other end stopped, or vanished."""


class ProtocolError(NetbltError, ConnectionAbortedError):
    """The other end broke the protocol, or says that this one did."""


class UnverifiedError(NetbltError):
    """What arrived is not what was sent."""


class StoppedError(NetbltError):
    """It was stopped here, by :meth:`netblt.Cancel.cancel`."""
