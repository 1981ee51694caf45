"""A server of files (``netblt serve``), asked with the verbs of obstore.

All that a client asks goes through one session with the server, opened by the first request and
closed when nothing was asked for a minute. A client may be used from any thread and by any event
loop, and a child of ``fork`` has a session of its own.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import weakref
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Iterable, List, Sequence, Tuple, TypedDict, Union
from urllib.parse import unquote_to_bytes, urlsplit

from netblt._control import Cancel
from netblt._netblt import Call, Remote, Summary
from netblt._options import Options
from netblt._transfer import _SLICE, Readable
from netblt.errors import FileError, NotFoundError

_log = logging.getLogger("netblt")

_EPOCH = datetime.fromtimestamp(0, timezone.utc)

_AnyPath = Union[str, bytes, "os.PathLike[str]"]
_Local = Union[str, "os.PathLike[str]"]
_Data = Union[bytes, bytearray, memoryview, Path, Readable]

# To the end of a file.
_ALL = (1 << 64) - 1


class ObjectMeta(TypedDict):
    """What is known of a file: as in obstore."""

    #: Bytes that are not UTF-8 are escaped, as by ``os.fsdecode``.
    path: str
    #: The nearest that a ``datetime`` has, if it is before year 1 or after 9999.
    last_modified: datetime
    #: Bytes.
    size: int
    #: Changes whenever the time or the size does.
    e_tag: str
    version: None


class ListResult(TypedDict):
    """What is in a directory: directories, and files."""

    common_prefixes: List[str]
    objects: List[ObjectMeta]


@dataclass(frozen=True)
class GetResult:
    """A file: what it holds, and what is known of it."""

    meta: ObjectMeta
    _data: bytes

    def bytes(self) -> bytes:
        """All of it."""
        return self._data

    def __len__(self) -> int:
        return len(self._data)


@dataclass(frozen=True)
class Entry:
    """Something in a directory, whatever it is."""

    #: Bytes that are not UTF-8 are escaped, as by ``os.fsdecode``.
    name: str
    #: ``"file"``, ``"directory"``, ``"link"`` or ``"other"``.
    kind: str
    #: Bytes.
    size: int
    #: Nanoseconds since 1970.
    modified_ns: int
    #: Permission bits.
    mode: int


class Client:
    """A server of files at ``netblt://HOST[:PORT][/PATH]``; paths of calls begin at that path.

    It knows its user by ``key``, a file (by default ``~/.config/netblt/key``), or by ``ticket`` or
    ``ticket_file``, or the ticket in the variable ``NETBLT_TICKET``. A server that is met for the
    first time by key is remembered in ``known_servers``, and its fingerprint is logged as a warning
    of ``netblt``.

    What a client is pickled with are names of files: no key and no ticket. One that was given a
    ``ticket`` finds it in ``NETBLT_TICKET`` where it is unpickled.

    Every call has a twin for asyncio, with ``_async`` behind its name. Cancelling its task, or
    Ctrl-C, or ``cancel``, ends the request.
    """

    def __init__(
        self,
        url: str = "netblt:///",
        *,
        key: _Local | None = None,
        ticket: str | None = None,
        ticket_file: _Local | None = None,
        known_servers: _Local | None = None,
        options: Options | None = None,
        cancel: Cancel | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme != "netblt":
            raise ValueError(f"{url!r} is no netblt://HOST/PATH")
        self._url = url
        self._files = (_text(key), _text(ticket_file), _text(known_servers))
        self._options = options or Options()
        self._cancel = cancel
        self._prefix = _plain(unquote_to_bytes(os.fsencode(parts.path)))
        if ticket is None and key is None:
            if ticket_file is not None:
                ticket = Path(ticket_file).expanduser().read_text()
            else:
                ticket = os.environ.get("NETBLT_TICKET") or None
        remote = Remote(
            parts.hostname, parts.port, ticket, self._files[0], self._files[2], self._options
        )
        self._own = (os.getpid(), remote)
        _clients.add(self)

    @property
    def _remote(self) -> Remote:
        pid, remote = self._own
        if pid != os.getpid():
            # The parent's is neither used here nor dropped: it has threads and keys that are the
            # parent's alone.
            _parents.append(remote)
            remote = remote.fresh()
            self._own = (os.getpid(), remote)
        return remote

    def close(self) -> None:
        """Ends the session, and says so to the server. The next request begins another.

        Requests under way go on and are not waited for; the session ends with the last of them."""
        pid, remote = self._own
        if pid == os.getpid():
            remote.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self._url!r})"

    def __reduce__(self) -> Tuple[Any, ...]:
        return (_made_of, (self._url, *self._files, self._options))

    # What follows is each thing twice; what is asked is the same.

    def get(self, path: _AnyPath) -> GetResult:
        """All of a file, in memory."""
        return self._got(path, _run(self._read([(path, 0, _ALL)]), self._cancel))

    async def get_async(self, path: _AnyPath) -> GetResult:
        """:meth:`get` for asyncio."""
        return self._got(path, await _run_async(self._read([(path, 0, _ALL)]), self._cancel))

    def get_range(
        self, path: _AnyPath, *, start: int, end: int | None = None, length: int | None = None
    ) -> bytes:
        """The bytes of a file from ``start`` to before ``end``, or ``length`` of them; what lies
        beyond its end is not there."""
        pieces = [(path, start, _length(start, end, length))]
        return _all_data(_run(self._read(pieces), self._cancel))[0]

    async def get_range_async(
        self, path: _AnyPath, *, start: int, end: int | None = None, length: int | None = None
    ) -> bytes:
        """:meth:`get_range` for asyncio."""
        pieces = [(path, start, _length(start, end, length))]
        return _all_data(await _run_async(self._read(pieces), self._cancel))[0]

    def get_ranges(
        self,
        path: _AnyPath,
        *,
        starts: Sequence[int],
        ends: Sequence[int] | None = None,
        lengths: Sequence[int] | None = None,
    ) -> List[bytes]:
        """Several ranges of a file, with one connection."""
        pieces = _ranges(path, starts, ends, lengths)
        return _all_data(_run(self._read(pieces), self._cancel))

    async def get_ranges_async(
        self,
        path: _AnyPath,
        *,
        starts: Sequence[int],
        ends: Sequence[int] | None = None,
        lengths: Sequence[int] | None = None,
    ) -> List[bytes]:
        """:meth:`get_ranges` for asyncio."""
        pieces = _ranges(path, starts, ends, lengths)
        return _all_data(await _run_async(self._read(pieces), self._cancel))

    def read_pieces(
        self, pieces: Sequence[Tuple[_AnyPath, int, int | None]]
    ) -> List[Union[bytes, Exception]]:
        """Pieces of many files with one connection: each is a path, where it begins and how many
        bytes it has (``None``: all). What cannot be read is the exception that says why."""
        return _data(_run(self._read(_whole(pieces)), self._cancel))

    async def read_pieces_async(
        self, pieces: Sequence[Tuple[_AnyPath, int, int | None]]
    ) -> List[Union[bytes, Exception]]:
        """:meth:`read_pieces` for asyncio."""
        return _data(await _run_async(self._read(_whole(pieces)), self._cancel))

    def put(self, path: _AnyPath, data: _Data, *, overwrite: bool = True) -> Summary:
        """A file of these bytes, of a ``pathlib.Path`` here, or of what ``read(n)`` gives until it
        ends. It appears when it is whole and verified; directories above it are made. A server that
        is busy is asked again, for a minute, to take bytes or a ``Path``."""
        again = _again(data)
        try:
            return _summary(_run(self._put(path, again(), overwrite), self._cancel))
        except FileNotFoundError:
            if not self._above(path):
                raise
        self.make_directory(self._above(path), parents=True)
        return _summary(_run(self._put(path, again(), overwrite), self._cancel))

    async def put_async(self, path: _AnyPath, data: _Data, *, overwrite: bool = True) -> Summary:
        """:meth:`put` for asyncio."""
        again = _again(data)
        try:
            return _summary(await _run_async(self._put(path, again(), overwrite), self._cancel))
        except FileNotFoundError:
            if not self._above(path):
                raise
        await self.make_directory_async(self._above(path), parents=True)
        return _summary(await _run_async(self._put(path, again(), overwrite), self._cancel))

    def head(self, path: _AnyPath) -> ObjectMeta:
        """What is known of a file."""
        return self._file(path, _run(self._remote.stat(self._at(path)), self._cancel))

    async def head_async(self, path: _AnyPath) -> ObjectMeta:
        """:meth:`head` for asyncio."""
        call = self._remote.stat(self._at(path))
        return self._file(path, await _run_async(call, self._cancel))

    def stat(self, path: _AnyPath = "") -> Entry:
        """What stands there, directories and links too."""
        return _entry(_run(self._remote.stat(self._at(path)), self._cancel))

    async def stat_async(self, path: _AnyPath = "") -> Entry:
        """:meth:`stat` for asyncio."""
        return _entry(await _run_async(self._remote.stat(self._at(path)), self._cancel))

    def list(self, prefix: _AnyPath = "") -> List[ObjectMeta]:
        """All files in a directory and beneath; of a file, itself; none if nothing is there."""
        return self._objects(_run(self._remote.walk(self._at(prefix)), self._cancel))

    async def list_async(self, prefix: _AnyPath = "") -> List[ObjectMeta]:
        """:meth:`list` for asyncio."""
        call = self._remote.walk(self._at(prefix))
        return self._objects(await _run_async(call, self._cancel))

    def list_with_delimiter(self, prefix: _AnyPath = "") -> ListResult:
        """The directories and files in a directory."""
        return self._listed(prefix, _run(self._remote.list(self._at(prefix)), self._cancel))

    async def list_with_delimiter_async(self, prefix: _AnyPath = "") -> ListResult:
        """:meth:`list_with_delimiter` for asyncio."""
        call = self._remote.list(self._at(prefix))
        return self._listed(prefix, await _run_async(call, self._cancel))

    def entries(self, path: _AnyPath = "") -> List[Entry]:
        """All that is in a directory, links too; of anything else, itself."""
        found = _run(self._remote.list(self._at(path)), self._cancel)
        return [_entry(entry) for entry in found]

    async def entries_async(self, path: _AnyPath = "") -> List[Entry]:
        """:meth:`entries` for asyncio."""
        found = await _run_async(self._remote.list(self._at(path)), self._cancel)
        return [_entry(entry) for entry in found]

    def delete(
        self, paths: _AnyPath | Iterable[_AnyPath], *, directory: bool = False, tree: bool = False
    ) -> None:
        """Removes files and links; with ``directory`` empty directories too, with ``tree`` those
        with all that is in them."""
        for path in _several(paths):
            _run(self._remote.remove(self._at(path), directory, tree), self._cancel)

    async def delete_async(
        self, paths: _AnyPath | Iterable[_AnyPath], *, directory: bool = False, tree: bool = False
    ) -> None:
        """:meth:`delete` for asyncio."""
        for path in _several(paths):
            call = self._remote.remove(self._at(path), directory, tree)
            await _run_async(call, self._cancel)

    def copy(
        self, from_: _AnyPath, to: _AnyPath, *, overwrite: bool = True, tree: bool = False
    ) -> None:
        """Copies a file on the server, with ``tree`` a directory with all in it."""
        call = self._remote.copy(self._at(from_), self._at(to), tree, overwrite)
        _run(call, self._cancel)

    async def copy_async(
        self, from_: _AnyPath, to: _AnyPath, *, overwrite: bool = True, tree: bool = False
    ) -> None:
        """:meth:`copy` for asyncio."""
        call = self._remote.copy(self._at(from_), self._at(to), tree, overwrite)
        await _run_async(call, self._cancel)

    def rename(self, from_: _AnyPath, to: _AnyPath, *, overwrite: bool = True) -> None:
        """Gives something another name."""
        call = self._remote.rename(self._at(from_), self._at(to), overwrite)
        _run(call, self._cancel)

    async def rename_async(
        self, from_: _AnyPath, to: _AnyPath, *, overwrite: bool = True
    ) -> None:
        """:meth:`rename` for asyncio."""
        call = self._remote.rename(self._at(from_), self._at(to), overwrite)
        await _run_async(call, self._cancel)

    def make_directory(self, path: _AnyPath, *, parents: bool = False) -> None:
        """Makes a directory; with ``parents`` those above it too, and it may exist."""
        _run(self._remote.make_directory(self._at(path), parents), self._cancel)

    async def make_directory_async(self, path: _AnyPath, *, parents: bool = False) -> None:
        """:meth:`make_directory` for asyncio."""
        await _run_async(self._remote.make_directory(self._at(path), parents), self._cancel)

    def download(
        self, path: _AnyPath, into: _Local, *, name: str | None = None, overwrite: bool = True
    ) -> Summary:
        """A file or directory comes into the directory ``into``, under ``name`` if it is not to
        keep its own. What has arrived of one that breaks is gone on with by the same call."""
        call = self._download(path, into, name, overwrite)
        return _summary(_run(call, self._cancel))

    async def download_async(
        self, path: _AnyPath, into: _Local, *, name: str | None = None, overwrite: bool = True
    ) -> Summary:
        """:meth:`download` for asyncio."""
        call = self._download(path, into, name, overwrite)
        return _summary(await _run_async(call, self._cancel))

    def upload(
        self, paths: _Local | Iterable[_Local], path: _AnyPath = "", *, overwrite: bool = True
    ) -> Summary:
        """Files and directories here go into a directory that exists, or a single one to a name
        that stands for nothing yet. A server that is busy is asked again, for a minute."""
        call = self._remote.put(_locals(paths), self._at(path), overwrite)
        return _summary(_run(call, self._cancel))

    async def upload_async(
        self, paths: _Local | Iterable[_Local], path: _AnyPath = "", *, overwrite: bool = True
    ) -> Summary:
        """:meth:`upload` for asyncio."""
        call = self._remote.put(_locals(paths), self._at(path), overwrite)
        return _summary(await _run_async(call, self._cancel))

    def _at(self, path: _AnyPath) -> bytes:
        path = _plain(os.fsencode(path))
        return b"/".join(part for part in (self._prefix, path) if part)

    def _above(self, path: _AnyPath) -> bytes:
        return _plain(os.fsencode(path)).rpartition(b"/")[0]

    def _below(self, path: bytes) -> str:
        """A path from the server's root as calls have it."""
        own = path[len(self._prefix) + 1 :] if self._prefix else path
        return os.fsdecode(own)

    def _read(self, pieces: Sequence[Tuple[_AnyPath, int, int]]) -> Call:
        return self._remote.read([(self._at(path), at, count) for path, at, count in pieces])

    def _put(self, path: _AnyPath, data: bytes | Path | Readable, overwrite: bool) -> Call:
        at = self._at(path)
        if isinstance(data, Path):
            if data.is_dir():
                return self._remote.put([str(data)], at, overwrite)
            return self._remote.put_path(str(data), at, overwrite)
        name = os.fsdecode(at.rpartition(b"/")[2]) or "stream"
        if isinstance(data, bytes):
            return self._remote.put_bytes(data, name, at, overwrite)
        return self._remote.put_stream(data, name, at, overwrite)

    def _download(
        self, path: _AnyPath, into: _Local, name: str | None, overwrite: bool
    ) -> Call:
        at = self._at(path)
        name = name or os.fsdecode(at.rpartition(b"/")[2]) or "root"
        return self._remote.get(at, os.fspath(into), name, True, overwrite)

    def _got(self, path: _AnyPath, found: Any) -> GetResult:
        (piece,) = found
        if isinstance(piece, Exception):
            raise piece
        entry, data = piece
        return GetResult(_meta(os.fsdecode(_plain(os.fsencode(path))), entry), data)

    def _file(self, path: _AnyPath, entry: Any) -> ObjectMeta:
        own = os.fsdecode(_plain(os.fsencode(path)))
        if entry[1] != "file":
            raise NotFoundError(f"{own}: no file but a {entry[1]}", 11, False, 2, own)
        return _meta(own, entry)

    def _objects(self, entries: Any) -> List[ObjectMeta]:
        return [_meta(self._below(entry[0]), entry) for entry in entries if entry[1] == "file"]

    def _listed(self, prefix: _AnyPath, entries: Any) -> ListResult:
        above = os.fsdecode(_plain(os.fsencode(prefix)))
        found: ListResult = {"common_prefixes": [], "objects": []}
        for entry in entries:
            name = os.fsdecode(entry[0])
            path = f"{above}/{name}" if above else name
            if entry[1] == "directory":
                found["common_prefixes"].append(path)
            elif entry[1] == "file":
                found["objects"].append(_meta(path, entry))
        return found


