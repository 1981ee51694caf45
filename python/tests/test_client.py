"""A server of files, asked with obstore's verbs, and through fsspec."""

from __future__ import annotations

import asyncio
import importlib.metadata
import io
import os
import pickle
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import netblt
import pytest
from conftest import LIMIT, Served, program, threads, until
from netblt import errors


def test_files_come_and_go(server: Served) -> None:
    client = server.client()
    data = os.urandom(3_000_000)
    assert client.put("a/b/file", data).verified
    assert (server.root / "a/b/file").read_bytes() == data
    got = client.get("/a//b/file")
    assert got.bytes() == data and got.meta["size"] == len(data) and got.meta["path"] == "a/b/file"
    assert client.head("a/b/file") == got.meta
    assert client.get_range("a/b/file", start=10, end=30) == data[10:30]
    assert client.get_range("a/b/file", start=len(data) - 5, length=100) == data[-5:]
    ranges = client.get_ranges("a/b/file", starts=[0, 2_000_000], lengths=[3, 4])
    assert ranges == [data[:3], data[2_000_000:2_000_004]]
    client.put("stream", io.BytesIO(b"given"))
    client.put("path", server.root / "stream")
    assert client.get("path").bytes() == b"given"
    with pytest.raises(FileExistsError):
        client.put("path", b"x", overwrite=False)

    client.copy("stream", "a/copy")
    client.rename("path", "a/moved")
    with pytest.raises(FileExistsError):
        client.rename("a/copy", "a/moved", overwrite=False)
    assert [one["path"] for one in client.list()] == ["a/b/file", "a/copy", "a/moved", "stream"]
    assert client.list("none") == [] and len(client.list("stream")) == 1
    found = client.list_with_delimiter("a")
    assert found["common_prefixes"] == ["a/b"]
    assert [one["path"] for one in found["objects"]] == ["a/copy", "a/moved"]
    client.delete(["a/copy", "a/moved"])
    client.delete("a", tree=True)
    assert os.listdir(server.root) == ["stream"]
    # From a path in the address on.
    client.make_directory("deep/er", parents=True)
    below = server.client("/deep")
    below.put("er/x", b"1")
    assert [one["path"] for one in below.list()] == ["er/x"]
    assert below.list_with_delimiter()["common_prefixes"] == ["er"]


def test_what_goes_wrong_is_pythons_own(server: Served) -> None:
    client = server.client()
    (server.root / "d/e").mkdir(parents=True)
    for call, kind in (
        (lambda: client.get("none"), FileNotFoundError),
        (lambda: client.head("none"), FileNotFoundError),
        (lambda: client.head("d"), FileNotFoundError),
        (lambda: client.get("d"), IsADirectoryError),
        (lambda: client.delete("d"), IsADirectoryError),
        (lambda: client.delete("d", directory=True), OSError),
        (lambda: client.rename("none", "x"), FileNotFoundError),
        (lambda: client.get("../x"), ValueError),
    ):
        with pytest.raises(kind) as raised:
            call()
        assert isinstance(raised.value, netblt.NetbltError), raised
        assert not raised.value.retryable
        assert type(pickle.loads(pickle.dumps(raised.value))) is type(raised.value)
    found = client.read_pieces([("none", 0, 1), ("d", 0, None)])
    assert [type(one) for one in found] == [errors.NotFoundError, errors.IsADirectoryError]
    with pytest.raises(ValueError, match="netblt://"):
        netblt.Client("http://host/")


def test_a_server_that_may_only_be_read(read_only: Served) -> None:
    client = read_only.client()
    (read_only.root / "f").write_bytes(b"x")
    assert client.get("f").bytes() == b"x"
    for call in (lambda: client.put("g", b"x"), lambda: client.copy("f", "g")):
        with pytest.raises(PermissionError):
            call()


def test_tasks_ask_too(server: Served) -> None:
    client = server.client()

    async def main() -> None:
        datas = [os.urandom(10_000) for _ in range(8)]
        await asyncio.gather(*(client.put_async(f"f{n}", d) for n, d in enumerate(datas)))
        got = await asyncio.gather(*(client.get_async(f"f{n}") for n in range(8)))
        assert [one.bytes() for one in got] == datas
        pieces = await client.read_pieces_async([(f"f{n}", n, 5) for n in range(8)])
        assert pieces == [data[n : n + 5] for n, data in enumerate(datas)]
        await client.copy_async("f0", "g")
        await client.rename_async("g", "h")
        assert (await client.head_async("h"))["size"] == 10_000
        assert len(await client.list_async()) == 9
        await client.delete_async("h")
        listed = await client.list_with_delimiter_async()
        assert len(listed["objects"]) == 8
        assert await client.get_range_async("f1", start=1, length=2) == datas[1][1:3]
        # Tasks that are cancelled, each at another moment, leave nothing.
        for number in range(10):
            task = asyncio.create_task(client.put_async(f"late{number}", bytes(5_000_000)))
            await asyncio.sleep(number / 100)
            task.cancel()
            with pytest.raises((asyncio.CancelledError, AssertionError)):
                await task
                raise AssertionError("it was through")

    asyncio.run(main())
    # Left alone its session would stay for a minute.
    client.close()
    until(lambda: threads() == [], "all is over")
    for path in server.root.glob("late*"):
        assert path.stat().st_size == 5_000_000


