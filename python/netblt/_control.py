"""What acts on transfers while they run."""

from __future__ import annotations

import threading

from netblt._netblt import Call, Job


class Cancel:
    """Stops transfers from any thread or signal handler: all that it was given to."""

    def __init__(self) -> None:
        # A signal handler may come in between.
        self._lock = threading.RLock()
        self._jobs: set[Job | Call] = set()
        self._wanted = 0

    def cancel(self) -> None:
        """Asks them to stop; each tells its other end, and raises
        :class:`netblt.errors.StoppedError`."""
        self._want(1)

    def hurry(self) -> None:
        """Asks them to stop without waiting for anybody."""
        self._want(2)

    @property
    def cancelled(self) -> bool:
        """Whether that was asked for."""
        return self._wanted > 0

    def _want(self, how_much: int) -> None:
        with self._lock:
            self._wanted = max(self._wanted, how_much)
            for job in self._jobs:
                self._tell(job)

    def _tell(self, job: Job | Call) -> None:
        if self._wanted > 1:
            job.hurry()
        elif self._wanted == 1:
            job.cancel()

    def _add(self, job: Job | Call) -> None:
        with self._lock:
            self._jobs.add(job)
            self._tell(job)

    def _discard(self, job: Job | Call) -> None:
        with self._lock:
            self._jobs.discard(job)
