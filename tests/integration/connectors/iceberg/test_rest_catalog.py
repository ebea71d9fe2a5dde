"""The iceberg sink with a REST catalog: lost responses, and secrets that must not be disclosed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.errors import FencedError, SinkError
from airflow_provider_ckpt.core.next_schema_version import StepKind, TargetStep
from tests.integration.connectors.batches import expected
from tests.integration.connectors.iceberg.iceberg_harness import TABLE, IcebergHarness
from tests.integration.connectors.iceberg.test_schema_changes import started
from tests.integration.connectors.interruptions import before, once
from tests.integration.connectors.two_phase.harness import Run
from tests.integration.connectors.two_phase.test_schema_changes import NOTE, numbers, version
from tests.services.iceberg import IcebergService
from tests.services.iceberg_rest import TOKEN, RestCatalog, rest_catalog


@dataclass(frozen=True)
class RestService(IcebergService):
    """A catalog that is reached by way of a REST server."""

    uri: str = ""
    token: str = TOKEN

    @property
    def connection(self) -> Connection:
        return Connection("lake", "generic", password=self.token, extra={"type": "rest", "uri": self.uri})


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestCatalog]:
    with rest_catalog(IcebergService(tmp_path)) as server:
        yield server


@pytest.fixture
def table(server: RestCatalog) -> IcebergHarness:
    folder = server.lake.folder
    return IcebergHarness(folder, RestService(folder, uri=server.uri))


def test_batches_are_delivered_with_their_receipts(table: IcebergHarness) -> None:
    run = Run(table).fence()
    run.sink.check()

    outcomes = [*run.send(0, 1), *run.send(1, 2)]

    assert [outcome.receipt_existed for outcome in outcomes] == [False, False, True, False]
    assert run.receipted == [0, 1, 2]
    assert table.ids() == expected(0, 1, 2)
    assert run.sink.target_rows() == 30


def test_a_commit_prepared_before_the_fence_is_refused(
    table: IcebergHarness, server: RestCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale, new = Run(table, epoch=1).fence(), Run(table, epoch=2)
    staged = stale.stage(0)
    with monkeypatch.context() as patch:
        from pyiceberg.catalog.rest import RestCatalog as Client

        patch.setattr(Client, "commit_table", before(Client.commit_table, once(new.fence)))
        with pytest.raises(FencedError):
            stale.commit(*staged)

    assert new.sink.claims().epoch == 2
    assert (new.receipted, table.ids(), len(table.files())) == ([], [], 1)


@pytest.mark.parametrize("status", [409, 500, 503, 504])
def test_an_answer_that_is_lost_costs_nothing(table: IcebergHarness, server: RestCatalog, status: int) -> None:
    run = Run(table).fence()
    run.send(0)

    server.lose_answers(status)
    (outcome,) = run.send(1)

    assert (outcome.outcome, outcome.receipt_existed) == (AttemptOutcome.DELIVERED, False)
    assert table.ids() == expected(0, 1)
    assert table.files() == table.known_files()
    assert run.send(2)[0].outcome is AttemptOutcome.DELIVERED


def test_a_wrong_token_fails_the_sink_as_a_whole_and_is_not_told(server: RestCatalog) -> None:
    folder = server.lake.folder
    wrong = IcebergHarness(folder, RestService(folder, uri=server.uri, token="wr0ng"))

    with pytest.raises(SinkError, match="Correct the connection's credentials") as raised:
        Run(wrong).sink.check()

    assert raised.value.is_outage
    assert "wr0ng" not in str(raised.value)


def test_the_table_is_the_other_catalog_s_too(table: IcebergHarness, server: RestCatalog) -> None:
    Run(table).fence().send(0)

    opened = server.lake.table(TABLE)
    assert opened is not None
    assert opened.scan().to_arrow().num_rows == 10


def test_columns_are_changed_with_the_receipt_of_their_version(
    table: IcebergHarness, server: RestCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = started(table)
    steps = [
        TargetStep(StepKind.RENAME, "size", "amount"),
        TargetStep(StepKind.WIDEN, "amount", "bigint", "bigint"),
        NOTE,
    ]
    with monkeypatch.context() as patch:
        from pyiceberg.catalog.rest import RestCatalog as Client

        rival = once(lambda: table.add_column("theirs"))
        patch.setattr(Client, "commit_table", before(Client.commit_table, rival))
        run.sink.apply_schema_version(1, version(2), steps)
    server.lose_answers(500)
    run.sink.apply_schema_version(1, version(3), [TargetStep(StepKind.ADD, "more", "", "int")])

    kinds = {field.name: str(field.field_type) for field in table.opened.schema().fields}
    assert kinds.items() >= {"amount": "long", "note": "string", "theirs": "string", "more": "int"}.items()
    assert numbers(run) == [1, 2, 3]
    assert [row["amount"] for row in table.rows()] == [5] * 10