_clients: weakref.WeakSet[Client] = weakref.WeakSet()
_parents: List[Remote] = []


@atexit.register
def _close_all() -> None:
    for client in list(_clients):
        client.close()


def _made_of(
    url: str,
    key: str | None,
    ticket_file: str | None,
    known_servers: str | None,
    options: Options,
) -> Client:
    return Client(
        url, key=key, ticket_file=ticket_file, known_servers=known_servers, options=options
    )


def _text(path: _Local | None) -> str | None:
    return None if path is None else os.path.expanduser(os.fspath(path))


def _plain(path: bytes) -> bytes:
    """Without slashes that say nothing; parts that lead up are refused by the library."""
    return b"/".join(part for part in path.split(b"/") if part not in (b"", b"."))


def _meta(path: str, entry: Any) -> ObjectMeta:
    _, _, size, seconds, nanos, _ = entry
    when = _when(seconds, nanos)
    tag = f"{seconds:x}-{nanos:x}-{size:x}"
    return {"path": path, "last_modified": when, "size": size, "e_tag": tag, "version": None}


def _when(seconds: int, nanos: int) -> datetime:
    """A time since 1970, or the nearest that a ``datetime`` has."""
    try:
        return _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)
    except OverflowError:
        nearest = datetime.min if seconds < 0 else datetime.max
        return nearest.replace(tzinfo=timezone.utc)


