"""fsspec's own suites, run on a server of files."""

from __future__ import annotations

import posixpath
from typing import Any, Callable

import pytest
from conftest import Served

pytest.importorskip("fsspec")
abstract = pytest.importorskip("fsspec.tests.abstract")


class Fixtures(abstract.AbstractFixtures):  # type: ignore[misc, name-defined]
    @pytest.fixture
    def fs(self, shared: Served) -> Any:
        from netblt.fsspec import NetbltFileSystem

        return NetbltFileSystem(**shared.where, **shared.proof, skip_instance_cache=True)

    @pytest.fixture
    def fs_path(self) -> str:
        return "/"

    @pytest.fixture
    def fs_join(self) -> Callable[..., str]:
        return posixpath.join

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return True


class TestCopy(abstract.AbstractCopyTests, Fixtures):  # type: ignore[misc, name-defined]
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):  # type: ignore[misc, name-defined]
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):  # type: ignore[misc, name-defined]
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):  # type: ignore[misc, name-defined]
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):  # type: ignore[misc, name-defined]
    pass
