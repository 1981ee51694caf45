"""What goes wrong, and what it is called."""

from __future__ import annotations

import errno
import io
import os
import pickle
import socket
from pathlib import Path
from typing import Any

import netblt
import netblt.errors as errors
import pytest
from conftest import HERE, LIMIT, Ends


def refuses(error: type[BaseException], code: int, retryable: bool, call: Any) -> Any:
    with pytest.raises(error) as caught:
        call()
    raised = caught.value
    assert isinstance(raised, netblt.NetbltError)
    assert (raised.code, raised.retryable) == (code, retryable), raised
    again = pickle.loads(pickle.dumps(raised))
    assert (type(again), str(again), again.code) == (type(raised), str(raised), raised.code)
    assert getattr(again, "errno", None) == getattr(raised, "errno", None)
    assert str(raised) and "Errno" not in str(raised)
    return raised


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    send = lambda: netblt.send(tmp_path / "no", on_ticket=print, options=HERE)  # noqa: E731
    raised = refuses(FileNotFoundError, 11, False, send)
    assert raised.errno == errno.ENOENT and raised.filename == str(tmp_path / "no")
    assert isinstance(raised, errors.NotFoundError)


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "no").touch(mode=0)
    options = netblt.Options(bind="127.0.0.1", atomic=True)
    send = lambda: netblt.send(tmp_path / "no", on_ticket=print, options=options)  # noqa: E731
    # Root may read everything; nobody may not.
    before = os.geteuid()
    os.seteuid(before or 65534)
    try:
        assert refuses(PermissionError, 11, False, send).errno == errno.EACCES
    finally:
        os.seteuid(before)


def test_a_place_that_may_not_be_written(tmp_path: Path, ends: Ends) -> None:
    (tmp_path / "file").touch()
    _, ticket = ends.listen(netblt.send, b"data")
    receive = lambda: netblt.receive(tmp_path / "file", ticket)  # noqa: E731
    assert isinstance(refuses(OSError, 11, False, receive), errors.FileError)
    assert netblt.receive(io.BytesIO(), ticket).verified


def test_a_file_that_exists(tmp_path: Path, ends: Ends) -> None:
    (there := tmp_path / "there").mkdir()
    (tmp_path / "data").write_bytes(b"newer")
    (there / "data").write_bytes(b"older")
    sent, ticket = ends.listen(netblt.send, tmp_path / "data")
    options = netblt.Options(atomic=True)
    receive = lambda: netblt.receive(there, ticket, options=options)  # noqa: E731
    assert refuses(FileExistsError, 11, False, receive).errno == errno.EEXIST
    # The sender goes on listening.
    assert netblt.receive(there, ticket, options=netblt.Options(overwrite=True)).verified
    assert sent.result(LIMIT).verified


def test_more_than_was_allowed(tmp_path: Path, ends: Ends) -> None:
    (tmp_path / "file").write_bytes(bytes(1001))
    _, ticket = ends.listen(netblt.send, tmp_path / "file")
    options = netblt.Options(max_bytes=1000)
    receive = lambda: netblt.receive(tmp_path, ticket, options=options)  # noqa: E731
    assert refuses(OSError, 11, False, receive).errno == errno.EFBIG
    assert netblt.receive(io.BytesIO(), ticket).verified


def test_a_ticket_that_is_none(tmp_path: Path) -> None:
    for ticket in ("", "netblt1:x", "hello"):
        refuses(ValueError, 1, False, lambda: netblt.receive(tmp_path, ticket))


def test_nobody_listens_any_more(tmp_path: Path, ends: Ends) -> None:
    sent, ticket = ends.listen(netblt.send, b"data")
    assert netblt.receive(io.BytesIO(), ticket).verified and sent.result(LIMIT)
    receive = lambda: netblt.receive(tmp_path, ticket)  # noqa: E731
    raised = refuses(ConnectionRefusedError, 35, True, receive)
    assert isinstance(raised, errors.RefusedError)


def test_nobody_answers(tmp_path: Path, ends: Ends) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        sent, ticket = ends.listen(netblt.send, b"data", cancel=(cancel := netblt.Cancel()))
        cancel.cancel()
        assert isinstance(sent.exception(LIMIT), errors.StoppedError)
        port = int(ticket.rpartition("/")[0].rpartition(":")[2])
        silent.bind(("127.0.0.1", port))
        options = netblt.Options(death_timer=1.0)
        receive = lambda: netblt.receive(tmp_path, ticket, options=options)  # noqa: E731
        refuses(TimeoutError, 35, True, receive)


