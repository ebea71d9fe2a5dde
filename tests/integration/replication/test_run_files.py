"""Runs from files to files on a real Spark: in every format each record is delivered once, and bad ones replayed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.core.lag import lag_positions
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.core.replayable_dead_letters import Selection
from airflow_provider_ckpt.engines.session import SessionEngine
from airflow_provider_ckpt.replication.actions.dead_letters import load_index, make_action, read_contents
from airflow_provider_ckpt.replication.actions.fenced_actions import apply_fenced_or_store
from airflow_provider_ckpt.replication.observe.lag import lag
from airflow_provider_ckpt.replication.run.acquire import acquire
from airflow_provider_ckpt.replication.run.replicate import replicate
from airflow_provider_ckpt.replication.turn import Turn
from tests.integration.connectors.files.files_sink_support import ids, rows, visible
from tests.integration.connectors.files.files_support import lines, put, put_rows
from tests.services.delta import read_delta
from tests.services.ledgers import make_ledger
from tests.services.postgres import PostgresServer
from tests.services.replication import Replication

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT = datetime(2024, 2, 29, 12, 30, 45, 123456, UTC)
ROWS = pa.table(
    {
        "id": pa.array([0, 1, 2], pa.int64()),
        "text": pa.array(['a,"b"\n é', " x ", None], pa.string()),
        "share": pa.array([0.1, -1.5e-7, None], pa.float64()),
        "price": pa.array([Decimal("12345678901234567.10"), Decimal("-0.01"), None], pa.decimal128(20, 2)),
        "at": pa.array([AT, AT, None], pa.timestamp("us", tz="UTC")),
        "day": pa.array([date(2024, 2, 29), date(1, 1, 1), None], pa.date32()),
        "yes": pa.array([True, False, None], pa.bool_()),
    }
)
SCHEMA = "id bigint, text string, share double, price decimal(20,2), at timestamp, day date, yes boolean"


class Folders:
    """A directory to read and one to write."""

    def __init__(self, replication: Replication, folder: Path) -> None:
        self.inbox, self.out = folder / "in", folder / "out"
        self.inbox.mkdir()
        document = {
            "name": "inbox",
            "source": {"type": "files", "path": str(self.inbox)},
            "transform": {"decode": "json", "schema": "id bigint"},
            "sink": {"type": "files", "path": str(self.out), "format": "jsonl"},
            "delivery": "exactly_once",
            "commit_strategy": {"commit_interval": 10},
        }
        self.replication = replace(replication, document=document)


@pytest.fixture
def folders(spark: SparkSession, postgres_server: PostgresServer, tmp_path: Path) -> Iterator[Folders]:
    with make_ledger(postgres_server) as ledger:
        yield Folders(Replication(spark, ledger, "", {}), tmp_path)


def stage(folders: Folders, name: str, before: Path, source: dict[str, Any], schema: str, form: str) -> Path:
    """Run a pipeline of its own from one directory to the next; where it wrote."""
    out = folders.out.with_name(name)
    text = source["format"] != "parquet"
    pipeline = folders.replication.changed(
        name=name,
        source={"path": str(before), **source},
        transform={
            "decode": "csv" if source["format"] == "csv" else "json" if text else None,
            "schema": schema or None,
        },
        sink={"path": str(out), "format": form},
    )
    assert pipeline.run().records == Counts(3, 3, 0, 0)
    return out


def test_every_format_is_read_back_as_it_was_written(folders: Folders) -> None:
    put_rows(folders.inbox / "a.parquet", ROWS)

    as_csv = stage(folders, "to-csv", folders.inbox, {"format": "parquet"}, "", "csv")
    as_json = stage(folders, "to-json", as_csv, {"format": "csv"}, SCHEMA, "jsonl")
    as_parquet = stage(folders, "to-parquet", as_json, {"format": "jsonl"}, SCHEMA, "parquet")

    assert comparable(rows(as_parquet)) == comparable(ROWS.to_pylist())


def comparable(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in which not-a-number is equal to itself."""
    return [{**row, "share": str(row["share"])} for row in found]


