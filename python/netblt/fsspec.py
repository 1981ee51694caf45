"""Servers of files for fsspec: ``netblt://HOST[:PORT]/PATH``.

What it asks goes through :class:`netblt.Client`, and so through one session; many ranges of many
files are one request. It needs fsspec, which ``pip install netblt[fsspec]`` brings.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any, Dict, List, Tuple
from urllib.parse import quote, urlsplit

from fsspec.asyn import AsyncFileSystem, sync  # type: ignore[import-untyped]
from fsspec.spec import AbstractBufferedFile  # type: ignore[import-untyped]

from netblt._client import Client, Entry, _when
from netblt.errors import NotFoundError

_Info = Dict[str, Any]


class NetbltFileSystem(AsyncFileSystem):  # type: ignore[misc]
    """A server of files. ``host`` and ``port`` say where, without a host the ticket does; the rest
    is what :class:`netblt.Client` takes.

    What is pickled are names of files: a ``ticket`` is not among it, and is found in the variable
    ``NETBLT_TICKET`` where the file system is unpickled.
    """

    protocol = "netblt"
    root_marker = "/"
    async_impl = True
    mirror_sync_methods = True

    def __init__(
        self, host: str | None = None, port: int | None = None, **more: Any
    ) -> None:
        own = {name: more.pop(name) for name in _OWN if name in more}
        super().__init__(**more)
        where = "" if host is None else f"[{host}]" if ":" in host else quote(host)
        where += "" if port is None else f":{port}"
        self._client = Client(f"netblt://{where}/", **own)

    @property
    def storage_options(self) -> Dict[str, Any]:
        """What fsspec pickles and writes down: no secrets."""
        return self._kept

    @storage_options.setter
    def storage_options(self, options: Dict[str, Any]) -> None:
        secret = ("ticket", "cancel")
        self._kept = {name: value for name, value in options.items() if name not in secret}

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = os.fspath(path)
        if path.startswith("netblt://"):
            path = path[len("netblt://") :].partition("/")[2]
        parts = [part for part in path.split("/") if part not in ("", ".")]
        return "/" + "/".join(parts)

    @classmethod
    def _get_kwargs_from_urls(cls, path: str) -> Dict[str, Any]:
        parts = urlsplit(path)
        found = {"host": parts.hostname, "port": parts.port}
        return {name: value for name, value in found.items() if value is not None}

    async def _info(self, path: str, **_: Any) -> _Info:
        path = self._strip_protocol(path)
        return _shown(path, await self._client.stat_async(path))

    async def _ls(self, path: str, detail: bool = True, **_: Any) -> List[Any]:
        path = self._strip_protocol(path)
        if not detail or (entry := await self._client.stat_async(path)).kind == "directory":
            found = await self._client.entries_async(path)
            above = path.rstrip("/")
            infos = [_shown(f"{above}/{entry.name}", entry) for entry in found]
        else:
            infos = [_shown(path, entry)]
        return infos if detail else sorted(info["name"] for info in infos)

    async def _cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        path = self._strip_protocol(path)
        if (start or 0) < 0 or (end or 0) < 0:
            start, end = await self._from_the_end(path, start, end)
        (found,) = await self._client.read_pieces_async([_piece(path, start, end)])
        if isinstance(found, Exception):
            raise found
        return found

    async def _cat_ranges(
        self,
        paths: List[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        batch_size: int | None = None,
        on_error: str = "return",
        **_: Any,
    ) -> List[Any]:
        count = len(paths)
        starts = starts if isinstance(starts, (list, tuple)) else [starts] * count
        ends = ends if isinstance(ends, (list, tuple)) else [ends] * count
        if not len(starts) == len(ends) == count:
            raise ValueError("there are not as many starts and ends as paths")
        pieces = []
        for path, start, end in zip(paths, starts, ends):
            path = self._strip_protocol(path)
            if (start or 0) < 0 or (end or 0) < 0:
                start, end = await self._from_the_end(path, start, end)
            pieces.append(_piece(path, start, end))
        found = await self._client.read_pieces_async(pieces)
        if on_error == "raise":
            for one in found:
                if isinstance(one, Exception):
                    raise one
        return list(found)

    async def _from_the_end(
        self, path: str, start: int | None, end: int | None
    ) -> Tuple[int, int]:
        size = (await self._client.stat_async(path)).size
        first, last, _ = slice(start, end).indices(size)
        return first, last

    async def _pipe_file(
        self, path: str, value: bytes, mode: str = "overwrite", **_: Any
    ) -> None:
        await self._put_data(path, value, mode != "create")

    async def _put_data(self, path: str, data: Any, overwrite: bool) -> None:
        await self._client.put_async(self._strip_protocol(path), data, overwrite=overwrite)
        self.invalidate_cache()

    async def _put_file(
        self, lpath: str, rpath: str, mode: str = "overwrite", **_: Any
    ) -> None:
        if os.path.isdir(lpath):
            await self._makedirs(rpath, exist_ok=True)
            return
        with open(lpath, "rb") as file:
            await self._put_data(rpath, file, mode != "create")

    async def _get_file(self, rpath: str, lpath: str, **_: Any) -> None:
        rpath = self._strip_protocol(rpath)
        if (await self._client.stat_async(rpath)).kind == "directory":
            os.makedirs(lpath, exist_ok=True)
            return
        directory, name = os.path.split(os.path.abspath(lpath))
        os.makedirs(directory, exist_ok=True)
        await self._client.download_async(rpath, directory, name=name)

    async def _cp_file(self, path1: str, path2: str, **_: Any) -> None:
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if (await self._client.stat_async(path1)).kind == "directory":
            await self._makedirs(path2, exist_ok=True)
            return
        try:
            await self._client.copy_async(path1, path2)
        except FileNotFoundError:
            await self._makedirs(self._parent(path2), exist_ok=True)
            await self._client.copy_async(path1, path2)

    async def _rm_file(self, path: str, **_: Any) -> None:
        await self._client.delete_async(self._strip_protocol(path))

    async def _rm(self, path: Any, recursive: bool = False, **_: Any) -> None:
        for one in await self._expand_path(path):
            await self._client.delete_async(one, tree=recursive)
        self.invalidate_cache()

    async def _rmdir(self, path: str) -> None:
        path = self._strip_protocol(path)
        if (await self._client.stat_async(path)).kind != "directory":
            raise NotADirectoryError(path)
        await self._client.delete_async(path, directory=True)

    def rmdir(self, path: str) -> None:
        """Removes an empty directory."""
        sync(self.loop, self._rmdir, path)

    async def _mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        path = self._strip_protocol(path)
        if create_parents and self._parent(path) != "/":
            await self._makedirs(self._parent(path), exist_ok=True)
        await self._client.make_directory_async(path)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        path = self._strip_protocol(path)
        if not exist_ok and await self._exists(path):
            raise FileExistsError(path)
        await self._client.make_directory_async(path, parents=True)

    def mv(self, path1: Any, path2: Any, recursive: bool = False, **more: Any) -> None:
        """Gives something another name on the server; patterns and lists are copied."""
        if isinstance(path1, (list, tuple)) or any(mark in path1 for mark in "*?["):
            super().mv(path1, path2, recursive=recursive, **more)
            return
        path1, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.isdir(path1) and not recursive:
            raise ValueError("a directory is moved with recursive=True")
        if self.isdir(target):
            target = f"{target.rstrip('/')}/{path1.rpartition('/')[2]}"
        self._client.rename(path1, target)
        self.invalidate_cache()

    def created(self, path: str) -> Any:
        """When it was changed last: nobody keeps more."""
        return self.modified(path)

    def modified(self, path: str) -> Any:
        """When it was changed last."""
        return _when(*divmod(int(self.info(path)["mtime"] * 10**9), 10**9))

    def _open(self, path: str, mode: str = "rb", **more: Any) -> Any:
        more.pop("autocommit", None)
        # Who may not have it hears so before writing; nobody else takes its place in between.
        if mode == "xb" and self.exists(path):
            raise FileExistsError(path)
        return NetbltFile(self, path, mode, **more)


_OWN = ("key", "ticket", "ticket_file", "known_servers", "options", "cancel")


class NetbltFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file there: read by ranges, or written, and then it appears when it is closed."""

    def __init__(self, fs: NetbltFileSystem, path: str, mode: str, **more: Any) -> None:
        self._written: Any = None
        if mode not in ("rb", "wb", "xb"):
            raise NotImplementedError(f"{mode}: a file is read (rb) or written as a whole (wb, xb)")
        super().__init__(fs, path, mode, **more)

    def _fetch_range(self, start: int, end: int) -> bytes:
        data: bytes = self.fs.cat_file(self.path, start=start, end=end)
        return data

    def _initiate_upload(self) -> None:
        self._written = tempfile.SpooledTemporaryFile(max_size=64 << 20)

    def _upload_chunk(self, final: bool = False) -> bool:
        self.buffer.seek(0)
        self._written.write(self.buffer.read())
        if final:
            with self._written as written:
                written.seek(0)
                self.fs._client.put(self.path, written, overwrite=self.mode != "xb")
        return True

    def discard(self) -> None:
        """Nothing of it appears."""
        if self._written is not None:
            self._written.close()


def _piece(path: str, start: int | None, end: int | None) -> Tuple[str, int, int | None]:
    first = start or 0
    return path, first, None if end is None else max(0, end - first)


def _shown(path: str, entry: Entry) -> _Info:
    kind = "other" if entry.kind == "link" else entry.kind
    found = {"name": path, "type": kind, "size": entry.size if kind == "file" else 0}
    return {**found, "mtime": entry.modified_ns / 1e9, "mode": entry.mode}
