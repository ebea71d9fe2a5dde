"""The iceberg sink behind a REST catalog, whose answers can get lost and whose secrets are nobody's business."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.errors import FencedError, SinkError
from tests.integration.connectors.delta.delta_support import before, expected, once
from tests.integration.connectors.iceberg.iceberg_support import TABLE, Run, data_files, ids, known_files
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
def lake(server: RestCatalog) -> RestService:
    return RestService(server.lake.folder, uri=server.uri)


def test_batches_are_delivered_with_their_receipts(lake: RestService) -> None:
    run = Run(lake).fence()
    run.sink.check()

    outcomes = [*run.send(0, 1), *run.send(1, 2)]

    assert [outcome.found for outcome in outcomes] == [False, False, True, False]
    assert run.receipted == [0, 1, 2]
    assert ids(lake) == expected(0, 1, 2)
    assert run.sink.target_rows() == 30


def test_a_commit_prepared_before_the_fence_is_refused(
    lake: RestService, server: RestCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale, new = Run(lake, epoch=1).fence(), Run(lake, epoch=2)
    staged = stale.stage(0)
    with monkeypatch.context() as patch:
        from pyiceberg.catalog.rest import RestCatalog as Client

        patch.setattr(Client, "commit_table", before(Client.commit_table, once(new.fence)))
        with pytest.raises(FencedError):
            stale.committer.commit(staged)

    assert new.sink.claims().epoch == 2
    assert (new.receipted, ids(lake), len(data_files(lake))) == ([], [], 1)


@pytest.mark.parametrize("status", [409, 500, 503, 504])
def test_an_answer_that_is_lost_costs_nothing(lake: RestService, server: RestCatalog, status: int) -> None:
    run = Run(lake).fence()
    run.send(0)

    server.lose_answers(status)
    (outcome,) = run.send(1)

    assert (outcome.outcome, outcome.found) == (AttemptOutcome.DELIVERED, False)
    assert ids(lake) == expected(0, 1)
    assert data_files(lake) == known_files(lake)
    assert run.send(2)[0].outcome is AttemptOutcome.DELIVERED


def test_a_wrong_token_fails_the_sink_as_a_whole_and_is_not_told(lake: RestService) -> None:
    with pytest.raises(SinkError, match="Correct the connection's secrets") as raised:
        Run(RestService(lake.folder, uri=lake.uri, token="wr0ng")).sink.check()

    assert raised.value.whole
    assert "wr0ng" not in str(raised.value)


def test_the_table_is_the_other_catalog_s_too(lake: RestService, server: RestCatalog) -> None:
    Run(lake).fence().send(0)

    table = server.lake.table(TABLE)
    assert table is not None
    assert table.scan().to_arrow().num_rows == 10
