"""Sending and receiving, waited for by a thread or by an event loop.

What a transfer tells is handed to the callbacks of whoever waits for it, on that one's thread, so
that what they raise ends the transfer and comes out of the call.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any, Callable, Optional, Protocol, Sequence, Union

from netblt._control import Cancel
from netblt._netblt import Control, Job, Progress, Summary
from netblt._options import Options

_log = logging.getLogger("netblt")

# Seconds for which a wait does not look for signals.
_SLICE = 0.1


class Readable(Protocol):
    """Anything that gives bytes until it ends."""

    def read(self, size: int, /) -> bytes: ...


class Writable(Protocol):
    """Anything that takes bytes."""

    def write(self, data: bytes, /) -> Optional[int]: ...


_Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
_Bytes = Union[bytes, bytearray, memoryview]
Source = Union[str, "os.PathLike[str]", "os.PathLike[bytes]", Sequence[_Path], _Bytes, Readable]
Destination = Union[str, "os.PathLike[str]", "os.PathLike[bytes]", bytearray, Writable]
OnTicket = Callable[[str], object]
OnProgress = Callable[[Progress], object]
OnWarning = Callable[[str], object]


def send(
    source: Source,
    ticket: str | None = None,
    *,
    name: str | None = None,
    on_ticket: OnTicket | None = None,
    progress: OnProgress | None = None,
    on_warning: OnWarning | None = None,
    cancel: Cancel | None = None,
    control: Control | None = None,
    options: Options | None = None,
) -> Summary:
    """Sends ``source`` and waits until the receiver has stored and verified it.

    ``source`` is a path, several, bytes, or anything with ``read(n)``, which is called on a thread
    of the transfer's; ``name`` is that of bytes and files. With ``ticket`` it connects; without, it
    listens and calls ``on_ticket`` with the ticket that the other side needs. ``progress`` is
    called about ten times a second, ``on_warning`` with what ends nothing (by default it is logged
    as ``netblt``). ``KeyboardInterrupt``, what a callback raises, or ``cancel`` stops the transfer;
    ``control`` changes its rate while it runs, and pauses it.
    """
    job = _sending(source, ticket, name, on_ticket, options, control)
    return _run(job, _Handler(on_ticket, progress, on_warning), cancel)


def receive(
    destination: Destination,
    ticket: str | None = None,
    *,
    on_ticket: OnTicket | None = None,
    progress: OnProgress | None = None,
    on_warning: OnWarning | None = None,
    cancel: Cancel | None = None,
    control: Control | None = None,
    options: Options | None = None,
) -> Summary:
    """Receives into ``destination`` and waits until all is stored and verified.

    ``destination`` is a directory that exists, or for one file or stream a ``bytearray``, which is
    appended to, or anything with ``write(bytes)``, which is called on a thread of the transfer's:
    what was written cannot be taken back, so look at ``Summary.verified``. The rest is as with
    :func:`send`.
    """
    job = _receiving(destination, ticket, on_ticket, options, control)
    return _run(job, _Handler(on_ticket, progress, on_warning), cancel)


async def send_async(
    source: Source,
    ticket: str | None = None,
    *,
    name: str | None = None,
    on_ticket: OnTicket | None = None,
    progress: OnProgress | None = None,
    on_warning: OnWarning | None = None,
    cancel: Cancel | None = None,
    control: Control | None = None,
    options: Options | None = None,
) -> Summary:
    """:func:`send` for asyncio: callbacks are called by the event loop. Cancelling the task stops
    the transfer, and the task ends when it has ended."""
    job = _sending(source, ticket, name, on_ticket, options, control)
    return await _run_async(job, _Handler(on_ticket, progress, on_warning), cancel)


async def receive_async(
    destination: Destination,
    ticket: str | None = None,
    *,
    on_ticket: OnTicket | None = None,
    progress: OnProgress | None = None,
    on_warning: OnWarning | None = None,
    cancel: Cancel | None = None,
    control: Control | None = None,
    options: Options | None = None,
) -> Summary:
    """:func:`receive` for asyncio: callbacks are called by the event loop. Cancelling the task
    stops the transfer, and the task ends when it has ended."""
    job = _receiving(destination, ticket, on_ticket, options, control)
    return await _run_async(job, _Handler(on_ticket, progress, on_warning), cancel)


def _sending(
    source: Source,
    ticket: str | None,
    name: str | None,
    on_ticket: OnTicket | None,
    options: Options | None,
    control: Control | None,
) -> Job:
    _needs_somebody(ticket, on_ticket)
    what: bytes | bytearray | list[str] | Readable
    if isinstance(source, (str, os.PathLike)):
        what = [os.fsdecode(source)]
    elif isinstance(source, (bytes, bytearray)):
        what = source
    elif isinstance(source, memoryview):
        what = bytes(source)
    elif hasattr(source, "read"):
        what = source
        name = name or _name_of(source)
    else:
        what = [os.fsdecode(path) for path in source]
    return Job.send(what, name, ticket, options or Options(), control)


def _receiving(
    destination: Destination,
    ticket: str | None,
    on_ticket: OnTicket | None,
    options: Options | None,
    control: Control | None,
) -> Job:
    _needs_somebody(ticket, on_ticket)
    into: str | Writable
    if isinstance(destination, (str, os.PathLike)):
        into = os.fsdecode(destination)
    elif isinstance(destination, bytearray):
        into = _Appended(destination)
    elif hasattr(destination, "write"):
        into = destination
    else:
        kind = type(destination).__name__
        raise TypeError(f"cannot receive into {kind}: a path, a bytearray or write() is needed")
    return Job.receive(into, ticket, options or Options(), control)


def _needs_somebody(ticket: str | None, on_ticket: OnTicket | None) -> None:
    if ticket is None and on_ticket is None:
        raise ValueError("without a ticket to go to, on_ticket must be there to give one away")


def _name_of(file: object) -> str | None:
    """The last part of an open file's name, if it has one."""
    name = getattr(file, "name", None)
    return os.path.basename(name) or None if isinstance(name, str) else None