def test_however_much_is_put_at_once_all_of_it_comes(server: Served) -> None:
    client, count = server.client(), 150
    client.make_directory("t")
    datas = [os.urandom(1000 + number) for number in range(count)]

    async def one(number: int) -> None:
        await client.put_async(f"t/{number}", datas[number])
        assert (await client.get_async(f"t/{number}")).bytes() == datas[number]

    async def many() -> None:
        await asyncio.gather(*(one(number) for number in range(count)))

    asyncio.run(many())

    # Of a length that nobody knows beforehand, and from threads.
    def stream(number: int) -> None:
        client.put(f"t/{number}", io.BytesIO(datas[number] * 2))

    with ThreadPoolExecutor(48) as pool:
        for _ in pool.map(stream, range(96)):
            pass
    for number, data in enumerate(datas):
        assert (server.root / f"t/{number}").read_bytes() == data * (1 + (number < 96))
    client.close()


def test_what_is_put_gets_that_name_and_no_other(server: Served, tmp_path: Path) -> None:
    client = server.client()
    client.make_directory("d")
    (tmp_path / "own").write_bytes(b"x")
    for path in ("d", "", "/"):
        for data in (b"x", io.BytesIO(b"x"), tmp_path / "own"):
            with pytest.raises(IsADirectoryError):
                client.put(path, data)
    assert os.listdir(server.root) == ["d"] and os.listdir(server.root / "d") == []
    assert client.put("d/other", tmp_path / "own").verified
    assert client.get("d/other").bytes() == b"x"
    client.close()


def test_trees_are_copied_by_address(server: Served, tmp_path: Path) -> None:
    (tree := tmp_path / "tree").mkdir()
    (tree / "f").write_bytes(b"leaf")
    where = server.url
    summary = netblt.copy(str(tree), f"{where}/twin", **server.proof)
    assert summary is not None and summary.verified
    assert netblt.copy(f"{where}/twin", f"{where}/third", **server.proof) is None
    (into := tmp_path / "into").mkdir()
    back = netblt.copy(f"{where}/third", str(into), **server.proof)
    assert back is not None and back.verified and (into / "third/f").read_bytes() == b"leaf"
    with pytest.raises(ValueError):
        netblt.copy("here", "there")


def test_a_client_is_pickled_without_secrets(server: Served) -> None:
    pickled = pickle.dumps(server.client())
    assert b"netblt1" not in pickled
    again = pickle.loads(pickled)
    again.put("f", b"x")
    assert again.get("f").bytes() == b"x"


def test_a_child_of_fork_asks(server: Served) -> None:
    client = server.client()
    client.put("f", b"x")
    child = os.fork()
    if child == 0:
        os._exit(0 if client.get("f").bytes() == b"x" else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert client.get("f").bytes() == b"x"


def test_what_a_client_asks_it_asks_in_one_session(server: Served) -> None:
    with server.client() as client:
        for number in range(20):
            client.put(f"f{number}", b"x" * number)
        assert len(client.list("")) == 20
        pieces = client.get_ranges("f19", starts=list(range(19)), lengths=[1] * 19)
        assert pieces == [b"x"] * 19
    # It is opened again when something is asked.
    assert client.head("f7")["size"] == 7
    client.close()
    # Announcements, what is put, lists, a read and a stat.
    peers = [line["peer"] for line in server.requests(44)]
    assert len(peers) == 44 and len(set(peers)) == 2


@pytest.mark.parametrize("times", (1, 3))
def test_a_client_may_be_closed_by_what_it_reads(server: Served, times: int) -> None:
    client = server.client()
    pieces = [b"x" * 1000] * times

    class Closing:
        def read(self, count: int) -> bytes:
            client.close()
            return pieces.pop() if pieces else b""

    # One that hangs is not waited for.
    put = threading.Thread(target=lambda: client.put("f", Closing()), daemon=True)
    put.start()
    put.join(LIMIT)
    assert not put.is_alive(), "it waits for itself"
    assert client.get("f").bytes() == b"x" * 1000 * times
    client.close()
    until(lambda: threads() == [], "all is over")


def test_files_of_any_year_are_listed(tmp_path: Path) -> None:
    # Of file systems only some keep such years: this one does, where it is.
    memory = Path("/dev/shm")
    place = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else tmp_path))
    server = Served(place)
    try:
        seconds = {"f": 300_000_000_000, "g": -70_000_000_000, "h": 1_000_000_000}
        for name, at in seconds.items():
            (server.root / name).write_bytes(b"x")
            os.utime(server.root / name, (at, at))
        with server.client() as client:
            found = {one["path"]: one["last_modified"].year for one in client.list()}
            kept = {name: int((server.root / name).stat().st_mtime) for name in seconds}
            assert found["h"] == 2001
            assert found["f"] == (9999 if kept["f"] == seconds["f"] else found["f"])
            assert found["g"] == (1 if kept["g"] == seconds["g"] else found["g"])
            assert client.entries()[0].modified_ns == kept["f"] * 10**9
            assert client.head("f")["last_modified"].year == found["f"]
    finally:
        server.stop()
        shutil.rmtree(place)


