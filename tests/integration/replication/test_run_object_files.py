"""Runs from objects to a Delta table in the same store, on a real Spark: each record once, in each format."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.core.receipt import Counts
from tests.integration.connectors.files.object_source_support import parquet
from tests.services.http_proxy import Fault, HttpProxy
from tests.services.ledgers import make_ledger
from tests.services.object_store import ObjectStoreServer
from tests.services.object_stores import ObjectStores
from tests.services.postgres import PostgresServer
from tests.services.replication import Replication

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_provider_ckpt.ledger.ledger import Ledger


@pytest.fixture
def ledger(postgres_server: PostgresServer) -> Iterator[Ledger]:
    with make_ledger(postgres_server) as ledger:
        yield ledger


def _content(form: str, first: int, count: int) -> bytes:
    ids = range(first, first + count)
    if form == "parquet":
        return parquet(pa.table({"id": pa.array(ids, pa.int64())}))
    lines = [b'{"id": %d}\n' % number if form == "jsonl" else b"%d\n" % number for number in ids]
    return b"".join([b"id\n" if form == "csv" else b"", *lines])


@pytest.mark.parametrize(("form", "kind"), [("jsonl", "versitygw"), ("csv", "azurite"), ("parquet", "fake-gcs")])
def test_every_object_is_delivered_once(
    spark: SparkSession, ledger: Ledger, object_stores: ObjectStores, form: str, kind: str
) -> None:
    store = object_stores.get(kind)
    decoded = {} if form == "parquet" else {"decode": "json" if form == "jsonl" else "csv"}
    with HttpProxy(store.client_port) as proxy:
        document = {
            "name": "objects",
            "source": {"type": "files", "path": store.url(f"run/{form}/**/*.x"), "connection": "lake", "format": form},
            "transform": {**decoded, "schema": "id bigint"},
            "sink": {"type": "delta", "path": store.url(f"table/{form}"), "connection": "lake"},
            "delivery": "exactly_once",
            "commit_strategy": {"commit_interval": 10},
        }
        run = Replication(spark, ledger, "", document, {"lake": store.connection(proxy.port)}).run
        store.put({f"run/{form}/{name}.x": _content(form, first, 25) for name, first in (("a", 0), ("day=1/b", 25))})
        proxy.storm(1, 0.1, [Fault.SLOW_DOWN, Fault.ERROR])

        assert run().records == Counts(50, 50, 0, 0)

        store.put({f"run/{form}/c.x": _content(form, 50, 25)})
        assert run().records == Counts(25, 25, 0, 0)

        proxy.calm()
        store.put({f"run/{form}/a.x": _content(form, 0, 1), f"run/{form}/d.x": _content(form, 75, 25)})
        with pytest.raises(CkptError, match=r"run/.*/a\.x was replaced after it was delivered") as failure:
            run()

    assert store.secret not in str(failure.value)
    assert _ids(store, f"table/{form}") == list(range(100)), "what is new is delivered all the same"


def _ids(store: ObjectStoreServer, table: str) -> list[int]:
    """Return the ids in all files that a Delta table has, which is never compacted here."""
    files = [data for key, data in store.objects(table).items() if key.endswith(".parquet") and "_delta_log" not in key]
    return sorted(number for data in files for number in pq.read_table(io.BytesIO(data))["id"].to_pylist())