class _Appended:
    def __init__(self, to: bytearray) -> None:
        self._to = to

    def write(self, data: bytes, /) -> None:
        self._to += data


class _Handler:
    """Hands what a transfer tells to whom it concerns."""

    def __init__(
        self,
        on_ticket: OnTicket | None,
        progress: OnProgress | None,
        on_warning: OnWarning | None,
    ) -> None:
        self._on_ticket = on_ticket
        self._progress = progress
        self._on_warning = on_warning

    def __call__(self, kind: str, what: Any) -> None:
        if kind == "ticket":
            if self._on_ticket is not None:
                self._on_ticket(what)
        elif kind == "progress":
            if self._progress is not None:
                self._progress(what)
        elif kind == "warning":
            if self._on_warning is not None:
                self._on_warning(what)
            else:
                _log.warning("%s", what)
        else:
            _log.info("%s", kind if what is None else f"{kind}: {what}")


def _run(job: Job, handle: _Handler, cancel: Cancel | None) -> Summary:
    if cancel is not None:
        cancel._add(job)
    try:
        while True:
            event = job.next(_SLICE)
            if event is None:
                continue
            if event[0] == "over":
                return job.finish()
            handle(*event)
    except BaseException:
        _stop(job)
        raise
    finally:
        if cancel is not None:
            cancel._discard(job)
        job.close()


def _stop(job: Job) -> None:
    """Waits until it has stopped; whoever interrupts that is in a hurry."""
    job.cancel()
    while True:
        try:
            event = job.next(_SLICE)
            if event is not None and event[0] == "over":
                return
        except BaseException:
            job.hurry()


async def _run_async(job: Job, handle: _Handler, cancel: Cancel | None) -> Summary:
    loop, news = asyncio.get_running_loop(), asyncio.Event()
    descriptor = job.fileno()
    loop.add_reader(descriptor, news.set)
    if cancel is not None:
        cancel._add(job)
    try:
        while True:
            event = job.poll()
            if event is None:
                await news.wait()
                news.clear()
            elif event[0] == "over":
                return job.finish()
            else:
                handle(*event)
    except BaseException:
        await _stop_async(job, news)
        raise
    finally:
        loop.remove_reader(descriptor)
        if cancel is not None:
            cancel._discard(job)
        job.close()


async def _stop_async(job: Job, news: asyncio.Event) -> None:
    job.cancel()
    while True:
        event = job.poll()
        if event is None:
            try:
                await news.wait()
            except BaseException:
                job.hurry()
            news.clear()
        elif event[0] == "over":
            return