def test_times_beyond_a_datetime_are_its_nearest() -> None:
    for seconds, year in ((1 << 62, 9999), (253_402_300_800, 9999), (-(1 << 62), 1), (0, 1970)):
        entry = (b"f", "file", 1, seconds, 999_999_999, 0o644)
        assert netblt._client._meta("f", entry)["last_modified"].year == year


def test_names_are_bytes(server: Served, tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    (server.root / "d").mkdir()
    client = server.client()
    client.put(f"d/{name}", b"x")
    assert os.listdir(os.fsencode(server.root / "d")) == [b"caf\xe9"]
    assert [one["path"] for one in client.list()] == [f"d/{name}"]
    assert client.list_with_delimiter("d")["objects"][0]["path"] == f"d/{name}"
    assert client.entries("d")[0].name == name
    assert client.head(f"d/{name}")["path"] == f"d/{name}"
    assert client.get(b"d/caf\xe9").bytes() == b"x"
    client.put(f"d/{name}2", io.BytesIO(b"y"))
    client.upload(tmp_path / name if (tmp_path / name).write_bytes(b"z") else [])
    assert client.get(name).bytes() == b"z"
    client.download(f"d/{name}", tmp_path, name=f"{name}3")
    assert (tmp_path / f"{name}3").read_bytes() == b"x"
    for path in (f"d/{name}", "d/caf%E9"):
        (into := tmp_path / f"into{path.count('%')}").mkdir()
        netblt.copy(f"{server.url}/{path}", str(into), **server.proof)
        assert os.listdir(os.fsencode(into)) == [b"caf\xe9"]
        assert server.client(f"/{path}").get("").bytes() == b"x"
    with pytest.raises(FileNotFoundError) as raised:
        client.upload(tmp_path / f"{name}-none")
    assert str(raised.value.filename).endswith("-none")
    client.close()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system in memory with 8 MiB."""
    (place := tmp_path / "small").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a file system cannot be mounted")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("path", ["tree", "tree/a"])
def test_a_download_looks_for_room(server: Served, small: Path, path: str) -> None:
    (server.root / "tree").mkdir()
    (server.root / "tree/a").write_bytes(os.urandom(20_000_000))
    client = server.client()
    with pytest.raises(errors.NoRoomError, match="not enough space: 19.07 MiB needed"):
        client.download(path, small)
    assert os.listdir(small) == []
    (server.root / "tree/a").write_bytes(b"small")
    assert client.download(path, small).verified
    client.close()


def test_the_version_is_that_of_package_and_program() -> None:
    assert netblt.__version__ == importlib.metadata.version("netblt")
    told = subprocess.run([program(), "--version"], capture_output=True, text=True, check=True)
    assert told.stdout.split()[:2] == ["netblt", netblt.__version__]


def test_the_readme_is_right(server: Served) -> None:
    page = (Path(__file__).parent.parent / "README.md").read_text()
    blocks = [part.partition("```")[0] for part in page.split("```python\n")[1:]]
    text = next(block for block in blocks if "netblt.Client(" in block)
    given = '"netblt://server/data", key="~/.config/netblt/key"'
    assert given in text
    (server.root / "data").mkdir()
    own = f'"{server.url}/data", ticket_file="{server.proof["ticket_file"]}"'
    exec(text.replace(given, own), {})
    assert (server.root / "data/2026/run.bin").read_bytes() == b"0123456789"
    assert os.listdir(server.root / "data") == ["2026"]


def test_fsspec_finds_it_by_its_address(server: Served) -> None:
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open(f"{server.url}/d/new", "wb", **server.proof) as file:
        file.write(b"0123456789" * 1000)
        file.write(b"end")
    fs, path = fsspec.core.url_to_fs(f"{server.url}/d/new", **server.proof)
    assert type(fs).__name__ == "NetbltFileSystem" and path == "/d/new"
    with fs.open(path) as file:
        file.seek(9_995)
        assert file.read() == b"56789end"
    assert fs.cat_ranges([path, path, "/none"], [0, 5, 0], [3, None, 1])[0] == b"012"
    assert b"netblt1" not in pickle.dumps(fs)
    assert pickle.loads(pickle.dumps(fs)).cat_file(path, start=-3) == b"end"
    fs.mv("/d", "/e", recursive=True)
    assert fs.ls("/e", detail=False) == ["/e/new"] and fs.find("/") == ["/e/new"]
    assert fs.created("/e/new") == fs.modified("/e/new")