def test_nobody_comes() -> None:
    options = netblt.Options(bind="127.0.0.1", wait=0.2)
    send = lambda: netblt.send(b"data", on_ticket=lambda _: None, options=options)  # noqa: E731
    assert isinstance(refuses(TimeoutError, 35, True, send), errors.SilentError)


def test_the_other_end_stops(tmp_path: Path, ends: Ends) -> None:
    cancel = netblt.Cancel()
    slow = netblt.Options(bind="127.0.0.1", rate=10_000_000)
    sent, ticket = ends.listen(netblt.send, bytes(50_000_000), options=slow)
    stop = lambda progress: cancel.cancel()  # noqa: E731
    with pytest.raises(errors.StoppedError) as stopped:
        netblt.receive(tmp_path, ticket, progress=stop, cancel=cancel)
    assert (stopped.value.code, cancel.cancelled) == (20, True)
    refuses(ConnectionResetError, 12, True, lambda: sent.result(LIMIT))


def test_a_port_that_is_taken() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        options = netblt.Options(bind="127.0.0.1", port=taken.getsockname()[1])
        send = lambda: netblt.send(b"", on_ticket=print, options=options)  # noqa: E731
        assert refuses(OSError, 10, True, send).errno == errno.EADDRINUSE


def test_options_that_make_no_sense() -> None:
    bad: list[dict[str, Any]] = [
        {"policy": "fixed"},
        {"policy": "rude"},
        {"rate": 0},
        {"fec": "twice"},
        {"fec": 0},
        {"fec": 101},
        {"streams": 0},
        {"streams": 33},
        {"streams": "many"},
        {"resume": "perhaps"},
        {"ip_version": 5},
        {"death_timer": -1.0},
        {"wait": float("nan")},
        {"bind": "nowhere"},
        {"exclude": ["["]},
        {"buffer_bytes": 1000},
    ]
    for options in bad:
        with pytest.raises(ValueError):
            netblt.send(".", on_ticket=print, options=netblt.Options(**options))
    with pytest.raises(ValueError, match="on_ticket"):
        netblt.send(b"data")
    with pytest.raises(TypeError):
        netblt.receive(5, "ticket")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        netblt.send(5, "ticket")  # type: ignore[arg-type]


def test_what_a_file_raises_comes_out_as_it_is(tmp_path: Path, ends: Ends) -> None:
    class Broken(io.RawIOBase):
        def read(self, size: int = -1, /) -> bytes:
            raise ZeroDivisionError("of a file")

        def write(self, data: object, /) -> int:
            raise ZeroDivisionError("of a file")

    sent, ticket = ends.listen(netblt.send, Broken())
    with pytest.raises(ConnectionResetError):
        netblt.receive(tmp_path, ticket)
    assert isinstance(sent.exception(LIMIT), ZeroDivisionError)
    sent, ticket = ends.listen(netblt.send, b"data")
    with pytest.raises(ZeroDivisionError):
        netblt.receive(Broken(), ticket)
    assert isinstance(sent.exception(LIMIT), ConnectionResetError)


def test_a_file_that_gives_text(tmp_path: Path, ends: Ends) -> None:
    sent, ticket = ends.listen(netblt.send, io.StringIO("text"))
    with pytest.raises(ConnectionResetError):
        netblt.receive(tmp_path, ticket)
    assert "only bytes" in str(sent.exception(LIMIT)) and isinstance(sent.exception(), TypeError)


def test_what_a_callback_raises_stops_it(tmp_path: Path, ends: Ends) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError("of a callback")

    with pytest.raises(ZeroDivisionError):
        netblt.send(b"data", on_ticket=broken, options=HERE)
    slow = netblt.Options(bind="127.0.0.1", rate=10_000_000)
    sent, ticket = ends.listen(netblt.send, bytes(50_000_000), options=slow)
    with pytest.raises(ZeroDivisionError):
        netblt.receive(tmp_path, ticket, progress=broken)
    assert isinstance(sent.exception(LIMIT), ConnectionResetError)
