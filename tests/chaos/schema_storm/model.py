"""Model of the storm: the source's rows and versions, and the content that the target must have for each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from airflow_provider_ckpt.core.schema_version import ColumnState, SchemaVersion
from tests.chaos.schema_storm.targets import COLUMNS, Target
from tests.services.tables import execute


@dataclass
class Source:
    """The source table, and every value that each of its rows ever had, by the number of the column.

    :param dsn: its database
    :param target: the target, whose columns follow those of the table
    :ivar values: text of each value, by id of the row and number of the column
    :ivar written: numbers of the columns that the insert of a row named
    :ivar dropped: numbers of the columns that were dropped
    :ivar widened: columns whose type a run has not seen yet; another change of them would hide who rewrote the table
    """

    dsn: str
    target: Target
    random: Random
    values: dict[int, dict[int, str | None]] = field(default_factory=dict)
    written: dict[int, set[int]] = field(default_factory=dict)
    dropped: set[int] = field(default_factory=set)
    widened: set[int] = field(default_factory=set)
    changes: int = 0
    _names: int = 0

    def create(self) -> None:
        """Create source and target with the same columns."""
        columns = "id int PRIMARY KEY, a varchar(8), b int, c real NOT NULL"
        execute(self.dsn, f"CREATE TABLE items ({columns})")
        self.target.create(columns)

    @property
    def columns(self) -> dict[str, tuple[int, str]]:
        """Number and type of the columns that the table has, by name."""
        return {name: (number, kind) for name, number, kind in execute(self.dsn, COLUMNS, parameters=["items"])}

    def insert(self, rows: int) -> None:
        """Rows with a value in every column."""
        columns = self.columns
        names = ", ".join(f'"{name}"' for name in columns)
        first = len(self.values) + 1
        for key in range(first, first + rows):
            self.values[key] = {
                number: str(key) if name == "id" else _value(key, kind) for name, (number, kind) in columns.items()
            }
            self.written[key] = set(self.values[key])
        row = f"({', '.join(['%s'] * len(columns))})"
        execute(
            self.dsn,
            f"INSERT INTO items ({names}) VALUES {', '.join([row] * rows)}",
            parameters=[text for key in range(first, first + rows) for text in self.values[key].values()],
        )

    def change(self) -> None:
        """One random change of the columns."""
        others = {name: found for name, found in self.columns.items() if name != "id" and found[0] not in self.widened}
        kind = self.random.choice(["add", "add", "widen", "drop", "rename"])
        name = self.random.choice(sorted(others)) if others else ""
        self.changes += 1
        wider = self.target.wider
        if kind == "widen" and name and others[name][1] in wider:
            execute(self.dsn, f"ALTER TABLE items ALTER {name} TYPE {wider[others[name][1]]}")
            self.widened.add(others[name][0])
        elif kind == "drop" and len(others) > 2:
            execute(self.dsn, f"ALTER TABLE items DROP COLUMN {name}")
            self.dropped.add(others[name][0])
        elif kind == "rename" and name:
            execute(self.dsn, f"ALTER TABLE items RENAME {name} TO {self._new_name()}")
        else:
            added, default = self._new_name(), self.random.choice(["", " NOT NULL DEFAULT 7"])
            execute(self.dsn, f"ALTER TABLE items ADD COLUMN {added} {self.random.choice(['int', 'real'])}{default}")
            number = self.columns[added][0]
            for row in self.values.values():
                row[number] = "7" if default else None

    def _new_name(self) -> str:
        self._names += 1
        return f"x{self._names}"


def _value(key: int, kind: str) -> str:
    """The text of a value that only its type, and no narrower one, can store."""
    if kind == "character varying(8)":
        return f"v{key}"
    return {
        "text": f"a text that is long enough {key}",
        "integer": str(key),
        "bigint": str((1 << 40) + key),
        "real": f"{key}.5",
        "double precision": f"{key}.123456789012",
    }[kind]


@dataclass(frozen=True)
class Evidence:
    """Evidence that runs left in ledger and sink.

    :param versions: the ledger's versions
    :param receipts: receipts of batches: generation, partition, seq, start, end, time
    :param schema_receipts: receipts of versions: document and time
    """

    versions: Sequence[SchemaVersion]
    receipts: Sequence[tuple[Any, ...]]
    schema_receipts: Sequence[tuple[dict[str, Any], Any]]

    def number_of(self, receipt: tuple[Any, ...]) -> int:
        """The version under which a batch was read, from its position and the batches that were planned again."""
        key = list(receipt[:3])
        return max(
            version.number
            for version in self.versions
            if version.position <= receipt[3] or key in [each.to_json() for each in version.replanned]
        )


def faults(source: Source, evidence: Evidence) -> Iterator[str]:
    """Every difference between target and model, and every broken invariant by its name."""
    yield from _wrong_rows(source, evidence)
    yield from _broken_barriers(evidence)
    yield from _wrong_receipts(evidence)
    yield from _narrowed(source, evidence)


def _wrong_rows(source: Source, evidence: Evidence) -> Iterator[str]:
    found = source.target.rows()
    numbered = [(receipt[3], receipt[4], evidence.number_of(receipt)) for receipt in evidence.receipts]
    for key, values in source.values.items():
        rows = found.get(key, [])
        if len(rows) != 1:
            yield f"RowsMatchTheirVersion: row {key} is {len(rows)} times in the target"
            continue
        [number] = [number for start, end, number in numbered if start <= key < end]
        expected = _expected(source.target, evidence.versions, number, values)
        wrong = {name: (value, expected.get(name)) for name, value in rows[0].items() if value != expected.get(name)}
        if wrong:
            yield f"RowsMatchTheirVersion: row {key} of version {number} differs: {wrong}"
        lost = source.written[key] - source.dropped - {each.number for each in evidence.versions[number - 1].columns}
        if lost:
            yield f"RowsMatchTheirVersion: row {key} was written with columns {lost}, which its version does not read"
    if found.keys() - source.values.keys():
        yield "RowsMatchTheirVersion: the target has rows that the source never had"


def _expected(
    target: Target, versions: Sequence[SchemaVersion], number: int, values: dict[int, str | None]
) -> dict[str, str | None]:
    """Values of a row of a version by the names that the target's columns have in the end."""
    later = versions[number - 1 :] if target.renames else versions[number - 1 : number]
    names = {
        column.number: column.name
        for version in later
        for column in version.columns
        if target.renames or column.state is ColumnState.READ
    }
    read = [column.number for column in versions[number - 1].columns if column.state is ColumnState.READ]
    return {names[each]: values[each] for each in read}