def _entry(entry: Any) -> Entry:
    name, kind, size, seconds, nanos, mode = entry
    return Entry(os.fsdecode(name), kind, size, seconds * 10**9 + nanos, mode)


def _summary(answer: Any) -> Summary:
    assert isinstance(answer, Summary)
    return answer


def _data(found: Any) -> List[Union[bytes, Exception]]:
    return [piece if isinstance(piece, Exception) else piece[1] for piece in found]


def _all_data(found: Any) -> List[bytes]:
    pieces = []
    for piece in _data(found):
        if isinstance(piece, Exception):
            raise piece
        pieces.append(piece)
    return pieces


def _length(start: int, end: int | None, length: int | None) -> int:
    if (end is None) == (length is None):
        raise ValueError("one of end and length is needed")
    count = length if end is None else end - start
    if count is None or count < 0 or start < 0:
        raise ValueError("a range has no negative length or place")
    return count


def _ranges(
    path: _AnyPath,
    starts: Sequence[int],
    ends: Sequence[int] | None,
    lengths: Sequence[int] | None,
) -> List[Tuple[_AnyPath, int, int]]:
    if (ends is None) == (lengths is None):
        raise ValueError("one of ends and lengths is needed")
    others = ends if ends is not None else lengths
    if others is None or len(others) != len(starts):
        raise ValueError("there are not as many ends as starts")
    pieces = []
    for start, other in zip(starts, others):
        end, length = (other, None) if ends is not None else (None, other)
        pieces.append((path, start, _length(start, end, length)))
    return pieces


