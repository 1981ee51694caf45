"""Moves large data between machines over long, fat or lossy paths: encrypted and verified.

One end listens and gets a ticket to give away, the other connects with it; either may send::

    netblt.send("photos", on_ticket=print)           # here
    netblt.receive("downloads", ticket)              # there

Each has a twin for asyncio, ``send_async`` and ``receive_async``. What goes wrong is a
:class:`NetbltError`, and mostly one of Python's own exceptions as well.
"""

from netblt._control import Cancel
from netblt._netblt import Control, Progress, Summary
from netblt._options import Options
from netblt._transfer import receive, receive_async, send, send_async
from netblt.errors import NetbltError

__all__ = [
    "Cancel",
    "Control",
    "NetbltError",
    "Options",
    "Progress",
    "Summary",
    "receive",
    "receive_async",
    "send",
    "send_async",
]
