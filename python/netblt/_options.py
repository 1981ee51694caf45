"""What a transfer is told beyond what moves, and where the other end is."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal, Sequence, Union

Path = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class Options:
    """Everything about a transfer but what moves, and where the other end is.

    What is not given fits every path. Each end has its own.
    """

    #: Local address to bind.
    bind: str | None = None
    #: Local UDP port; 0 lets the system choose.
    port: int = 0
    #: Addresses to put into the ticket instead of this machine's own.
    advertise: Sequence[str] = ()
    #: 4 or 6; ``None`` for whatever works.
    ip_version: Literal[4, 6] | None = None
    #: Largest IP packets, in bytes; ``None``: found out.
    mtu: int | None = None
    #: Seconds to wait for a peer that is silent.
    death_timer: float = 60.0
    #: Seconds to wait for somebody to come while listening; ``None``: until stopped.
    wait: float | None = None
    #: How a sender chooses its rate: ``"fair"`` finds it and shares the path, ``"background"`` yields
    #: to all others, ``"aggressive"`` takes more than its share, ``"cubic"`` is RFC 9438 and answers
    #: every loss as congestion, ``"fixed"`` is RFC 998's way and yields to no other traffic.
    policy: Literal["fair", "background", "aggressive", "cubic", "fixed"] = "fair"
    #: Bits a second: the rate if ``fixed``, else a ceiling.
    rate: int | None = None
    #: What a sender spends so that losses cost no round trip: ``"auto"`` repairs the end of a
    #: transfer where that saves time, a number is that many percent more of everything.
    fec: int | Literal["auto", "never"] = "auto"
    #: Connections to go over, 1 to 32, each the work of a processor of its own at either end; the
    #: smaller of both counts. ``"auto"``: one, and more while a processor is what limits, others are
    #: idle, and the last ones brought something. Servers of files take one.
    streams: int | Literal["auto"] = "auto"
    #: A sender remembers the rate of a path for a day, in ``~/.cache/netblt/paths``.
    path_cache: bool = False
    #: Replace files that exist.
    overwrite: bool = False
    #: All or nothing.
    atomic: bool = False
    #: What to do with what is left of a transfer that was broken off.
    resume: Literal["auto", "never", "verify"] = "auto"
    #: Read every file again from the disk before it gets its name.
    verify: bool = False
    #: Keep the sender's permission bits whatever the umask says.
    preserve: bool = False
    #: Give files the sender's times of modification.
    keep_times: bool = True
    #: Send or set owner and group.
    owner: bool = False
    #: Send or set extended attributes of the namespace ``user``.
    xattrs: bool = False
    #: Send or set POSIX access lists.
    acls: bool = False
    #: Patterns of what a sender leaves out of directories.
    exclude: Sequence[str] = ()
    #: A sender follows symbolic links in directories.
    follow: bool = False
    #: A sender sends a file that changes while it is read as it was read, with a warning.
    allow_changes: bool = False
    #: The name that the one file gets at the receiver.
    rename: str | None = None
    #: Most files and directories to receive.
    max_files: int | None = None
    #: Most file bytes to receive.
    max_bytes: int | None = None
    #: Write names and BLAKE3 digests here, as ``b3sum`` does.
    manifest: Path | None = None
    #: Write trace events (JSON lines) here.
    trace: Path | None = None
    #: Bytes in a buffer, a power of two.
    buffer_bytes: int | None = None
    #: How many buffers there are; without it 64, and more where the path holds more.
    buffers: int | None = None
    #: Bytes of buffers at most, where the path holds more than there are at first.
    buffer_memory: int | None = None