def test_rows_of_parquet_files_pass_through_a_transform_and_new_files_follow(folders: Folders) -> None:
    tags = pa.array([["x", None]] * 25, pa.list_(pa.string()))
    put_rows(folders.inbox / "a.parquet", pa.table({"id": range(25), "tags": tags}), at=1, group=8)
    replication = folders.replication.changed(
        source={"format": "parquet"},
        transform={"decode": None, "schema": None, "where": "id <> 3", "select": {"id": "id", "first": "tags[0]"}},
    )

    first, none = replication.run(), replication.run()
    put_rows(folders.inbox / "b.parquet", pa.table({"id": [25], "tags": tags[:1]}), at=2)
    second = replication.run()

    assert none.spark_started is False
    assert (first.records, second.records) == (Counts(25, 24, 1, 0), Counts(1, 1, 0, 0))
    assert ids(folders.out) == [number for number in range(26) if number != 3]
    assert {row["first"] for row in rows(folders.out)} == {"x"}
    assert replication.spark.read.json(str(folders.out)).count() == 25
    assert replication.ledger.audit("inbox")["violations"] == []


def test_a_file_renamed_in_after_a_crash_at_the_first_start_is_delivered_however_old(folders: Folders) -> None:
    latest = folders.replication.changed(source={"start_from": "latest"})
    put(folders.inbox / "a.jsonl", lines(0, 1), at=1001)
    put(folders.inbox / "b.jsonl", lines(1, 1), at=1003)
    with pytest.raises(KeyboardInterrupt), acquire(latest.setup()):
        raise KeyboardInterrupt
    put(folders.inbox / "x.jsonl", lines(2, 1), at=1000)
    assert lag_positions(lag(latest.setup())) == {"files": 10}

    latest.run()

    assert ids(folders.out) == [2]


def test_bad_records_lie_beside_the_directory_and_are_replayed_once(folders: Folders) -> None:
    put(folders.inbox / "a.jsonl", lines(0, 10) + b"\xff not json\n" + lines(10, 9))
    strict = folders.replication.changed(transform={"select": {"id": "id + 0 * (1 div (id - 7))"}})

    summary = strict.run()
    setup = strict.setup()
    dead_letters = {kept.dead_letter.value for _, kept in read_contents(setup, load_index(setup).entries)}
    chosen = Selection(types=frozenset({"TransformEvaluation"}))
    mended = folders.replication
    setup = mended.setup()
    apply_fenced_or_store(
        setup, make_action(setup, ActionKind.REPLAY_DEAD_LETTERS, chosen), actor="ann", reason="mended"
    )
    again = mended.run()

    assert summary.records == Counts(20, 18, 0, 2)
    assert dead_letters == {b'{"id": 7}', b"\xff not json"}
    assert (again.records, mended.run().records) == (Counts(1, 1, 0, 0), Counts())
    assert ids(folders.out) == list(range(19))
    assert mended.ledger.audit("inbox")["violations"] == []


def test_a_rejected_row_of_a_parquet_file_is_replayed_with_all_its_columns(folders: Folders) -> None:
    inner = pa.array([{"day": date(2024, 2, 29), "sizes": [n]} for n in range(12)])
    put_rows(folders.inbox / "a.parquet", pa.table({"id": range(12), "inner": inner, "raw": [b"\xff"] * 12}))
    columns = {"id": "id", "inner": "inner", "raw": "raw"}
    copied = folders.replication.changed(
        source={"format": "parquet"}, transform={"decode": None, "schema": None}, sink={"format": "parquet"}
    )
    strict = copied.changed(transform={"select": columns | {"id": "id + 0 * (1 div (id - 7))"}})

    assert strict.run().records == Counts(12, 11, 0, 1)
    setup = copied.setup()
    (found,) = [kept.dead_letter for _, kept in read_contents(setup, load_index(setup).entries)]
    apply_fenced_or_store(
        setup, make_action(setup, ActionKind.REPLAY_DEAD_LETTERS, Selection()), actor="ann", reason="mended"
    )

    assert found.headers["x-ckpt-source-file"] == str(folders.inbox / "a.parquet")
    assert found.headers["x-ckpt-source-position"] == "7"
    assert copied.run().records == Counts(1, 1, 0, 0)
    (replayed,) = [row for row in rows(folders.out) if row["id"] == 7]
    assert replayed == {"id": 7, "inner": {"day": date(2024, 2, 29), "sizes": [7]}, "raw": b"\xff"}
    assert len(visible(folders.out)) == 3


