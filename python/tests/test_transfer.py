"""What goes well: every kind of source and destination, from either end, and what is told."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import netblt
import pytest
from conftest import HERE, LIMIT, Ends

DATA = os.urandom(3_000_000)


def test_a_directory_arrives(ends: Ends, tmp_path: Path) -> None:
    (tmp_path / "photos/deep").mkdir(parents=True)
    (tmp_path / "photos/deep/one").write_bytes(DATA)
    (tmp_path / "photos/two").write_text("two")
    there = tmp_path / "there"
    there.mkdir()
    seen: list[netblt.Progress] = []
    sent, ticket = ends.listen(netblt.send, tmp_path / "photos", progress=seen.append)
    received = netblt.receive(there, ticket)
    assert received.verified and (received.files, received.skipped, received.kept) == (2, 0, 0)
    assert sent.result(LIMIT).digest == received.digest and len(received.digest) == 32
    assert (there / "photos/deep/one").read_bytes() == DATA
    assert received.bytes == len(DATA) + 3 and received.elapsed > 0 and received.real_bps > 0
    assert received.limited_by.replace("_", "").isalpha()
    assert "verified=True" in repr(received)
    last = seen[-1]
    assert (last.total, last.files) == (received.bytes, 2) and 0 <= last.bytes <= received.bytes
    assert last.elapsed >= 0 and (last.rtt is None or last.rtt > 0)


def test_either_end_may_listen(ends: Ends, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(DATA)
    into = bytearray(b"before ")
    received, ticket = ends.listen(netblt.receive, into)
    assert netblt.send([str(tmp_path / "file")], ticket).verified
    assert received.result(LIMIT).verified and into == b"before " + DATA


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, io.BytesIO])
def test_bytes_and_files_are_sources(kind: type, ends: Ends, tmp_path: Path) -> None:
    _, ticket = ends.listen(netblt.send, kind(DATA), name="data")
    assert netblt.receive(tmp_path, ticket).verified
    assert (tmp_path / "data").read_bytes() == DATA


def test_an_open_file_keeps_its_name(ends: Ends, tmp_path: Path) -> None:
    (tmp_path / "named").write_bytes(DATA)
    (tmp_path / "there").mkdir()
    with open(tmp_path / "named", "rb") as file, open(tmp_path / "copy", "wb") as copy:
        _, ticket = ends.listen(netblt.send, file)
        netblt.receive(tmp_path / "there", ticket)
        file.seek(0)
        _, ticket = ends.listen(netblt.send, file)
        netblt.receive(copy, ticket)
    assert (tmp_path / "there/named").read_bytes() == DATA == (tmp_path / "copy").read_bytes()


def test_a_raw_file_that_takes_little_at_a_time_gets_all(ends: Ends) -> None:
    class Slow(io.RawIOBase):
        def __init__(self) -> None:
            self.got = b""

        def writable(self) -> bool:
            return True

        def write(self, data: object, /) -> int:
            assert isinstance(data, bytes)
            self.got += data[:60_000]
            return min(len(data), 60_000)

    slow = Slow()
    _, ticket = ends.listen(netblt.send, DATA)
    assert netblt.receive(slow, ticket).verified and slow.got == DATA


def test_asyncio_moves_several_at_once(tmp_path: Path) -> None:
    async def one(number: int) -> None:
        ticket: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        into = bytearray()
        seen: list[netblt.Progress] = []
        sending = asyncio.create_task(
            netblt.send_async(
                DATA, on_ticket=ticket.set_result, progress=seen.append, options=HERE
            )
        )
        received = await netblt.receive_async(into, await ticket)
        assert received.verified and (await sending).verified and into == DATA and seen

    async def all_of_them() -> None:
        await asyncio.wait_for(asyncio.gather(*map(one, range(5))), LIMIT)

    asyncio.run(all_of_them())


def test_options_reach_both_ends(ends: Ends, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    for name in ("keep", "leave.tmp"):
        (tmp_path / "tree" / name).write_text(name)
    there = tmp_path / "there"
    (there / "tree").mkdir(parents=True)
    (there / "tree/keep").write_text("older")
    options = netblt.Options(bind="127.0.0.1", exclude=["*.tmp"], rate=100_000_000, ip_version=4)
    _, ticket = ends.listen(netblt.send, tmp_path / "tree", options=options)
    manifest = tmp_path / "manifest"
    options = netblt.Options(overwrite=True, manifest=manifest, verify=True)
    assert netblt.receive(there, ticket, options=options).verified
    assert os.listdir(there / "tree") == ["keep"]
    assert (there / "tree/keep").read_text() == "keep"
    assert manifest.read_text().endswith("  tree/keep\n")


def test_either_end_changes_it_while_it_runs(ends: Ends, tmp_path: Path) -> None:
    for steers in ("sender", "receiver"):
        control = netblt.Control()
        seen: list[netblt.Progress] = []
        there = tmp_path / steers
        there.mkdir()

        def watch(progress: netblt.Progress) -> None:
            seen.append(progress)
            if progress.paused:
                control.set_rate(None)
                control.resume()
            elif len(seen) == 3:
                control.pause()

        mine: dict[str, Any] = {"control": control, "progress": watch}
        nothing: dict[str, Any] = {}
        ours, theirs = (mine, nothing) if steers == "sender" else (nothing, mine)
        control.set_rate(8_000_000)
        slow = netblt.Options(bind="127.0.0.1", rate=8_000_000)
        sent, ticket = ends.listen(netblt.send, DATA, name="data", options=slow, **ours)
        assert netblt.receive(there, ticket, **theirs).verified and sent.result(LIMIT).verified
        assert (there / "data").read_bytes() == DATA
        # Three seconds at that rate: it could not be over before it was paused.
        assert seen[2].bytes < len(DATA) and any(progress.paused for progress in seen)
        assert not control.paused
    with pytest.raises(ValueError):
        control.set_rate(0)
    with pytest.raises(ValueError):
        control.set_policy("fixed")


@pytest.mark.parametrize("policy", ["fair", "background", "aggressive", "fixed"])
def test_every_policy_carries(policy: Any, ends: Ends) -> None:
    into, control = bytearray(), netblt.Control()
    options = netblt.Options(bind="127.0.0.1", policy=policy, rate=400_000_000)
    _, ticket = ends.listen(netblt.send, DATA, options=options, control=control)
    control.set_policy(policy, 200_000_000)
    assert netblt.receive(into, ticket).verified and into == DATA


@pytest.mark.parametrize("fec", ["auto", "never", 20])
def test_repair_packets_are_as_asked(fec: Any, ends: Ends, tmp_path: Path) -> None:
    trace, into = tmp_path / "trace", bytearray()
    options = netblt.Options(bind="127.0.0.1", fec=fec, trace=trace)
    sent, ticket = ends.listen(netblt.send, DATA, options=options)
    assert netblt.receive(into, ticket).verified and into == DATA
    sent.result(LIMIT)
    events = [json.loads(line) for line in trace.read_text().splitlines()]
    packets = sum(event["packets"] for event in events if event["event"] == "repair")
    if fec != "auto":  # which decides by the path
        assert (packets > 0) == (fec == 20)


def test_a_transfer_goes_over_as_many_connections_as_both_take(ends: Ends) -> None:
    data, into = DATA * (20_000_000 // len(DATA)), bytearray()
    options = netblt.Options(bind="127.0.0.1", streams=3, rate=80_000_000)
    sent, ticket = ends.listen(netblt.send, data, options=options)
    received = netblt.receive(into, ticket, options=netblt.Options(streams=8))
    assert into == data and (received.streams, sent.result(LIMIT).streams) == (3, 3)


def test_warnings_are_logged_or_handed_over(
    ends: Ends, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/file").write_text("file")
    os.mkfifo(tmp_path / "tree/pipe")
    for asked in (False, True):
        told: list[str] = []
        left_out: list[str] = []
        more = {"on_warning": told.append} if asked else {}
        there = tmp_path / f"there-{asked}"
        there.mkdir()
        with caplog.at_level(logging.INFO, "netblt"):
            caplog.clear()
            sent, ticket = ends.listen(netblt.send, tmp_path / "tree", **more)
            # The other end hears of it, too.
            netblt.receive(there, ticket, on_warning=left_out.append)
            sent.result(LIMIT)
        assert len(left_out) == 1 and "pipe" in left_out[0]
        logged = [record.message for record in caplog.records if "pipe" in record.message]
        assert len(logged) == (not asked)
        assert len(told) == asked and all("pipe" in text for text in told)


def test_the_program_is_there_and_is_the_other_end(ends: Ends, tmp_path: Path) -> None:
    program = Path(sys.executable).parent / "netblt"
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    assert version.stdout.startswith("netblt ")
    _, ticket = ends.listen(netblt.send, DATA, name="data")
    told = {**os.environ, "NETBLT_TICKET": ticket}
    subprocess.run([program, "receive", tmp_path], env=told, check=True, timeout=LIMIT)
    assert (tmp_path / "data").read_bytes() == DATA


def test_the_examples_run(tmp_path: Path) -> None:
    """The ends of README, as two programs."""
    page = (Path(__file__).parent.parent / "README.md").read_text()
    blocks = [part.partition("```")[0] for part in page.split("```python\n")[1:]]
    (tmp_path / "here").mkdir()
    (tmp_path / "here/photos").mkdir()
    (tmp_path / "here/photos/one").write_bytes(DATA)
    (tmp_path / "there/downloads").mkdir(parents=True)
    sender = next(block for block in blocks if "netblt.send(" in block)
    receiver = next(block for block in blocks if "netblt.receive_async(" in block)
    command = [sys.executable, "-c"]
    with subprocess.Popen(
        [*command, sender], cwd=tmp_path / "here", stdout=subprocess.PIPE, text=True
    ) as sending:
        assert sending.stdout is not None
        ticket = sending.stdout.readline().strip()
        assert ticket.startswith("netblt1:")
        subprocess.run(
            [*command, receiver, ticket], cwd=tmp_path / "there", check=True, timeout=LIMIT
        )
        assert sending.wait(LIMIT) == 0
    assert (tmp_path / "there/downloads/photos/one").read_bytes() == DATA
