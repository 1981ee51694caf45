"""Started by netblt fleet submit: has Dask run the chunks of a run, a task each.

Python's isolated mode (-I) leaves out the current directory, PYTHONPATH and the user's own packages.
The latter two are the user's choice: they come back, but for entries of PYTHONPATH that depend on
the current directory.

The numbers of the chunks come on standard input. What people should know goes to standard output,
a line each: "note" and the words, or "why" and why nothing more can be done.
"""

import argparse
import heapq
import os
import random
import signal
import site
import subprocess
import sys
import time
import uuid


sys.path[:0] = filter(os.path.isabs, os.environ.get("PYTHONPATH", "").split(os.pathsep))
if sys.prefix == sys.base_prefix and not os.environ.get("PYTHONNOUSERSITE"):
    site.addsitedir(site.getusersitepackages())


def emit(kind, text):
    """The program that started this may be gone; the run goes on."""
    try:
        print(kind, " ".join(str(text).split()), flush=True)
    except OSError:
        pass


try:
    import dask
    from dask.distributed import CancelledError, Client, Event, LocalCluster, Semaphore
    from dask.distributed import TimeoutError, wait
except ImportError as error:
    emit("why", f"{sys.executable} has no dask.distributed ({error}); it is in PyPI's distributed")
    sys.exit(1)


def netblt_run_chunk(command, log, places, stop):
    """One task, on a worker: answers how run-chunk ended, or nothing if it was stopped before."""
    while not places.acquire(timeout=1):
        if stop.is_set():
            return None
    child = None
    try:
        if stop.is_set():
            return None
        # A symbolic link is not followed.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(log, flags, 0o644), "ab") as file:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        while True:
            try:
                return child.wait(timeout=1)
            except subprocess.TimeoutExpired:
                if stop.is_set():
                    child.terminate()
    finally:
        # Without a scheduler it does not count any more.
        if child is not None and child.poll() is None:
            child.terminate()
        places.release()


def ended(task):
    """In words, unless the chunk is done, and whether it is to be tried again.

    Everything is but what run-chunk itself says makes no sense.
    """
    if task.status == "error":
        # Its worker is gone, or cannot start it.
        error = task.exception()
        return f"{type(error).__name__}: {error}", True
    if task.status != "finished":
        return task.status, True
    code = task.result()
    words = f"signal: {-code}" if code and code < 0 else f"exit status: {code}"
    return words if code else None, bool(code) and (code < 0 or code == 75 or code >= 128)


def first_of(tasks):
    """Those that are over, after a second at most."""
    try:
        return wait(tasks, timeout=1, return_when="FIRST_COMPLETED").done
    except TimeoutError:
        return []
    except CancelledError:
        # By a scheduler that went and came back.
        return [task for task in tasks if task.status == "cancelled"]


def log_of(options, chunk):
    return os.path.join(options.run, "log", f"{chunk:06}.log")


def drive(client, options, chunks, stopping):
    """Keeps as many tasks with Dask as are to be at once, until nothing is left to try."""
    # Tasks of an earlier submit that are still at work count, too.
    places = Semaphore(max_leases=options.pairs, name=f"netblt-{options.id}-{options.pairs}")
    stop = Event(f"netblt-{options.id}-{uuid.uuid4().hex}")
    waiting = [(0.0, chunk, 0) for chunk in chunks]
    working = {}
    stopped = None
    while working or waiting:
        if client.status not in ("running", "connecting"):
            raise OSError("the scheduler is gone")
        if stopping and stopped is None:
            stopped = time.monotonic()
            waiting.clear()
            stop.set()
        if stopped is not None and time.monotonic() > stopped + 60:
            # Those that no worker has begun.
            break
        while waiting and len(working) < options.pairs and waiting[0][0] <= time.monotonic():
            _, chunk, again = heapq.heappop(waiting)
            command = [os.fsencode(options.program), b"fleet", b"run-chunk"]
            command += [os.fsencode(options.run), str(chunk).encode()]
            log = os.fsencode(log_of(options, chunk))
            task = client.submit(netblt_run_chunk, command, log, places, stop, pure=False)
            working[task] = (chunk, again)
        if not working:
            time.sleep(0.2)
            continue
        for task in first_of(list(working)):
            chunk, again = working.pop(task)
            words, hope = ended(task)
            if words is None or stopped is not None:
                continue
            if hope and again < options.requeues:
                emit("note", f"chunk {chunk}: {words}; it is started again")
                pause = min(2.0**again, 120) * random.uniform(0.5, 1)
                heapq.heappush(waiting, (time.monotonic() + pause, chunk, again + 1))
            else:
                emit("note", f"chunk {chunk}: {words}; see {log_of(options, chunk)}")
    stop.clear()
    if places.get_value() == 0:
        places.close()


def connected(options):
    """A client of the scheduler that was named, or of a cluster of this machine's own."""
    address = options.scheduler or dask.config.get("scheduler-address", None)
    if options.scheduler_file:
        # Dask would wait for it without a word.
        if not os.path.exists(options.scheduler_file):
            raise OSError(f"{options.scheduler_file} does not exist: a scheduler writes it")
        return Client(scheduler_file=options.scheduler_file)
    if address:
        return Client(address)
    cluster = LocalCluster(
        n_workers=1, threads_per_worker=options.pairs, processes=False, dashboard_address=None
    )
    return Client(cluster)


def main():
    parser = argparse.ArgumentParser(prog="netblt fleet submit --engine dask --", add_help=False)
    parser.add_argument("program", help=argparse.SUPPRESS)
    parser.add_argument("run", help=argparse.SUPPRESS)
    parser.add_argument("id", help=argparse.SUPPRESS)
    parser.add_argument("pairs", type=int, help=argparse.SUPPRESS)
    parser.add_argument("requeues", type=int, help=argparse.SUPPRESS)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("-s", "--scheduler", metavar="ADDRESS")
    where.add_argument("-f", "--scheduler-file", metavar="FILE")
    options = parser.parse_args()
    # Names of files may be any bytes.
    sys.stdout.reconfigure(errors="backslashreplace")
    chunks = [int(line) for line in sys.stdin]
    try:
        client = connected(options)
    except (OSError, ValueError) as error:
        emit("why", f"no scheduler of Dask's: {error}")
        sys.exit(1)
    if not client.scheduler_info()["workers"]:
        emit("note", "Dask has no workers yet; the tasks wait for one")
    stopping = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: stopping.append(number))
    try:
        drive(client, options, chunks, stopping)
    except OSError as error:
        emit("why", f"Dask: {error}")
        sys.exit(1)
    client.close()
    if client.cluster is not None:
        client.cluster.close()


if __name__ == "__main__":
    main()