def test_times_that_python_has_not_come_out_of_the_lists_of_a_rejected_row_and_go_back_in(folders: Folders) -> None:
    days = pa.array([[19782, None, 6_585_000], [-800_000]], pa.list_(pa.int32())).cast(pa.list_(pa.date32()))
    at = pa.StructArray.from_arrays([pa.array([570_000_000_000_000_000, 0], pa.timestamp("us", "UTC"))], ["at"])
    table = pa.table({"id": [1, 2], "days": days, "told": at})
    put_rows(folders.inbox / "a.parquet", table, at=1)
    transform = {"decode": None, "schema": None, "where": "id / (id - 1) > 0"}
    replication = folders.replication.changed(
        source={"format": "parquet"}, transform=transform, sink={"format": "parquet"}
    )

    assert replication.run().records == Counts(2, 1, 0, 1)
    setup = replication.setup()
    (found,) = [kept.dead_letter for _, kept in read_contents(setup, load_index(setup).entries)]
    assert json.loads(found.value or b"") == {
        "id": 1,
        "days": ["2024-02-29", None, "19999-02-13"],
        "told": {"at": "20032-07-31T05:20:00+00:00"},
    }
    mended = replication.changed(transform={**transform, "where": "id > 0"})
    apply_fenced_or_store(
        mended.setup(), make_action(setup, ActionKind.REPLAY_DEAD_LETTERS, Selection()), actor="ann", reason="mended"
    )

    assert mended.run().records == Counts(1, 1, 0, 0)
    written = pa.concat_tables(pq.read_table(path) for path in visible(folders.out)).sort_by("id")
    assert written.cast(table.schema).equals(table)


@pytest.mark.parametrize("transform", [{}, {"where": "id >= 0", "select": {"id": "id", "name": "upper(name)"}}])
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_text_of_a_parquet_file_that_is_not_utf8_costs_its_row(
    folders: Folders, transform: dict[str, Any], form: str
) -> None:
    texts = pa.array([b"ok", b"caf\xe9", None, b"\xff\xfe"], pa.binary()).view(pa.string())
    put_rows(folders.inbox / "a.parquet", pa.table({"id": range(4), "name": texts}))
    copied = folders.replication.changed(
        source={"format": "parquet"}, transform={"decode": None, "schema": None, **transform}, sink={"format": form}
    )

    assert copied.run().records == Counts(4, 2, 0, 2)

    setup = copied.setup()
    dead_letters = {
        kept.dead_letter.value: kept.dead_letter.error for _, kept in read_contents(setup, load_index(setup).entries)
    }
    assert set(dead_letters) == {b'{"id": 1, "name": "caf\xe9"}', b'{"id": 3, "name": "\xff\xfe"}'}
    assert {error.type for error in dead_letters.values()} == {"MessageDeserialization"}
    assert ids(folders.out) == [0, 2]


@pytest.mark.parametrize("name", ["a.b", "`", "a b", "1", "größe", "id.`x`.y"])
def test_a_column_of_any_name_passes_a_transform(folders: Folders, name: str) -> None:
    put_rows(folders.inbox / "a.parquet", pa.table({name: range(12)}))
    quoted = name.replace("`", "``")
    chosen = folders.replication.changed(
        source={"format": "parquet"}, transform={"decode": None, "schema": None, "where": f"`{quoted}` > 3"}
    )

    assert chosen.run().records == Counts(12, 8, 4, 0)
    assert sorted(row[name] for row in rows(folders.out)) == list(range(4, 12))


def test_a_file_that_does_not_fit_the_others_costs_itself_and_fails_the_run(folders: Folders) -> None:
    put_rows(folders.inbox / "a.parquet", pa.table({"id": [1]}), at=1)
    put_rows(folders.inbox / "b.parquet", pa.table({"id": ["x"]}), at=2)
    put(folders.inbox / "c.parquet", b"PAR1 and no more", at=3)
    put_rows(folders.inbox / "d.parquet", pa.table({"id": [4]}), at=4)
    replication = folders.replication.changed(source={"format": "parquet"}, transform={"decode": None, "schema": None})

    said = r"b\.parquet: column id is string, but bigint in .*a\.parquet.* 1 more could not be read either"
    for _ in range(2):
        with pytest.raises(CkptError, match=said):
            replication.run()
        assert ids(folders.out) == [1, 4]
    put_rows(folders.inbox / "b.parquet", pa.table({"id": [2]}), at=2)
    put_rows(folders.inbox / "c.parquet", pa.table({"id": [3]}), at=3)

    assert replication.run().route == ["done"]
    assert ids(folders.out) == [1, 2, 3, 4]
    assert replication.ledger.audit("inbox")["violations"] == []


