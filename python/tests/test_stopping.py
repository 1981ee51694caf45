"""Stopping: by a task's cancellation, by Ctrl-C, by an object; and what is left then: nothing."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import netblt
import netblt.errors as errors
import pytest
from conftest import HERE, LIMIT, Ends, sockets, threads, until

SLOW = netblt.Options(bind="127.0.0.1", rate=40_000_000)
PARTIAL = ".netblt-partial"


def test_a_hundred_cancellations_leave_nothing(tmp_path: Path) -> None:
    source, places = tmp_path / "source", [tmp_path / place for place in "abcd"]
    for directory in (source, *places):
        directory.mkdir()
    for number in range(20):
        (source / str(number)).write_bytes(os.urandom(200_000))
    seed = int(os.environ.get("NETBLT_SEED", "7"))
    chance, ended = random.Random(seed), {"stopped": 0, "lost": 0, "done": 0}

    async def one(number: int, there: Path) -> None:
        there.mkdir()
        ticket: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        moved = asyncio.Semaphore(0)
        sending = asyncio.create_task(
            netblt.send_async(
                source,
                on_ticket=ticket.set_result,
                progress=lambda _: moved.release(),
                options=SLOW,
            )
        )
        tasks, moves = [sending], 0
        if number % 5:
            tasks.append(asyncio.create_task(netblt.receive_async(there, await ticket)))
            # Some are stopped while they open, some on their way.
            moves = chance.choice([0, 1, 2, 3])
            for _ in range(moves):
                await asyncio.wait_for(moved.acquire(), LIMIT)
        await asyncio.sleep(chance.random() * 0.1)
        victim = chance.choice(tasks)
        victim.cancel()
        # Who was about to meet the other one still listens, or calls; who has met it hears of it.
        await asyncio.wait(tasks, timeout=LIMIT if moves else 0.3)
        still = [task for task in tasks if not task.done()]
        for task in still:
            task.cancel()
        for task in tasks:
            try:
                await asyncio.wait_for(task, LIMIT)
                ended["done"] += 1
            except asyncio.CancelledError:
                assert task is victim or task in still
                ended["stopped"] += 1
            except netblt.NetbltError as error:
                assert task is not victim and error.retryable, (seed, number, repr(error))
                ended["lost"] += 1

    async def into(there: Path) -> None:
        for number in range(100 // len(places)):
            await one(number, there / str(number))

    async def all_of_them() -> None:
        await asyncio.gather(*map(into, places))

    before = sockets()
    asyncio.run(all_of_them())
    assert ended["stopped"] >= 100 and ended["lost"] > 40, (seed, ended)
    # Those of tests before may close meanwhile.
    until(lambda: not threads() and sockets() <= before, f"left with seed {seed}, {before} before")
    resumed = 0
    for there in (round for place in places for round in place.iterdir()):
        left = set(os.listdir(there))
        assert left <= {"source", PARTIAL}
        # What is left is good for going on, and then it is gone.
        if PARTIAL in left and resumed < 5:
            with Ends() as ends:
                sent, ticket = ends.listen(netblt.send, source)
                received = netblt.receive(there, ticket)
                assert received.verified and sent.result(LIMIT).verified
            resumed += 1
            assert os.listdir(there) == ["source"]
            for file in source.iterdir():
                assert (there / "source" / file.name).read_bytes() == file.read_bytes()
    assert resumed == 5


def test_progress_tells_what_was_there_before(ends: Ends, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(30_000_000))
    (into := tmp_path / "into").mkdir()
    cancel = netblt.Cancel()

    def stop(progress: netblt.Progress) -> None:
        assert progress.kept == 0
        if progress.bytes > 12_000_000:
            cancel.cancel()

    _, ticket = ends.listen(netblt.send, source, options=SLOW)
    with pytest.raises(errors.StoppedError):
        netblt.receive(into, ticket, progress=stop, cancel=cancel)
    seen: list[netblt.Progress] = []
    sent, ticket = ends.listen(netblt.send, source, options=SLOW)
    received = netblt.receive(into, ticket, progress=seen.append)
    assert received.kept > 0 and sent.result(LIMIT).kept == received.kept
    assert 0 < seen[-1].kept <= received.kept
    assert all(progress.kept <= progress.bytes for progress in seen)


def test_a_task_ends_when_its_transfer_has(tmp_path: Path) -> None:
    async def stopped() -> None:
        ticket: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        sending = asyncio.create_task(
            netblt.send_async(bytes(50_000_000), on_ticket=ticket.set_result, options=SLOW)
        )
        going = asyncio.Event()
        receiving = asyncio.create_task(
            netblt.receive_async(tmp_path, await ticket, progress=lambda _: going.set())
        )
        await going.wait()
        assert "netblt" in threads()
        sending.cancel()
        # A second time, when it is stopping: it is in a hurry then.
        await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(sending, LIMIT)
        with pytest.raises(netblt.NetbltError):
            await asyncio.wait_for(receiving, LIMIT)
        assert threads().count("netblt") == 0

    asyncio.run(stopped())


def test_one_object_stops_several(ends: Ends) -> None:
    cancel = netblt.Cancel()
    sent = [ends.listen(netblt.send, b"data", cancel=cancel)[0] for _ in range(3)]
    assert not cancel.cancelled
    cancel.cancel()
    for end in sent:
        assert isinstance(end.exception(LIMIT), errors.StoppedError)
    with pytest.raises(errors.StoppedError):
        netblt.send(b"data", on_ticket=lambda _: None, options=HERE, cancel=cancel)


def test_python_runs_while_a_transfer_does(tmp_path: Path, ends: Ends) -> None:
    """Both ends block a thread each, and a third one goes on counting."""
    counted, over = 0, threading.Event()

    def count() -> None:
        nonlocal counted
        while not over.is_set():
            counted += 1

    counting = threading.Thread(target=count)
    counting.start()
    try:
        sent, ticket = ends.listen(netblt.send, bytes(2_000_000), options=SLOW)
        before = counted
        assert netblt.receive(tmp_path, ticket).verified and sent.result(LIMIT).verified
        assert counted > before
    finally:
        over.set()
        counting.join()


SCRIPT = """
import netblt, sys
try:
    options = netblt.Options(bind="127.0.0.1", rate=40_000_000)
    tell = lambda ticket: print(ticket, flush=True)
    netblt.send(bytes(50_000_000), on_ticket=tell, options=options)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize("moving", [False, True])
def test_ctrl_c_stops_it(moving: bool, tmp_path: Path, ends: Ends) -> None:
    command = [sys.executable, "-c", SCRIPT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sending:
        assert sending.stdout is not None
        ticket = sending.stdout.readline().strip()
        if moving:
            going = threading.Event()
            received = ends.connect(
                netblt.receive, tmp_path, ticket, progress=lambda _: going.set()
            )
            assert going.wait(LIMIT)
        sending.send_signal(signal.SIGINT)
        assert sending.wait(LIMIT) == 130
        if moving:
            assert isinstance(received.exception(LIMIT), ConnectionResetError)


def test_an_interpreter_that_ends_takes_its_transfer_along() -> None:
    script = """
import netblt, threading, os
told = threading.Event()
tell = lambda ticket: told.set()
options = netblt.Options(bind="127.0.0.1")
send = lambda: netblt.send(open("/dev/zero", "rb"), on_ticket=tell, options=options)
threading.Thread(target=send, daemon=True).start()
told.wait()
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=LIMIT)
