"""The operator for Airflow, with a real Airflow: its tasks, its triggers, its serialisation."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Dict, Iterator

import netblt
import pytest
from conftest import LIMIT, Served, sockets, threads, until

if find_spec("airflow") is None:
    pytest.skip("Airflow is not installed", allow_module_level=True)

BYTES = 12_000_000
# By then the journal tells of what came first, whatever is synced at once.
SOME = 4_000_000


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """``netblt.airflow``, where Airflow has a home and a data base of its own."""
    with pytest.MonkeyPatch.context() as patch:
        # Airflow reads them when it is imported.
        patch.setenv("AIRFLOW_HOME", str(tmp_path_factory.mktemp("airflow")))
        patch.setenv("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
        patch.setenv("AIRFLOW__CORE__UNIT_TEST_MODE", "False")
        command = [sys.executable, "-m", "airflow", "db", "migrate"]
        subprocess.run(command, check=True, timeout=4 * LIMIT, stdout=subprocess.DEVNULL)
        import netblt.airflow

        yield netblt.airflow


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Served]:
    (place := tmp_path / "slow").mkdir()
    served = Served(place, "--max-rate", "16Mbit")
    (served.root / "data").write_bytes(os.urandom(BYTES))
    yield served
    served.stop()


def restored(trigger: Any) -> Any:
    """The trigger as another triggerer has it, by way of Airflow's data base."""
    classpath, made_of = trigger.serialize()
    assert classpath == "netblt.airflow.NetbltCopyTrigger"
    return type(trigger)(**json.loads(json.dumps(made_of)))


def deferred(operator: Any) -> Any:
    with pytest.raises(import_module("airflow.exceptions").TaskDeferred) as caught:
        operator.execute({})
    assert caught.value.method_name == "execute_complete"
    return restored(caught.value.trigger)


async def first_event(trigger: Any) -> Dict[str, Any]:
    events = [event.payload async for event in trigger.run()]
    (event,) = events
    return json.loads(json.dumps(event))  # type: ignore[no-any-return]


# Airflow 3 wants a file in its directory of DAGs.
DAG = """
import os
from datetime import datetime, timezone
from airflow import DAG
from netblt.airflow import NetbltCopyOperator, NetbltCopyTrigger

url, here, ticket_file = (os.environ[name] for name in ("TEST_URL", "TEST_HERE", "TEST_TICKET"))

def copy(name, source, destination, **more):
    return NetbltCopyOperator(
        task_id=name,
        source=source,
        destination=destination,
        ticket_file="{{ params.proof }}",
        **more,
    )

with DAG(
    "copies",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    params={"name": "in", "proof": ticket_file},
) as dag:
    down = copy("down", url + "/{{ params.name }}", here)
    up = copy("up", here + "/{{ params.name }}", url + "/up")
    within = copy("within", url + "/up", url + "/twice")
    there = copy("there", url + "/twice", here, deferrable=False)
    down >> up >> within >> there

if __name__ == "__main__":
    run = NetbltCopyTrigger.run
    def told(trigger):
        print("TRIGGER", trigger.source, flush=True)
        return run(trigger)
    NetbltCopyTrigger.run = told
    done = dag.test()
    for task in done.get_task_instances():
        print("TASK", task.task_id, task.xcom_pull(task.task_id))
    print("DONE", getattr(done.state, "value", done.state))
"""


def test_a_dag_copies_here_there_and_on_the_server(
    airflow: Any, shared: Served, tmp_path: Path
) -> None:
    (shared.root / "dag").mkdir()
    data = os.urandom(100_000)
    (shared.root / "dag/in").write_bytes(data)
    dags = Path(os.environ["AIRFLOW_HOME"]) / "dags"
    dags.mkdir()
    (dags / "copies.py").write_text(DAG)
    url, here = f"{shared.url}/dag", str(tmp_path)
    given = {"TEST_URL": url, "TEST_HERE": here, "TEST_TICKET": shared.proof["ticket_file"]}
    told = subprocess.run(
        [sys.executable, dags / "copies.py"],
        env={**os.environ, **given},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=4 * LIMIT,
    ).stdout
    lines = told.splitlines()
    assert "DONE success" in lines, told
    # The last was a worker's.
    ran = [line.split()[1] for line in lines if line.startswith("TRIGGER ")]
    assert ran == [f"{url}/in", f"{here}/in", f"{url}/up"], told
    assert (shared.root / "dag/twice").read_bytes() == data
    assert (tmp_path / "in").read_bytes() == (tmp_path / "twice").read_bytes() == data


