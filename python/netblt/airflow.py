"""Copies for Airflow, which take no worker's place while they run::

    NetbltCopyOperator(
        task_id="fetch",
        source="netblt://server/data/{{ ds }}",
        destination="/srv/incoming",
        key="/etc/netblt/key",
    )

The operator defers: the transfer runs in the event loop of a triggerer, beside others, by
:func:`netblt.copy_async`. A triggerer that restarts begins it again, and the copy resumes from
what has arrived. It needs Airflow from 2.9 on, which ``pip install netblt[airflow]`` brings.
"""

# Whoever checks types may have no Airflow.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any, AsyncIterator, Dict, Tuple

from airflow.triggers.base import BaseTrigger, TriggerEvent

from netblt._control import Cancel
from netblt._copy import copy, copy_async
from netblt._netblt import Summary
from netblt._options import Options
from netblt.errors import NetbltError

# Each at its newer place first: Airflow 2 has neither, and early 3 has no errors there.
try:
    from airflow.sdk import BaseOperator
except ImportError:
    from airflow.models import BaseOperator  # type: ignore[no-redef, unused-ignore]
try:
    from airflow.sdk.exceptions import AirflowException, AirflowFailException
except ImportError:
    from airflow.exceptions import (  # type: ignore[no-redef, attr-defined, unused-ignore]
        AirflowException,
        AirflowFailException,
    )

__all__ = ["NetbltCopyOperator", "NetbltCopyTrigger"]


class NetbltCopyTrigger(BaseTrigger):  # type: ignore[misc, unused-ignore]
    """One copy, in the event loop of a triggerer.

    What Airflow keeps of it are addresses and names of files: no key and no ticket. Whoever stops
    it, by cancelling its task, stops the transfer; what has arrived stays for the next attempt.
    """

    def __init__(
        self,
        source: str,
        destination: str,
        tree: bool = True,
        client: Dict[str, str] | None = None,
        options: Dict[str, Any] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self.source = source
        self.destination = destination
        self.tree = tree
        self.client = client or {}
        self.options = options or {}

    def serialize(self) -> Tuple[str, Dict[str, Any]]:
        """The arguments from which another triggerer, or this one after a restart, makes it again."""
        kept = ("source", "destination", "tree", "client", "options")
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {name: getattr(self, name) for name in kept},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Copies, and tells once how it ended."""
        try:
            summary = await copy_async(
                self.source,
                self.destination,
                tree=self.tree,
                options=Options(**self.options),
                **self.client,
            )
        except (NetbltError, ValueError) as error:
            yield _event({"error": str(error), "retryable": _is_retryable(error)})
        else:
            yield _event({"summary": _told(summary)})


class NetbltCopyOperator(BaseOperator):  # type: ignore[misc, unused-ignore]
    """What :func:`netblt.copy` does, as a task: between a server of files (``netblt serve``) and
    this machine, or within a server.

    A path here is one of the machine on which the triggerer runs, and so are the names of ``key``,
    ``ticket_file`` and ``known_servers``, which are what :class:`netblt.Client` takes; with
    ``deferrable=False`` the worker copies, and they are its own. The task's result is how the
    transfer went, as a dictionary, and nothing for a copy within a server.

    What may go well later fails the task so that Airflow's ``retries`` hold, and goes on with what
    has arrived; what will not fails it for good.
    """

    template_fields = ("source", "destination", "key", "ticket_file", "known_servers")
    ui_color = "#d6e8ee"

    def __init__(
        self,
        *,
        source: str,
        destination: str,
        key: str | None = None,
        ticket_file: str | None = None,
        known_servers: str | None = None,
        tree: bool = True,
        options: Options | None = None,
        deferrable: bool = True,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        self.source = source
        self.destination = destination
        self.key = key
        self.ticket_file = ticket_file
        self.known_servers = known_servers
        self.tree = tree
        self.options = options
        self.deferrable = deferrable
        self._cancel: Cancel | None = None

    def execute(self, context: Any) -> Dict[str, Any] | None:
        """Hands the copy to a triggerer, or copies."""
        if self.deferrable:
            # In Airflow 3 a deferred task has no other limit of time.
            self.defer(
                trigger=NetbltCopyTrigger(
                    self.source,
                    self.destination,
                    self.tree,
                    self._client(),
                    _plain(self.options or Options()),
                ),
                method_name="execute_complete",
                timeout=self.execution_timeout,
            )
        # Not before: a copy of the operator is made for each run, which a lock does not survive.
        self._cancel = Cancel()
        try:
            summary = copy(
                self.source,
                self.destination,
                tree=self.tree,
                options=self.options,
                cancel=self._cancel,
                **self._client(),
            )
        except (NetbltError, ValueError) as error:
            raise _failure(str(error), _is_retryable(error)) from error
        finally:
            self._cancel = None
        return _told(summary)

    def execute_complete(self, context: Any, event: Dict[str, Any]) -> Dict[str, Any] | None:
        """Comes back with what the trigger told."""
        if "error" in event:
            raise _failure(event["error"], event["retryable"])
        summary: Dict[str, Any] | None = event["summary"]
        return summary

    def on_kill(self) -> None:
        """Stops the copy of a worker; that of a triggerer is stopped with its trigger."""
        if self._cancel is not None:
            self._cancel.cancel()

    def _client(self) -> Dict[str, str]:
        names = ("key", "ticket_file", "known_servers")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def _event(told: Dict[str, Any]) -> TriggerEvent:
    return TriggerEvent(told)  # type: ignore[no-untyped-call, unused-ignore]


def _is_retryable(error: Exception) -> bool:
    return isinstance(error, NetbltError) and error.retryable


def _failure(text: str, retryable: bool) -> Exception:
    failure: Exception = AirflowException(text) if retryable else AirflowFailException(text)
    return failure


def _told(summary: Summary | None) -> Dict[str, Any] | None:
    """What of a summary other tasks are told, in JSON's types."""
    if summary is None:
        return None
    names = ("bytes", "kept", "files", "skipped", "elapsed", "real_bps", "verified")
    found = {name: getattr(summary, name) for name in names}
    return {**found, "digest": summary.digest.hex(), "limited_by": summary.limited_by}


def _plain(options: Options) -> Dict[str, Any]:
    """What differs from the options that nobody gives, in JSON's types."""
    ordinary, found = Options(), {}
    for field in fields(options):
        value = getattr(options, field.name)
        if value == getattr(ordinary, field.name):
            continue
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        elif isinstance(value, tuple):
            value = list(value)
        found[field.name] = value
    return found
