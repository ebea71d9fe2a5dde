"""Dead letters are converted back to rows of every type; those that cannot be converted get a reason."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa
import pytest

from airflow_provider_ckpt.connectors import extreme_times
from airflow_provider_ckpt.connectors.batch_content import DeadLetter, StoredDeadLetter, split_headers
from airflow_provider_ckpt.connectors.kafka.deserialize import parse_time_text, time_text
from airflow_provider_ckpt.connectors.sink_protocol import Sink
from airflow_provider_ckpt.connectors.source_protocol import POSITION, Reader, RecordShape
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letters import AttemptKey, DeadLetters
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType, SinkError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.replay_content import Replay
from airflow_provider_ckpt.core.wave_messages import BatchTask
from airflow_provider_ckpt.spark.dead_letters import originals
from airflow_provider_ckpt.spark.dead_letters.replay_reader import HEADERS_TYPE, ReplayReader, replay_detail
from airflow_provider_ckpt.spark.lane.gather import numbered
from airflow_provider_ckpt.spark.record_positions import RecordPositions

KEY = BatchKey(1, "t", 4)
SOURCE = AttemptKey(KEY, 1, 1)
BAD = ErrorInfo(ErrorType.SINK, "too long", sqlstate="22001")
LATER = ErrorInfo(ErrorType.SINK, "still too long")
TYPES = {
    "flag": ("boolean", pa.bool_(), True),
    "small": ("smallint", pa.int16(), -3),
    "number": ("int", pa.int32(), 7),
    "big": ("bigint", pa.int64(), 2**62),
    "ratio": ("double", pa.float64(), 0.1),
    "name": ("string", pa.string(), 'é"\n\\x00'),
    "code": ("binary", pa.binary(), b"\x00\xff"),
    "day": ("date", pa.date32(), date(2024, 2, 29)),
    "at": ("timestamp", pa.timestamp("us", "UTC"), datetime(2024, 1, 1, 12, 0, 0, 123456, UTC)),
    "local": ("timestamp_ntz", pa.timestamp("us"), datetime(1, 1, 1, 0, 0, 0, 1)),
    "price": ("decimal(38,4)", pa.decimal128(38, 4), Decimal("-12345678901234567890.1234")),
    "tags": ("array<string>", pa.list_(pa.field("element", pa.string())), ["a", None]),
    "sizes": ("map<string,binary>", pa.map_(pa.string(), pa.binary()), [("k", b"\xff"), ("n", None)]),
    "inner": (
        "struct<day:date,`a b`:array<decimal(9,2)>>",
        pa.struct([("day", pa.date32()), ("a b", pa.list_(pa.field("element", pa.decimal128(9, 2))))]),
        {"day": date(2024, 2, 29), "a b": [Decimal("1.50"), None]},
    ),
}
ROWS = RecordShape(raw=False, columns=[(name, kind) for name, (kind, _, _) in TYPES.items()])
RAW = RecordShape(raw=True, columns=[("key", "binary"), ("value", "binary")])


class Kept:
    """A sink that keeps these letters, of one attempt."""

    def __init__(self, *dead_letters: DeadLetter) -> None:
        self._letters = dead_letters

    def dead_letters(self, sources: Iterable[AttemptKey]) -> Iterator[StoredDeadLetter]:
        for source in sources:
            assert source == SOURCE
            yield from (
                StoredDeadLetter(source, dead_letter, datetime(2024, 1, 1, tzinfo=UTC)) for dead_letter in self._letters
            )

    def close(self) -> None:
        pass


def dead_letter(position: int, value: bytes | None, key: bytes | None = None) -> DeadLetter:
    return DeadLetter(position, key, value, BAD, {"x-ckpt-source-position": str(position)})


def reader(shape: RecordShape, *dead_letters: DeadLetter) -> ReplayReader:
    """A reader whose source is never asked."""
    return ReplayReader(cast("Reader", None), lambda: cast("Sink", Kept(*dead_letters)), shape)


def task(records: int, *, first: int = 0, newest_first: bool = False) -> BatchTask:
    """A batch of a replay of so many letters."""
    replay = Replay((DeadLetters(KEY, "Sink", first, records, 1, 1),), newest_first)
    placed = list(replay.within(Range(0, records)))
    return BatchTask(
        BatchKey(2, "dlq:2:t", 0), Range(0, records), 1, detail=replay_detail(placed, newest_first=newest_first)
    )


def table(found: Iterator[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(list(found))


@pytest.mark.parametrize("empty", [False, True])
def test_a_row_of_every_type_comes_back_as_it_was(empty: bool) -> None:
    row: Mapping[str, Any] = {name: None if empty else value for name, (_, _, value) in TYPES.items()}

    found = table(reader(ROWS, dead_letter(40, originals.row_json(row))).read(task(1)))

    assert found.schema == pa.schema([(POSITION, pa.int64()), *((name, kind) for name, (_, kind, _) in TYPES.items())])
    assert found.to_pylist() == [{POSITION: 0, **row}]


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_a_time_that_python_has_no_value_for_comes_back_as_it_was(zone: str | None) -> None:
    infinity = -(2**63) + 946_684_800_000_000 - 1
    numbers = [infinity, infinity + 1, infinity - 1, 2**63 - 1, -(10**17), 2**61, 253_402_300_800_000_000, 1, None]
    days = [-(2**31) + 10_956, -(2**31) + 10_957, 2**31 - 1, -735_459, -719_529, 10**7, 2_932_897, 1, None]
    at = pa.array(numbers, pa.timestamp("us", zone))
    day = pa.array(days, pa.int32()).cast(pa.date32())
    written = zip(extreme_times.to_text(at).to_pylist(), extreme_times.to_text(day).to_pylist(), strict=True)
    dead_letters = [dead_letter(n, originals.row_json({"at": a, "day": d})) for n, (a, d) in enumerate(written)]
    shape = RecordShape(raw=False, columns=[("at", "timestamp" if zone else "timestamp_ntz"), ("day", "date")])
    again, batch = reader(shape, *dead_letters), task(len(numbers))

    found = table(again.read(batch))

    assert originals.unreadable_dead_letters(again, batch) == []
    assert found.column("at").combine_chunks() == at
    assert found.column("day").combine_chunks() == day


@pytest.mark.parametrize("milliseconds", [0, 1_700_000_000_123, (2**63 - 1) // 1000, (2**63 - 1) // 1000 + 1, 10**18])
def test_a_message_s_time_is_told_in_its_letter_and_read_again(milliseconds: int) -> None:
    micros = milliseconds * 1000 if milliseconds * 1000 < 2**63 else -milliseconds
    told = time_text(extreme_times.timestamp_text(micros, zoned=True))

    assert extreme_times.parse_microseconds(parse_time_text(told)) == micros
    assert told.endswith(" ms") is (micros < 0)


def test_raw_records_keep_their_very_bytes_and_are_numbered_anew() -> None:
    dead_letters = [dead_letter(40 + n, b"\xff%d" % n, b"k%d" % n) for n in range(5)]

    oldest = table(reader(RAW, *dead_letters).read(task(3, first=1)))
    newest = table(reader(RAW, *dead_letters).read(task(3, first=1, newest_first=True)))

    assert oldest.to_pylist() == [{POSITION: n - 1, "key": b"k%d" % n, "value": b"\xff%d" % n} for n in (1, 2, 3)]
    assert newest.column("value").to_pylist() == [b"\xff3", b"\xff2", b"\xff1"]
    assert newest.column(POSITION).to_pylist() == [0, 1, 2]


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"[1]",
        b"not a row",
        b'{"id": "seven"}',
        b'{"id": 99999999999}',
        b'{"day": "infinite"}',
        b'{"day": "12345-02-30"}',
        b'{"day": "9999999-01-01"}',
        b'{"price": "NaN dollars"}',
        b'{"code": "\\\\xzz"}',
        b'{"tags": "none"}',
        b'{"sizes": [1]}',
        b'{"inner": [{"n": 1}]}',
    ],
)
def test_what_is_no_record_any_more_is_left_out_and_parked_again(value: bytes | None) -> None:
    nested = [("tags", "array<int>"), ("sizes", "map<string,int>"), ("inner", "struct<n:int>")]
    flat = [("id", "int"), ("day", "date"), ("price", "decimal(9,2)"), ("code", "binary")]
    shape = RecordShape(raw=False, columns=[*flat, *nested])
    again = reader(
        shape, dead_letter(40, b'{"id": 1}'), dead_letter(41, value), dead_letter(42, b'{"id": 3, "new": 0}')
    )
    batch = task(3)

    found = table(again.read(batch))
    (left_out,) = originals.unreadable_dead_letters(again, batch)

    assert found.select([POSITION, "id"]).to_pylist() == [{POSITION: 0, "id": 1}, {POSITION: 2, "id": 3}]
    assert (left_out.position, left_out.value, left_out.error.type) == (1, value, ErrorType.SERIALIZATION)
    assert left_out.error.message.startswith("cannot be converted back to a record: ")
    assert left_out.headers == {"x-ckpt-source-position": "41"}


def test_a_letter_that_fails_again_keeps_its_bytes_not_what_they_were_read_as() -> None:
    written = b'{ "id": 1.0,   "id": 2 }'
    shape = RecordShape(raw=False, columns=[("id", "double")])
    again = reader(shape, dead_letter(40, written), dead_letter(41, b'{"id": 3}'))
    batch = task(2)
    rows = table(again.read(batch))

    places = RecordPositions(rows.column(POSITION))

    reread = originals.from_source(again, batch, places, {0: LATER}, raw=False)
    from_rows = originals.from_rows(again, batch, places, numbered(rows), {0: LATER}, raw=False)
    whole = originals.from_batch(again, batch, LATER, raw=False)

    assert reread == from_rows == whole[:1]
    assert (reread[0].value, reread[0].position, reread[0].error) == (written, 0, LATER)
    assert [found.position for found in whole] == [0, 1]


def test_letters_that_the_sink_has_lost_fail_the_batch() -> None:
    with pytest.raises(SinkError, match=r"counts 2 dead letters .* holds only 1 of them"):
        list(reader(RAW, dead_letter(40, b"{}")).read(task(2)))


def test_letters_of_other_types_are_passed_over() -> None:
    other = DeadLetter(39, None, b"other", ErrorInfo(ErrorType.IO, "gone"), {})

    found = table(reader(RAW, other, dead_letter(40, b"mine")).read(task(1)))

    assert found.column("value").to_pylist() == [b"mine"]
    assert json.dumps(task(1).to_json())


def test_a_message_comes_back_with_its_headers_its_time_and_without_a_value() -> None:
    columns = [("key", "binary"), ("value", "binary"), ("headers", HEADERS_TYPE), ("timestamp", "timestamp")]
    headers = {"x-ckpt-timestamp": "2024-01-01T12:00:00.123000+00:00"}
    own = (("trace", b"\xff"), ("trace", b"2"), ("none", None))
    tombstone = DeadLetter(40, b"k", None, BAD, headers, own)
    gone = DeadLetter(41, None, None, BAD, {"x-ckpt-original": "no longer in the source"})
    again = reader(RecordShape(raw=True, columns=columns), tombstone, gone)
    batch = task(2)

    (found,) = table(again.read(batch)).to_pylist()
    (left_out,) = again.unreadable_dead_letters(batch)

    assert (found["key"], found["value"]) == (b"k", None)
    assert [(header["key"], header["value"]) for header in found["headers"]] == list(own)
    assert found["timestamp"] == datetime(2024, 1, 1, 12, 0, 0, 123000, UTC)
    assert left_out.position == 1
    assert split_headers(tombstone.header_texts()) == (headers, own)
    assert split_headers(gone.header_texts()) == (gone.headers, ())
