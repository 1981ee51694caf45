"""Arrays on a server of files, read and written through fsspec by zarr and by xarray."""

from __future__ import annotations

import random
from typing import Any, Dict

import pytest
from conftest import Served

pytest.importorskip("fsspec")
zarr: Any = pytest.importorskip("zarr", minversion="3.0")
numpy: Any = pytest.importorskip("numpy")

SHAPE, CHUNKS = (60, 40), (16, 16)


def known() -> Any:
    """Values none of which is another's, and none a fill value."""
    return numpy.arange(1, 1 + SHAPE[0] * SHAPE[1], dtype="f8").reshape(SHAPE)


def opened(server: Served, path: str, **more: Any) -> Any:
    options: Dict[str, Any] = dict(server.proof)
    return zarr.storage.FsspecStore.from_url(server.url + path, storage_options=options, **more)


@pytest.mark.parametrize("format", [2, 3])
def test_what_zarr_wrote_on_the_disk_is_read_from_the_server(format: int, shared: Served) -> None:
    place = shared.root / f"read-{format}.zarr"
    group = zarr.open_group(place, mode="w", zarr_format=format)
    local = group.create_array("a", shape=SHAPE, chunks=CHUNKS, dtype="f8", fill_value=-1)
    local[:32] = known()[:32]
    local.attrs["unit"] = "K"

    there = zarr.open_group(opened(shared, f"/{place.name}", read_only=True), mode="r")
    array = there["a"]
    assert array.attrs["unit"] == "K" and array.shape == SHAPE and sorted(there) == ["a"]
    assert (array[:32] == known()[:32]).all()
    # Chunks that nobody wrote are not there, and read as what fills them.
    assert (array[32:] == -1).all()
    chance = random.Random(format)
    for _ in range(10):
        rows, columns = (sorted(chance.sample(range(size), 2)) for size in SHAPE)
        cut = (slice(*rows), slice(*columns))
        assert (array[cut] == local[cut]).all(), (format, cut)


def test_what_zarr_writes_to_the_server_is_on_its_disk(shared: Served) -> None:
    store = opened(shared, "/written.zarr")
    group = zarr.open_group(store, mode="w")
    array = group.create_array("a", shape=SHAPE, chunks=CHUNKS, dtype="f8", fill_value=-1)
    array[:] = known()
    array[5, 7] = 0.5
    group.create_array("gone", shape=(1,), dtype="i4")
    del group["gone"]

    local = zarr.open_group(shared.root / "written.zarr", mode="r")
    expected = known()
    expected[5, 7] = 0.5
    assert (local["a"][:] == expected).all() and sorted(local) == ["a"]


def test_shards_are_read_by_pieces(shared: Served) -> None:
    """An index at a shard's end, and what it points at: ranges from both ends of a file."""
    place = shared.root / "shards.zarr"
    shape = {"shape": SHAPE, "chunks": (8, 8), "shards": (32, 32)}
    local = zarr.create_array(place, dtype="f8", **shape)
    local[:] = known()
    array = zarr.open_array(opened(shared, f"/{place.name}", read_only=True), mode="r")
    assert (array[3:50, 9:33] == known()[3:50, 9:33]).all()


def test_xarray_reads_and_writes_a_data_set(shared: Served) -> None:
    xarray: Any = pytest.importorskip("xarray")
    rows, columns = SHAPE
    dimensions = {"time": numpy.arange(rows), "x": numpy.linspace(0, 1, columns)}
    data = xarray.DataArray(known(), dims=("time", "x"), coords=dimensions)
    ours = xarray.Dataset({"t": data})
    url, options = f"{shared.url}/set.zarr", dict(shared.proof)

    ours.to_zarr(url, storage_options=options, mode="w")
    on_disk = xarray.open_zarr(shared.root / "set.zarr", chunks=None)
    xarray.testing.assert_identical(on_disk.load(), ours)
    there = xarray.open_zarr(url, storage_options=options, chunks=None)
    assert (there["t"].sel(time=17).values == known()[17]).all()
    xarray.testing.assert_identical(there.load(), ours)