def _whole(
    pieces: Sequence[Tuple[_AnyPath, int, int | None]],
) -> List[Tuple[_AnyPath, int, int]]:
    return [(path, at, _ALL if count is None else count) for path, at, count in pieces]


def _again(data: _Data) -> Any:
    """Gives it from its beginning, as often as that can be had."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        held = bytes(data)
        return lambda: held
    if isinstance(data, Path) or not hasattr(data, "seekable") or not data.seekable():
        return lambda: data
    file: Any = data
    start = file.tell()

    def rewound() -> Any:
        file.seek(start)
        return file

    return rewound


def _several(paths: _AnyPath | Iterable[_AnyPath]) -> Iterable[_AnyPath]:
    return [paths] if isinstance(paths, (str, bytes, os.PathLike)) else paths


def _locals(paths: _Local | Iterable[_Local]) -> List[str]:
    several = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    return [os.fspath(path) for path in several]


def _ended(call: Call) -> Any:
    for text in call.warnings():
        _log.warning("%s", text)
    return call.result()


def _run(call: Call, cancel: Cancel | None) -> Any:
    if cancel is not None:
        cancel._add(call)
    try:
        while not call.wait(_SLICE):
            pass
    except BaseException:
        call.cancel()
        while True:
            try:
                if call.wait(_SLICE):
                    break
            except BaseException:
                call.hurry()
        raise
    finally:
        if cancel is not None:
            cancel._discard(call)
    return _ended(call)


async def _run_async(call: Call, cancel: Cancel | None) -> Any:
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    descriptor = call.fileno()
    loop.add_reader(descriptor, over.set)
    if cancel is not None:
        cancel._add(call)
    try:
        await over.wait()
    except BaseException:
        call.cancel()
        while not over.is_set():
            try:
                await over.wait()
            except BaseException:
                call.hurry()
        raise
    finally:
        loop.remove_reader(descriptor)
        if cancel is not None:
            cancel._discard(call)
    return _ended(call)