def test_what_can_be_tried_again_is_and_nothing_else(
    airflow: Any, shared: Served, tmp_path: Path
) -> None:
    exceptions = import_module("airflow.exceptions")
    fails, raises = exceptions.AirflowFailException, exceptions.AirflowException
    nobody = "netblt://127.0.0.1:1/x"
    quick = netblt.Options(bind="127.0.0.1", death_timer=1.0)
    cases = [
        (f"{shared.url}/not-there", fails),
        ("netblt://elsewhere/x", fails),
        (nobody, raises),
    ]
    for source, expected in cases:
        destination = str(tmp_path) if "elsewhere" not in source else f"{shared.url}/x"
        for deferrable in (True, False):
            operator = airflow.NetbltCopyOperator(
                task_id="x",
                source=source,
                destination=destination,
                options=quick,
                deferrable=deferrable,
                **shared.proof,
            )
            with pytest.raises(raises) as caught:
                if deferrable:
                    event = asyncio.run(first_event(deferred(operator)))
                    operator.execute_complete({}, event)
                else:
                    operator.execute({})
            assert type(caught.value) is expected, (source, deferrable, caught.value)


def test_no_secret_is_kept(
    airflow: Any, shared: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = Path(shared.proof["ticket_file"]).read_text().strip()
    monkeypatch.setenv("NETBLT_TICKET", secret)
    options = netblt.Options(exclude=("*.tmp",), manifest=tmp_path / "sums", rate=8_000_000)
    operator = airflow.NetbltCopyOperator(
        task_id="x", source=shared.url, destination=str(tmp_path), options=options
    )
    trigger = deferred(operator)
    assert secret not in repr(trigger.serialize())
    again = netblt.Options(**trigger.options)
    assert list(again.exclude) == ["*.tmp"] and again.manifest == str(tmp_path / "sums")
    assert again.rate == options.rate and again.policy == options.policy


RUN = """
import asyncio, json, sys
from netblt.airflow import NetbltCopyTrigger
async def run():
    async for event in NetbltCopyTrigger(**json.loads(sys.argv[1])).run():
        print(event.payload)
asyncio.run(run())
"""


# Of its end a server hears, or has to find out.
@pytest.mark.parametrize(
    "up, ended", [(False, signal.SIGKILL), (True, signal.SIGINT), (True, signal.SIGKILL)]
)
def test_a_triggerer_that_ended_goes_on_when_it_is_back(
    up: bool, ended: signal.Signals, airflow: Any, slow: Served, tmp_path: Path
) -> None:
    (here := tmp_path / "here").mkdir()
    if up:
        (slow.root / "data").rename(here / "data")
    ends = (str(here / "data"), f"{slow.url}/data") if up else (f"{slow.url}/data", str(here))
    trigger = airflow.NetbltCopyTrigger(*ends, client=slow.proof)
    command = [sys.executable, "-c", RUN, json.dumps(trigger.serialize()[1])]
    into = slow.root if up else here
    with subprocess.Popen(command) as triggerer:
        until(lambda: kept(into) >= SOME, "nothing arrived")
        triggerer.send_signal(ended)
    assert not (into / "data").exists()

    event = asyncio.run(first_event(restored(trigger)))
    assert event["summary"]["verified"] and event["summary"]["bytes"] == BYTES
    assert event["summary"]["kept"] > 0, event
    assert (here / "data").read_bytes() == (slow.root / "data").read_bytes()


def kept(place: Path) -> int:
    """Bytes of unfinished files there that are on the disk."""
    found = 0
    for directory, _, names in os.walk(place / ".netblt-partial"):
        for name in names:
            try:
                found += os.stat(os.path.join(directory, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return found


def test_a_trigger_that_is_cancelled_stops_its_transfer(
    airflow: Any, slow: Served, tmp_path: Path
) -> None:
    trigger = airflow.NetbltCopyTrigger(f"{slow.url}/data", str(tmp_path), client=slow.proof)

    async def stopped() -> None:
        running = asyncio.create_task(first_event(trigger))
        while kept(tmp_path) < SOME:
            assert not running.done()
            await asyncio.sleep(0.01)
        running.cancel("user-action")
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(running, LIMIT)

    before = sockets()
    asyncio.run(stopped())
    until(lambda: not threads() and sockets() <= before, "left by a trigger")
    assert not (tmp_path / "data").exists()


def test_a_worker_that_is_told_to_stop_does(
    airflow: Any, slow: Served, tmp_path: Path
) -> None:
    operator = airflow.NetbltCopyOperator(
        task_id="x",
        source=f"{slow.url}/data",
        destination=str(tmp_path),
        deferrable=False,
        **slow.proof,
    )
    # Nothing runs yet.
    operator.on_kill()

    def kill() -> None:
        until(lambda: kept(tmp_path) >= SOME, "nothing arrived")
        operator.on_kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(import_module("airflow.exceptions").AirflowException):
        operator.execute({})
    killer.join()
    assert not (tmp_path / "data").exists()
