"""A user's function over a batch's rows: order and count are kept, and an error affects one record only."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER
from airflow_provider_ckpt.core.errors import ErrorType, InvalidTransformError
from airflow_provider_ckpt.spark.transform import python_function
from airflow_provider_ckpt.spark.transform.python_function import FunctionResult

RETURNS = pa.schema([("id", pa.int64()), ("name", pa.string())])


def rows(ids: list[int]) -> pa.Table:
    return pa.table({ROW_NUMBER: pa.array([n * 10 for n in ids], pa.int64()), "id": pa.array(ids, pa.int64())})


def named(table: pa.Table) -> pa.Table:
    return table.append_column("name", pa.array([f"n{n}" for n in table.column("id").to_pylist()]))


def brittle(table: pa.Table) -> pa.Table:
    for n in table.column("id").to_pylist():
        if n % 4 == 3:
            raise ValueError(f"{n} is unlucky")
    return named(table)


def apply(user: Any, ids: list[int], *, traced: bool = False) -> FunctionResult:
    return python_function.apply(user, rows(ids), RETURNS, traced=traced)


def test_rows_keep_their_positions_and_order() -> None:
    applied = apply(named, [3, 1, 2])

    assert applied.rows.to_pydict() == {ROW_NUMBER: [30, 10, 20], "id": [3, 1, 2], "name": ["n3", "n1", "n2"]}
    assert (applied.filtered, applied.errors) == (0, {})


@pytest.mark.parametrize("make", [lambda t: t.to_batches()[0], lambda t: t.to_pandas()], ids=["batch", "frame"])
def test_a_record_batch_or_a_data_frame_will_do(make: Any) -> None:
    assert apply(lambda table: make(named(table)), [1, 2]).rows.column("name").to_pylist() == ["n1", "n2"]


def test_columns_take_the_declared_order_and_types() -> None:
    def shuffled(table: pa.Table) -> pd.DataFrame:
        return pd.DataFrame({"name": ["x"] * table.num_rows, "id": [1.0] * table.num_rows})

    applied = apply(shuffled, [1, 2])

    assert applied.rows.schema.names == [ROW_NUMBER, "id", "name"]
    assert applied.rows.schema.field("id").type == pa.int64()


def test_what_is_not_to_be_kept_counts_as_filtered() -> None:
    def odd(table: pa.Table) -> pa.Table:
        keep = pc.equal(pc.bit_wise_and(table.column("id"), 1), 1)
        return named(table).append_column("_keep", pc.if_else(pc.equal(table.column("id"), 5), None, keep))

    applied = apply(odd, [1, 2, 3, 4, 5])

    assert applied.rows.column("id").to_pylist() == [1, 3]
    assert applied.filtered == 3
    assert applied.rows.column_names == [ROW_NUMBER, "id", "name"]


def test_a_row_that_it_cannot_bear_is_found_and_the_others_go_on_in_order() -> None:
    applied = apply(brittle, list(range(12)))

    assert applied.rows.column("id").to_pylist() == [0, 1, 2, 4, 5, 6, 8, 9, 10]
    assert {at: (error.type, error.message) for at, error in applied.errors.items()} == {
        at: (ErrorType.PROCESSING, f"ValueError: {at // 10} is unlucky") for at in (30, 70, 110)
    }
    assert applied.rows.num_rows + applied.filtered + len(applied.errors) == 12


def test_halving_and_filtering_go_together() -> None:
    def both(table: pa.Table) -> pa.Table:
        made = brittle(table)
        if table.num_rows == 1:
            return made
        return made.append_column("_keep", pa.array([n != 0 for n in table.column("id").to_pylist()]))

    applied = apply(both, list(range(8)))

    assert applied.rows.column("id").to_pylist() == [1, 2, 4, 5, 6]
    assert (applied.filtered, sorted(applied.errors)) == (1, [30, 70])


def test_a_value_that_does_not_fit_its_column_is_a_bad_row() -> None:
    def wide(table: pa.Table) -> pa.Table:
        ids = [n if n != 2 else 10**30 for n in table.column("id").to_pylist()]
        return named(table).set_column(0, "id", pa.array(ids, pa.decimal128(38, 0)))

    applied = apply(wide, [1, 2, 3])

    assert applied.rows.column("id").to_pylist() == [1, 3]
    assert list(applied.errors) == [20]


def test_the_traceback_is_kept_where_it_is_wanted() -> None:
    (error,) = apply(brittle, [3], traced=True).errors.values()
    (bare,) = apply(brittle, [3]).errors.values()

    assert error.trace is not None
    assert "in brittle" in error.trace
    assert bare.trace is None


@pytest.mark.parametrize(
    ("user", "says"),
    [
        (lambda table: named(table).slice(1), "got 2 rows and returned 1"),
        (lambda table: table, "returned the columns id, but transform.returns has id, name"),
        (lambda table: named(table).append_column("more", table.column("id")), "returned the columns id, name, more"),
        (lambda table: None, "returned a NoneType"),
    ],
)
def test_what_cannot_be_matched_with_what_it_got_halts(user: Any, says: str) -> None:
    with pytest.raises(InvalidTransformError, match=says):
        apply(user, [1, 2])


def test_an_empty_batch_is_not_shown_to_it() -> None:
    def never(table: pa.Table) -> pa.Table:
        raise AssertionError("called")

    assert apply(never, []).rows.schema.names == [ROW_NUMBER, "id", "name"]


def test_a_function_of_a_dag_file_travels_with_what_it_uses(tmp_path: Path) -> None:
    (tmp_path / "some_dag.py").write_text(
        "FACTOR = 3\ndef times(n):\n    return n * FACTOR\ndef f(n, by):\n    return times(n) + by\n"
    )
    sys.path.insert(0, str(tmp_path))
    try:
        import some_dag  # type: ignore[import-not-found]
    finally:
        sys.path.pop(0)
    packed = python_function.pack(partial(some_dag.f, by=1))
    (tmp_path / "packed").write_bytes(packed)
    code = """
        from pathlib import Path
        from airflow_provider_ckpt.spark.transform.python_function import unpack
        print(unpack(Path("packed").read_bytes())(5))
    """

    elsewhere = [sys.executable, "-P", "-c", textwrap.dedent(code)]
    done = subprocess.run(elsewhere, cwd=tmp_path, capture_output=True, text=True, check=True)

    assert done.stdout == "16\n"


def test_a_function_may_be_named_where_it_can_be_imported() -> None:
    assert python_function.import_function("json:dumps")([1]) == "[1]"
    with pytest.raises(InvalidTransformError, match=r"transform\.python cannot be imported: .*nowhere"):
        python_function.import_function("nowhere:f")
    with pytest.raises(InvalidTransformError, match="no attribute 'f'"):
        python_function.import_function("json:f")
