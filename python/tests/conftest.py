"""What tests share: two ends in one process, and what a process holds."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Iterator

import netblt
import pytest

HERE = netblt.Options(bind="127.0.0.1")
# In the background of a shell interrupts are ignored, also by whatever is started here.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Seconds that anything may take; `pytest.ini` ends what takes twice as long.
LIMIT = 60


class Ends:
    """Two ends, each waited for by a thread of its own."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(4)
        self._cancel = netblt.Cancel()

    def __enter__(self) -> Ends:
        return self

    def __exit__(self, *_: object) -> None:
        # A test that failed half-way leaves an end that waits for the other.
        self._cancel.cancel()
        self._pool.shutdown()

    def listen(
        self, call: Callable[..., netblt.Summary], what: Any, **more: Any
    ) -> tuple[Future[netblt.Summary], str]:
        """Begins a transfer that listens; answers its ticket."""
        ticket: Future[str] = Future()
        more.setdefault("options", HERE)
        more.setdefault("cancel", self._cancel)
        end = self._pool.submit(call, what, on_ticket=ticket.set_result, **more)
        end.add_done_callback(lambda end: _no_ticket(end, ticket))
        return end, ticket.result(LIMIT)

    def connect(
        self, call: Callable[..., netblt.Summary], what: Any, ticket: str, **more: Any
    ) -> Future[netblt.Summary]:
        more.setdefault("cancel", self._cancel)
        return self._pool.submit(call, what, ticket, **more)


def _no_ticket(end: Future[netblt.Summary], ticket: Future[str]) -> None:
    if not ticket.done():
        ticket.set_exception(end.exception() or AssertionError("it ended without a ticket"))


@pytest.fixture
def ends() -> Iterator[Ends]:
    with Ends() as ends:
        yield ends


def program() -> str:
    """The program beside this Python, as it was installed."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = shutil.which("netblt", path=path)
    assert found is not None, "the program netblt is not installed"
    return found


class Served:
    """A server of files, by the program that comes with the package."""

    def __init__(self, place: Path, *options: str) -> None:
        (place / "root").mkdir()
        self.root = place / "root"
        here = ["--json", "--bind", "127.0.0.1", "--port", "0"]
        self.proof: dict[str, Any] = {"ticket_file": str(place / "ticket")}
        own = ["serve", "--root", str(self.root), "--ticket-file", self.proof["ticket_file"]]
        self._process = subprocess.Popen(
            [program(), *own, *here, *options], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        told = json.loads(self._process.stdout.readline())
        port = int(told["data"]["addresses"][0].rpartition(":")[2])
        self.where: dict[str, Any] = {"host": "127.0.0.1", "port": port}
        self.url = f"netblt://127.0.0.1:{port}"
        # A full pipe would stop it.
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def client(self, path: str = "/") -> netblt.Client:
        return netblt.Client(self.url + path, **self.proof)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line)

    def requests(self, count: int) -> list[dict[str, Any]]:
        """What it was asked, once that are so many: it may see an end after its client does."""
        until = time.monotonic() + 30
        while True:
            lines = [json.loads(line) for line in list(self._lines)]
            asked = [line["data"] for line in lines if line["event"] == "request"]
            if len(asked) >= count or time.monotonic() > until:
                return asked
            time.sleep(0.05)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    (place := tmp_path / "server").mkdir()
    served = Served(place)
    yield served
    served.stop()


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Served]:
    (place := tmp_path / "server").mkdir()
    served = Served(place, "--read-only")
    yield served
    served.stop()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("server"))
    yield served
    served.stop()


def threads() -> list[str]:
    """Threads of ours, and of those that Python does not know."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        try:
            names.append((task / "comm").read_text().strip())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return [name for name in names if name.startswith("netblt")]


def sockets() -> set[str]:
    """Sockets that this process has: what is left over is told from what others had open."""
    held = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            held.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        except FileNotFoundError:
            continue
    return {name for name in held if name.startswith("socket:")}


def until(holds: Callable[[], bool], what: str) -> None:
    """Waits until something holds, which takes a moment."""
    given_up = threading.Event()
    for _ in range(LIMIT * 100):
        if holds():
            return
        given_up.wait(0.01)
    raise AssertionError(f"{what}: threads {threads()}, {sockets()} sockets")
