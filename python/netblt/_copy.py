"""Copies between a server of files and here, and within a server."""

from __future__ import annotations

import os
from typing import Any, Dict
from urllib.parse import unquote_to_bytes, urlsplit

from netblt._client import Client
from netblt._netblt import Summary


def copy(source: str, destination: str, *, tree: bool = True, **more: Any) -> Summary | None:
    """What ``netblt cp`` does with servers: from ``netblt://HOST/PATH`` into a directory here, from
    here to there, or from there to there on one server, which copies by itself and has no
    :class:`Summary`. ``more`` is what :class:`Client` takes."""
    there = [_is_url(text) for text in (source, destination)]
    if all(there):
        _one_server(source, destination)
        _root(source, more).copy(_path(source), _path(destination), tree=tree)
        return None
    if there[0]:
        return _root(source, more).download(_path(source), destination)
    if there[1]:
        return _root(destination, more).upload(source, _path(destination))
    raise ValueError("neither is netblt://HOST/PATH: shutil copies here")


async def copy_async(
    source: str, destination: str, *, tree: bool = True, **more: Any
) -> Summary | None:
    """:func:`copy` for asyncio."""
    there = [_is_url(text) for text in (source, destination)]
    if all(there):
        _one_server(source, destination)
        client = _root(source, more)
        await client.copy_async(_path(source), _path(destination), tree=tree)
        return None
    if there[0]:
        return await _root(source, more).download_async(_path(source), destination)
    if there[1]:
        return await _root(destination, more).upload_async(source, _path(destination))
    raise ValueError("neither is netblt://HOST/PATH: shutil copies here")


def _is_url(text: str) -> bool:
    return text.startswith("netblt://")


def _one_server(source: str, destination: str) -> None:
    if urlsplit(source).netloc != urlsplit(destination).netloc:
        raise ValueError("they are on two servers, between which nothing is copied")


def _root(url: str, more: Dict[str, Any]) -> Client:
    return Client(f"netblt://{urlsplit(url).netloc}/", **more)


def _path(url: str) -> bytes:
    return unquote_to_bytes(os.fsencode(urlsplit(url).path))
