"""The tasks for many tables: number of groups, accepted and refused names, and the failure of a group."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_ckpt.config.database.catalog import CatalogTable
from airflow_provider_ckpt.config.database.expand import expand
from airflow_provider_ckpt.config.database.model import Database
from airflow_provider_ckpt.engines import several_runs
from airflow_provider_ckpt.engines.several_runs import RunResult
from airflow_provider_ckpt.operators import _database
from airflow_provider_ckpt.operators._task_failure import CkptTaskError
from airflow_provider_ckpt.operators.database import CkptDatabaseTablesOperator, CkptFindTablesOperator
from airflow_provider_ckpt.replication.observe import tables_with_work
from airflow_provider_ckpt.replication.observe.tables_with_work import TablesWithWork
from airflow_provider_ckpt.replication.setup import PipelineContext

DATABASE: dict[str, Any] = {
    "name": "shop",
    "database": {"include": ["public.*"], "exclude": ["*_tmp"], "groups": 4},
    "defaults": {
        "source": {"type": "postgres", "connection": "src", "cursor": "id"},
        "sink": {"type": "postgres", "connection": "dwh", "table": "copy.{table}"},
    },
}


class World:
    """A source of tables with new records, and what the tasks did."""

    def __init__(self) -> None:
        self.tables: dict[str, int] = {}
        self.columns: tuple[str, ...] = ("id",)
        self.results: dict[str, RunResult] = {}
        self.ran: dict[str, PipelineContext] = {}
        self.lanes_each: int | None = None
        self.registered: list[str] = []
        self.during: Callable[[], None] = lambda: None

    def register(self, names: Collection[str]) -> None:
        self.registered = list(names)

    def find(self, database: Database, *_: object, only: Collection[str] | None = None) -> TablesWithWork:
        parts = {name: name.split(".") for name in self.tables}
        catalog = [CatalogTable(schema, name, name, self.columns) for schema, name in parts.values()]
        expansion = expand(database, catalog)
        work = {
            name: count
            for name, count in self.tables.items()
            if count and name in expansion.pipelines and (only is None or name in only)
        }
        return TablesWithWork(database, expansion, work)

    def run(self, setups: Mapping[str, PipelineContext], *, lanes_each: int | None) -> dict[str, RunResult]:
        self.during()
        self.ran, self.lanes_each = dict(setups), lanes_each
        return {name: self.results.get(name, done(name)) for name in setups}


def done(name: str, state: str = "done", error: str | None = None) -> RunResult:
    checkpoint = {"0": {"before": 0, "after": 5}}
    run = {"pipeline": f"shop.{name}", "epoch": 1, "generation": 1, "run": "r", "checkpoint": checkpoint}
    return RunResult(state, error, {**run, "records": {"delivered": 5}})


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()

    @contextmanager
    def ledger(_: str) -> Iterator[World]:
        yield made

    monkeypatch.setattr(_database, "open_ledger", ledger)
    monkeypatch.setattr(tables_with_work, "find_tables_with_work", made.find)
    monkeypatch.setattr(several_runs, "run_several", made.run)
    return made


def look(**settings: Any) -> list[list[str]]:
    document = {**DATABASE, "database": {**DATABASE["database"], **settings}}
    return CkptFindTablesOperator(task_id="find_tables", database=document).execute({})


def group(tables: Any) -> CkptDatabaseTablesOperator:
    return CkptDatabaseTablesOperator(task_id="tables", database=DATABASE, tables=tables)


def context() -> Any:
    run = SimpleNamespace(dag_id="d", run_id="r")
    return {"dag_run": run, "ti": SimpleNamespace(map_index=2)}


def failure(tables: Sequence[str]) -> list[str]:
    with pytest.raises(CkptTaskError) as error:
        group(tables).execute(context())
    return str(error.value).splitlines()


# The look


def test_5000_tables_make_no_more_groups_than_declared_and_the_largest_begin(world: World) -> None:
    world.tables = {f"public.t{number:04}": number for number in range(5_000)}

    groups = look()

    assert len(groups) == 4
    assert sorted(name for names in groups for name in names) == sorted(world.tables)[1:]  # one has nothing new
    assert [names[0] for names in groups] == [f"public.t{number}" for number in (4999, 4998, 4997, 4996)]
    assert len(world.registered) == 5_000


def test_without_work_there_is_no_group(world: World) -> None:
    world.tables = {"public.a": 0}

    assert look() == []


def test_an_invalid_table_and_a_pattern_that_matches_nothing_are_reported_by_a_group(world: World) -> None:
    world.tables = {"public.a": 0}
    world.columns = ("uid",)

    assert sorted(look(include=["public.*", "sales.*"], groups=1)[0]) == ["public.a", "sales.*"]
    lines = failure(["public.a"])
    assert lines[0] == "1 of 1 tables failed:"
    assert "public.a has no column id" in lines[1]
    assert world.ran == {}


def test_a_halt_ends_the_look_and_nothing_is_registered(world: World) -> None:
    with pytest.raises(AirflowFailException, match="selects no table"):
        look()

    assert world.registered == []


# A group


def test_a_group_runs_only_what_has_work_as_the_owner_of_each_lease(world: World) -> None:
    world.tables = {"public.a": 3, "public.b": 0, "public.other": 9}
    found = group(["public.a", "public.b"]).execute(context())

    assert list(world.ran) == ["public.a"]
    assert world.ran["public.a"].owner == "dag:d/r/shop.public.a/tables[2]"
    assert world.lanes_each == 2
    assert found == {"tables": {"done": 1, "without_work": 1}, "records": {"delivered": 5}}


def test_the_tables_of_a_group_with_the_fewest_new_records_begin_first(world: World) -> None:
    world.tables = {"public.large": 900, "public.small": 1, "public.also_small": 1, "public.medium": 50}

    group(list(world.tables)).execute(context())

    assert list(world.ran) == ["public.also_small", "public.small", "public.medium", "public.large"]


def test_a_group_fails_after_all_have_ended_with_one_line_for_each_failed_table(world: World) -> None:
    world.tables = dict.fromkeys(("public.a", "public.b", "public.c", "public.d"), 1)
    world.results = {
        "public.b": RunResult("failed", "no such\ncolumn"),
        "public.d": done("public.d", "held", "batches are held"),
    }
    names = list(world.tables)
    del world.tables["public.c"]

    assert failure(names) == [
        "3 of 4 tables failed:",
        "public.b: no such column",
        "public.c: was dropped or renamed after find_tables listed it; clear that task as well to continue without it.",
        "public.d: batches are held",
    ]
    assert list(world.ran) == ["public.a", "public.b", "public.d"]


def test_many_errors_are_cut_and_counted(world: World) -> None:
    world.tables = {f"public.t{number:03}": 1 for number in range(120)}
    world.results = {name: RunResult("failed", "x" * 2_000) for name in world.tables}

    lines = failure(list(world.tables))

    assert (len(lines), lines[-1]) == (102, "and 20 more; see the log")
    assert max(map(len, lines)) < 600


@pytest.mark.parametrize("name", ["hr.salaries", "public.a_tmp", "{{ conn.src.password }}"])
def test_a_name_that_the_declaration_does_not_select_is_refused_whoever_wrote_it(world: World, name: str) -> None:
    world.tables = {"hr.salaries": 1, "public.a_tmp": 1, "public.a": 1}

    assert failure([name, "public.a"])[1].endswith("does not select this table, so it is not replicated.")
    assert list(world.ran) == ["public.a"]
    assert "tables" not in CkptDatabaseTablesOperator.template_fields


@pytest.mark.parametrize("given", ["public.a", {"public.a": {"sink": {}}}, [["public.a"]], None, [1]])
def test_anything_but_a_list_of_names_is_refused(world: World, given: object) -> None:
    world.tables = {"public.a": 1}

    with pytest.raises(AirflowFailException, match="no list of names of tables"):
        group(given).execute(context())
    assert (world.ran, group(given).label) == ({}, "")


def test_the_label_has_names_and_their_number() -> None:
    assert group(["public.a"]).label == "public.a (1 table)"
    assert group([f"public.t{n}" for n in range(9)]).label == "public.t0, public.t1, public.t2 and 6 more (9 tables)"
    assert len(group(["x" * 900] * 2).label) == 250


def test_a_kill_ends_the_wait_while_tables_run_and_only_then(world: World) -> None:
    world.tables = {"public.a": 1}
    task = group(["public.a"])
    world.during = task.on_kill
    task.on_kill()

    with pytest.raises(CkptTaskError, match="was killed"):
        task.execute(context())
    task.on_kill()