def test_a_csv_file_with_another_header_costs_itself_at_the_first_start_too(folders: Folders) -> None:
    put(folders.inbox / "a.csv", b"id\n1\n", at=1)
    put(folders.inbox / "b.csv", b"nr\n2\n", at=2)
    put(folders.inbox / "c.csv", b"id\n3\n", at=3)
    replication = folders.replication.changed(transform={"decode": "csv"})

    with pytest.raises(CkptError, match=r"b\.csv: its header has another name in field 1 than id"):
        replication.run()
    put(folders.inbox / "b.csv", b"id\n2\n", at=4)

    assert replication.run().records == Counts(1, 1, 0, 0)
    assert ids(folders.out) == [1, 2, 3]


def test_a_delivered_file_that_changes_fails_every_run_until_it_is_dealt_with(folders: Folders) -> None:
    path = put(folders.inbox / "a.jsonl", lines(0, 2), at=1)
    folders.replication.run()
    put(path, lines(0, 3), at=2)
    put(folders.inbox / "b.jsonl", lines(5, 1), at=3)

    for _ in range(2):
        with pytest.raises(CkptError, match=r"a\.jsonl changed after it was delivered: it was appended to"):
            folders.replication.run()
        assert ids(folders.out) == [0, 1, 5]
    path.rename(folders.inbox / "a-2.jsonl")

    assert folders.replication.run().records == Counts(3, 3, 0, 0)
    assert folders.replication.run().route == ["done"]


def test_a_delivered_file_that_is_deleted_is_told_of_once(folders: Folders) -> None:
    path = put(folders.inbox / "a.jsonl", lines(0, 2), at=1)
    folders.replication.run()
    path.unlink()

    told = [folders.replication.run().notices for _ in range(2)]

    assert told == [[f"1 delivered file is not there any more, such as {path}"], []]
    assert folders.replication.run().to_json()["notices"] == []


def test_a_file_that_is_gone_before_its_delivery_is_given_up_by_a_person(folders: Folders) -> None:
    path = put(folders.inbox / "a.jsonl", lines(0, 2), at=1)
    put(folders.inbox / "b.jsonl", lines(2, 2), at=2)
    with pytest.raises(KeyboardInterrupt), acquire(folders.replication.setup()):
        raise KeyboardInterrupt
    path.unlink()
    with pytest.raises(CkptError, match=r"a\.jsonl is gone; .*airflow ckpt skip inbox 'files#0'"):
        folders.replication.run()
    setup = folders.replication.setup()
    apply_fenced_or_store(
        setup, Action(ActionKind.SKIP, batches=(BatchKey(1, "files", 0),)), actor="ann", reason="it is gone"
    )

    folders.replication.run()

    assert ids(folders.out) == [2, 3]


def test_a_run_that_could_not_read_a_file_does_not_pause_but_reports_it(folders: Folders) -> None:
    path = put(folders.inbox / "a.jsonl", lines(0, 2), at=1)
    put(folders.inbox / "b.jsonl", lines(2, 2), at=2)
    one_by_one = folders.replication.changed(commit_strategy={"commit_mode": "sync"}, consumer={"lanes": 1})
    with pytest.raises(KeyboardInterrupt), acquire(one_by_one.setup()):
        raise KeyboardInterrupt
    path.unlink()
    asked: list[float] = []

    class PausesLater(Turn):
        def must_pause(self, seconds_used: float, seconds_idle: float) -> bool:
            asked.append(seconds_idle)
            return len(asked) > 1

    with pytest.raises(CkptError, match=r"a\.jsonl is gone"):
        replicate(replace(one_by_one.setup(), turn=PausesLater()), SessionEngine(folders.replication.spark))

    assert ids(folders.out) == [2, 3]


