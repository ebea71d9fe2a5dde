"""A run that fails releases its lease; if that fails too, the run's own error is raised."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from airflow_provider_ckpt.core.errors import LedgerUnavailableError, OffsetCommitError
from airflow_provider_ckpt.replication.run.run import Run


class Bare(Run):
    """A run with nothing but a lease and a ledger."""

    def __init__(self, ledger: Any) -> None:
        self.ledger = ledger
        self.lease = cast("Any", "the lease")
        self.pipeline = cast("Any", SimpleNamespace(name="orders"))
        self.bounds = {}
        self.summary = cast("Any", SimpleNamespace(spark_started=False, batches=0))
        self.looks = 0
        self.metrics = cast("Any", SimpleNamespace(report=self._looked))

    def close(self) -> None:
        """Nothing is open."""

    def _looked(self, *_: Any) -> None:
        self.looks += 1


@pytest.mark.parametrize(
    ("error", "recorded"),
    [
        (OffsetCommitError("not stored"), "[OffsetCommit] pipeline orders: not stored"),
        (ValueError("password=secret"), "ValueError; the log of the run has more"),
    ],
)
def test_a_run_that_fails_releases_its_lease_and_records_why(error: Exception, recorded: str) -> None:
    released: list[tuple[str, str]] = []

    def release(lease: str, *, error: str) -> None:
        released.append((lease, error))

    run = Bare(SimpleNamespace(release=release, partitions=lambda _: {}))
    with pytest.raises(type(error)), run:
        raise error

    assert released == [("the lease", recorded)]
    assert run.looks == 1


def test_a_ledger_that_is_gone_does_not_hide_why_the_run_failed() -> None:
    def gone(_: str, *, error: str) -> None:
        raise LedgerUnavailableError("no answer")

    with pytest.raises(OffsetCommitError, match="not stored"), Bare(SimpleNamespace(release=gone)):
        raise OffsetCommitError("not stored")
