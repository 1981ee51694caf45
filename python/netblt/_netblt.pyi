"""What is compiled."""

from typing import Any, Literal, final

from netblt._options import Options
from netblt._transfer import Readable, Writable

#: That of the package, and of the program in it.
__version__: str

@final
class Control:
    """Changes transfers from any thread while they run: all that it was given to.

    What was said before a transfer began holds from its beginning.
    """

    def __init__(self) -> None: ...
    def set_rate(self, rate: int | None, /) -> None:
        """Never faster than so many bits a second; ``None``: no ceiling. A receiver asks its sender
        for it, who obeys."""
    def set_policy(
        self,
        name: Literal["fair", "background", "aggressive", "cubic", "fixed"],
        /,
        rate: int | None = None,
    ) -> None:
        """How a sender chooses its rate from now on, as in :class:`netblt.Options`."""
    def pause(self) -> None:
        """Nothing moves until :meth:`resume`; the connection stays."""
    def resume(self) -> None:
        """Goes on."""
    @property
    def paused(self) -> bool:
        """Whether it is paused."""

@final
class Progress:
    """How far a transfer is."""

    @property
    def bytes(self) -> int:
        """File bytes accepted (sender) or stored (receiver)."""
    @property
    def kept(self) -> int:
        """Those of them that the receiver had already, from a transfer that was broken off: they
        took no time, and no rate is to be made of them."""
    @property
    def total(self) -> int | None:
        """File bytes in all, if known."""
    @property
    def file(self) -> int:
        """Which file it is at, from 1; 0 before the first."""
    @property
    def files(self) -> int | None:
        """Files in all, if known."""
    @property
    def name(self) -> str:
        """The name of that file; what is no text in it as os.fsdecode has it."""
    @property
    def elapsed(self) -> float:
        """Seconds since the connection opened."""
    @property
    def paused(self) -> bool:
        """Whether it is paused at this end."""
    @property
    def rtt(self) -> float | None:
        """Round trip in seconds, if known."""

@final
class Summary:
    """How a transfer went."""

    @property
    def bytes(self) -> int:
        """File bytes transferred, those among them that the receiver had already."""
    @property
    def kept(self) -> int:
        """File bytes that the receiver had already."""
    @property
    def files(self) -> int:
        """Files transferred."""
    @property
    def skipped(self) -> int:
        """What was left out, each told as a warning."""
    @property
    def elapsed(self) -> float:
        """Seconds from the opening of the connection to its end."""
    @property
    def real_bps(self) -> float:
        """Bits a second over all of the time."""
    @property
    def steady_bps(self) -> float:
        """Bits a second without beginning and end."""
    @property
    def verified(self) -> bool:
        """Whether every byte is stored, flushed and its digest agreed."""
    @property
    def digest(self) -> _bytes:
        """The transfer's digest."""
    @property
    def limited_by(self) -> str:
        """What limited it."""
    @property
    def streams(self) -> int:
        """Over how many connections it went, those that were lost or closed again as well."""

_bytes = bytes
_list = list

@final
class Job:
    """A transfer that runs on a thread of its own, until finish()."""

    @staticmethod
    def send(
        what: _bytes | bytearray | list[str] | Readable,
        name: str | None,
        ticket: str | None,
        options: Options,
        control: Control | None,
    ) -> Job: ...
    @staticmethod
    def receive(
        into: str | Writable, ticket: str | None, options: Options, control: Control | None
    ) -> Job: ...
    def cancel(self) -> None: ...
    def hurry(self) -> None: ...
    def next(self, seconds: float) -> tuple[str, Any] | None: ...
    def poll(self) -> tuple[str, Any] | None: ...
    def fileno(self) -> int: ...
    def close(self) -> None: ...
    def finish(self) -> Summary: ...

_Entry = tuple[_bytes, Literal["file", "directory", "link", "other"], int, int, int, int]

@final
class Call:
    """A request to a server under way, until result()."""

    def cancel(self) -> None: ...
    def hurry(self) -> None: ...
    def wait(self, seconds: float) -> bool: ...
    def fileno(self) -> int: ...
    def result(self) -> Any: ...
    def warnings(self) -> list[str]: ...

@final
class Remote:
    """A server of files, and how it is met."""

    def __init__(
        self,
        host: str | None,
        port: int | None,
        ticket: str | None,
        key: str | None,
        known_servers: str | None,
        options: Options,
    ) -> None: ...
    def fresh(self) -> Remote: ...
    def close(self) -> None: ...
    def stat(self, path: _bytes) -> Call: ...
    def list(self, path: _bytes) -> Call: ...
    def walk(self, path: _bytes) -> Call: ...
    def make_directory(self, path: _bytes, parents: bool) -> Call: ...
    def remove(self, path: _bytes, directory: bool, tree: bool) -> Call: ...
    def rename(self, path: _bytes, to: _bytes, replace: bool) -> Call: ...
    def copy(self, path: _bytes, to: _bytes, trees: bool, replace: bool) -> Call: ...
    def read(self, pieces: _list[tuple[_bytes, int, int]]) -> Call: ...
    def put(self, paths: _list[str], path: _bytes, replace: bool) -> Call: ...
    def put_path(self, file: str, path: _bytes, replace: bool) -> Call: ...
    def put_bytes(self, data: _bytes, name: str, path: _bytes, replace: bool) -> Call: ...
    def put_stream(self, file: Readable, name: str, path: _bytes, replace: bool) -> Call: ...
    def get(self, path: _bytes, into: str, name: str, trees: bool, replace: bool) -> Call: ...