def test_a_corrupt_page_is_never_delivered(folders: Folders) -> None:
    table = pa.table({"id": range(1000, 1300)})
    plain: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    file = put_rows(folders.inbox / "a.parquet", table, group=100, **plain)
    data = bytearray(file.read_bytes())
    data[data.index((1150).to_bytes(8, "little"))] ^= 1
    put(file, bytes(data))
    replication = folders.replication.changed(
        source={"format": "parquet"},
        transform={"decode": None, "schema": None},
        commit_strategy={"commit_interval": 100},
    )

    for _ in range(2):
        with pytest.raises(CkptError, match=r"batch files#1: .*a\.parquet, row group 1 cannot be read .* CRC checksum"):
            replication.run()
        assert ids(folders.out) == [*range(1000, 1100), *range(1200, 1300)]
    setup = replication.setup()
    apply_fenced_or_store(
        setup, Action(ActionKind.SKIP, batches=(BatchKey(1, "files", 1),)), actor="ann", reason="it is damaged"
    )

    assert replication.run().route == ["done"]
    assert ids(folders.out) == [*range(1000, 1100), *range(1200, 1300)]


def test_a_first_start_that_is_refused_leaves_nothing_at_the_target(folders: Folders) -> None:
    put(folders.inbox / "a.jsonl", lines(0, 2))

    with pytest.raises(CkptError, match="10000 is beyond the 20 bytes of all present files"):
        folders.replication.changed(source={"start_from": 10_000}).run()

    assert not folders.out.exists()


@pytest.mark.parametrize("transform", [{"schema": "id void"}, {"where": "nope = 1"}, {"select": {"id": "nope"}}])
@pytest.mark.parametrize("removed", [False, True])
def test_a_first_start_that_spark_refuses_leaves_bookkeeping_alone_and_the_corrected_pipeline_delivers_once(
    folders: Folders, transform: dict[str, Any], removed: bool
) -> None:
    put(folders.inbox / "a.jsonl", lines(0, 30))

    with pytest.raises(CkptError, match=r"transform\.|nope"):
        folders.replication.changed(transform=transform).run()

    assert [path.name for path in folders.out.iterdir()] == ["_ckpt"]
    if removed:
        shutil.rmtree(folders.out)
    assert folders.replication.run().records == Counts(30, 30, 0, 0)
    assert ids(folders.out) == [*range(30)]


def test_a_first_start_into_delta_that_spark_refuses_makes_no_table(folders: Folders) -> None:
    put(folders.inbox / "a.jsonl", lines(0, 30))
    document = {**folders.replication.document, "sink": {"type": "delta", "path": str(folders.out)}}
    replication = replace(folders.replication, document=document)

    with pytest.raises(CkptError, match="nope"):
        replication.changed(transform={"where": "nope = 1"}).run()

    assert [path.name for path in folders.out.iterdir()] == ["_ckpt"]
    assert replication.run().records == Counts(30, 30, 0, 0)
    assert sorted(read_delta(folders.out)["id"].to_pylist()) == [*range(30)]


def test_variants_are_written_as_the_json_that_they_stand_for(folders: Folders) -> None:
    text = r'{"a": [1, 2.50, null, "é\"\n"], "b": {"c": true, "d": {}}, "big": 123456789012345678901234567890}'
    put_rows(folders.inbox / "a.parquet", pa.table({"id": [1, 2, 3], "text": [text, None, "null"]}))
    times = "named_struct('day', date'+12024-02-29', 'at', timestamp'2024-02-29 12:00:00.5Z', 'raw', x'ff00')"
    odd = "named_struct('nan', double('NaN'), 'dec', cast(1.10 as decimal(9,2)))"
    written = folders.replication.changed(
        source={"format": "parquet"},
        transform={
            "decode": None,
            "schema": None,
            "select": {
                "id": "id",
                "v": "parse_json(text)",
                "inside": "array(struct(parse_json(text) as w, id))",
                "by_name": "map('k', parse_json(text))",
                "times": f"to_variant_object({times})",
                "odd": f"to_variant_object({odd})",
            },
        },
    )

    assert written.run().records == Counts(3, 3, 0, 0)

    first, second, third = sorted(rows(folders.out), key=lambda row: row["id"])
    value = json.loads(text)
    assert first == {
        "id": 1,
        "v": value,
        "inside": [{"w": value, "id": 1}],
        "by_name": {"k": value},
        "times": {"day": "12024-02-29", "at": "2024-02-29T12:00:00.500000Z", "raw": "/wA="},
        "odd": {"nan": "NaN", "dec": 1.10},
    }
    assert (second["v"], second["inside"], second["by_name"]) == (None, [{"w": None, "id": 2}], {"k": None})
    assert (third["v"], third["inside"]) == (None, [{"w": None, "id": 3}])
