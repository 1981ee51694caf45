"""Moves large data between machines over long, fat or lossy paths: encrypted and verified.

One end listens and gets a ticket to give away, the other connects with it; either may send::

    netblt.send("photos", on_ticket=print)           # here
    netblt.receive("downloads", ticket)              # there

Of a server (``netblt serve``) a :class:`Client` asks for files, pieces of them, and what else one
does with files.

Each has a twin for asyncio, ``send_async`` and ``receive_async``. What goes wrong is a
:class:`NetbltError`, and mostly one of Python's own exceptions as well.
"""

from netblt._client import Client, GetResult, ListResult, ObjectMeta
from netblt._control import Cancel
from netblt._copy import copy, copy_async
from netblt._netblt import Control, Progress, Summary, __version__
from netblt._options import Options
from netblt._transfer import receive, receive_async, send, send_async
from netblt.errors import NetbltError

__all__ = [
    "Cancel",
    "Client",
    "Control",
    "GetResult",
    "ListResult",
    "NetbltError",
    "ObjectMeta",
    "Options",
    "Progress",
    "Summary",
    "__version__",
    "copy",
    "copy_async",
    "receive",
    "receive_async",
    "send",
    "send_async",
]