def _broken_barriers(evidence: Evidence) -> Iterator[str]:
    times = {document["version"]: at for document, at in evidence.schema_receipts}
    for receipt in evidence.receipts:
        number = evidence.number_of(receipt)
        if number in times and receipt[5] < times[number]:
            yield f"SchemaBarrierSeparates: batch {receipt[:3]} came before its version {number}"
        if number + 1 in times and receipt[5] > times[number + 1]:
            yield f"SchemaBarrierSeparates: batch {receipt[:3]} came after version {number + 1} began"
    for before, after in zip(evidence.versions, evidence.versions[1:], strict=False):
        old, new = (
            {column.number for column in version.columns if column.state is ColumnState.READ}
            for version in (before, after)
        )
        if after.replanned and new - old:
            yield f"SchemaBarrierSeparates: version {after.number} gives planned batches new columns"


def _wrong_receipts(evidence: Evidence) -> Iterator[str]:
    stored = sorted((SchemaVersion.from_json(document) for document, _ in evidence.schema_receipts), key=_number)
    if stored != list(evidence.versions):
        yield f"SchemaReceiptOnce: the sink has receipts of {[each.number for each in stored]}, the ledger others"


def _narrowed(source: Source, evidence: Evidence) -> Iterator[str]:
    target = source.target.types()
    for column in evidence.versions[-1].columns:
        held = target.get(column.name, "absent")
        if not source.target.can_store(held, column.type):
            yield f"NoSilentNarrowing: {column.name} is {held} in the target, and {column.type} in the source"


def _number(version: SchemaVersion) -> int:
    return version.number
