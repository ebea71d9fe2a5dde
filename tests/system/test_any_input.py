"""``airflow ckpt run`` on other people's directories and tables, as a person calls it; and what it says when it cannot.

An error is one line on standard error, exit status 1, nothing on standard output, and a ledger from which the corrected
pipeline delivers everything once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.services.command import CkptCommand, write_pipeline
from tests.services.postgres import PASSWORD, PostgresServer
from tests.services.tables import execute

ODD_TABLE = '"Sales 2024"."Order ""Items"""'
ODD_COLUMNS = (
    '"Order Id" bigint {key}, "größe" numeric(10, 2), "select" text, "tags" text[], "when" timestamptz, "doc" jsonb'
)


class Machine:
    """An AIRFLOW_HOME with a ledger, two databases, and a directory for files.

    :param databases: a dsn by connection id
    """

    def __init__(self, here: Path, databases: Mapping[str, str]) -> None:
        self.here = here
        self.databases = databases
        locked = databases["shop"].replace(PASSWORD, "not-it")
        self.command = CkptCommand(here / "home", {**databases, "locked": locked})
        self.command.migrate()

    def run(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """One run that ends well; its summary, of which the sum is checked."""
        return self.succeeded(self.command.run("run", str(self.write(document)), "-o", "json"))

    def succeeded(self, done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
        """The summary that a command printed, of which the sum is checked."""
        assert done.returncode == 0, done.stderr
        summary: dict[str, Any] = json.loads(done.stdout)
        records = summary["records"]
        assert records["read"] == records["delivered"] + records["filtered"] + records["dead_lettered"]
        assert all(line.split(" ")[0].count(":") == 2 for line in done.stderr.splitlines()), done.stderr
        return summary

    def refused(self, document: Mapping[str, Any]) -> str:
        """One run that cannot work; its one line."""
        return failed(self.command.run("run", str(self.write(document)), "-o", "json"))

    def write(self, document: Mapping[str, Any]) -> Path:
        """The declaration as a file."""
        return write_pipeline(self.here / f"{document['name']}.yaml", document)

    def status(self, pipeline: str) -> dict[str, Any]:
        """What the ledger knows of a pipeline."""
        done = self.command.run("status", pipeline, "-o", "json")
        assert done.returncode == 0, done.stderr
        status: dict[str, Any] = json.loads(done.stdout)
        return status


def failed(done: subprocess.CompletedProcess[str]) -> str:
    """The one line of a command that failed."""
    assert (done.returncode, done.stdout) == (1, ""), done.stdout + done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert lines == done.stderr.splitlines()[-1:], done.stderr
    assert "Traceback" not in done.stderr
    assert PASSWORD not in done.stderr
    return lines[0]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer) -> Machine:
    """A machine for all tests here; each has a pipeline of its own."""
    databases = {name: postgres_server.new_database() for name in ("shop", "store")}
    return Machine(tmp_path_factory.mktemp("any input"), databases)


def test_csv_with_quotes_and_newlines_into_delta(machine: Machine) -> None:
    from deltalake import DeltaTable

    place = machine.here / "in put; (1)"
    place.mkdir()
    (place / "a b.csv").write_text(
        'id;name;note\n1;"Ann ""A"" Lee";"two\nlines; one field"\n2;Bob;\n3;Eve\nx;Kim;not a number\n', newline=""
    )
    (place / "c.csv").write_bytes('\ufeffid;name;note\r\n4;Zoë;"ends\r\nso"\r\n5;Max;skip me'.encode())
    (place / ".hidden.csv").write_text("no;csv\n")
    document = {
        "name": "people",
        "source": {"type": "files", "path": str(place)},
        "transform": {
            "decode": "csv",
            "delimiter": ";",
            "schema": "id int, name string, note string",
            "where": "coalesce(note, '') <> 'skip me'",
        },
        "sink": {"type": "delta", "path": str(machine.here / "ta ble")},
    }
    summary = machine.run(document)
    assert summary["records"] == {"read": 6, "delivered": 3, "filtered": 1, "dead_lettered": 2, "retried": 0}
    assert (summary["route"], summary["target_rows"]) == (["dead_letters", "done"], 3)
    rows = DeltaTable(machine.here / "ta ble").to_pyarrow_table().to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == [
        (1, 'Ann "A" Lee', "two\nlines; one field"),
        (2, "Bob", None),
        (4, "Zoë", "ends\r\nso"),
    ]
    again = machine.run(document)
    assert (again["records"]["read"], again["spark_started"], again["target_rows"]) == (0, False, 3)


def test_tables_with_odd_names_from_one_database_into_another(machine: Machine) -> None:
    shop, store = machine.databases["shop"], machine.databases["store"]
    for dsn, key in ((shop, ""), (store, "PRIMARY KEY")):
        execute(dsn, 'CREATE SCHEMA "Sales 2024"', f"CREATE TABLE {ODD_TABLE} ({ODD_COLUMNS.format(key=key)})")
    execute(
        shop,
        f"INSERT INTO {ODD_TABLE} SELECT i, i / 4.0, CASE i % 5 WHEN 0 THEN NULL ELSE E'it''s \\\\ \"' || i END, "
        "ARRAY['a', NULL, i::text], '2024-01-01'::timestamptz + i * interval '1 hour', jsonb_build_object('n', i) "
        "FROM generate_series(1, 500) i",
        f"INSERT INTO {ODD_TABLE} VALUES (500, 1, 'newer', NULL, NULL, NULL)",
    )
    summary = machine.run(
        {
            "name": "odd",
            "source": {"type": "postgres", "connection": "shop", "table": ODD_TABLE, "cursor": "Order Id"},
            "sink": {
                "type": "postgres",
                "connection": "store",
                "table": ODD_TABLE,
                "mode": "upsert",
                "key": ["Order Id"],
            },
            "commit_strategy": {"commit_interval": 100},
        }
    )
    assert (summary["records"]["read"], summary["records"]["delivered"], summary["route"]) == (501, 501, ["done"])
    everything = f"SELECT md5(string_agg(t::text, '' ORDER BY \"Order Id\")) FROM {ODD_TABLE} t"
    newest = 'WHERE NOT ("Order Id" = 500 AND "select" IS DISTINCT FROM \'newer\')'
    assert execute(store, everything) == execute(shop, f"{everything} {newest}")


def test_json_files_into_a_table_that_refuses_some(machine: Machine) -> None:
    store = machine.databases["store"]
    execute(
        store, "CREATE TABLE readings (sensor text NOT NULL, at timestamptz, celsius numeric CHECK (celsius > -274))"
    )
    place = machine.here / "readings"
    place.mkdir()
    records = [{"sensor": f"s{n % 7}", "at": f"2024-05-{n % 28 + 1:02}T12:00:00Z", "f": float(n)} for n in range(1000)]
    lines = [json.dumps(record) for record in records]
    lines[10], lines[20] = "not json", json.dumps({**records[20], "f": -9999})
    (place / "one.jsonl").write_text("\n".join(lines[:600]) + "\n")
    (place / "two.jsonl").write_text("\n".join(lines[600:]))
    summary = machine.run(
        {
            "name": "readings",
            "source": {"type": "files", "path": str(place / "*.jsonl")},
            "transform": {
                "decode": "json",
                "schema": "sensor string, at timestamp, f double",
                "where": "sensor <> 's0'",
                "select": {"celsius": "cast((f - 32) / 1.8 as decimal(12,3))", "sensor": "upper(sensor)", "at": "at"},
            },
            "sink": {"type": "postgres", "connection": "store", "table": "readings"},
        }
    )
    assert summary["records"] == {"read": 1000, "delivered": 855, "filtered": 143, "dead_lettered": 2, "retried": 0}
    assert summary["errors"] == {"MessageDeserialization": 1, "Sink": 1}
    assert execute(store, "SELECT count(*), count(DISTINCT sensor), max(celsius)::text FROM readings") == [
        (855, 6, "537.222")
    ]


def test_a_table_into_delta_and_only_new_rows_the_next_time(machine: Machine) -> None:
    from deltalake import DeltaTable

    shop = machine.databases["shop"]
    execute(shop, "CREATE TABLE visits (seen timestamptz, who text)")
    rows = "SELECT timestamptz '2024-03-01' + i * interval '1 minute', 'v' || i FROM generate_series({}, {}) i"
    execute(shop, "INSERT INTO visits " + rows.format(1, 1000))
    document = {
        "name": "visits",
        "source": {"type": "postgres", "connection": "shop", "table": "public.visits", "cursor": "seen"},
        "transform": {"where": "who not like '%7'", "select": {"day": "cast(seen as date)", "who": "who"}},
        "sink": {"type": "delta", "path": str(machine.here / "visits")},
    }
    assert machine.run(document)["records"]["delivered"] == 900
    execute(shop, "INSERT INTO visits " + rows.format(1001, 1500))
    second = machine.run(document)
    assert (second["records"]["read"], second["records"]["delivered"], second["target_rows"]) == (500, 450, 1350)
    who = DeltaTable(machine.here / "visits").to_pyarrow_table().column("who").to_pylist()
    assert sorted(who) == sorted(f"v{n}" for n in range(1, 1501) if n % 10 != 7)


def test_an_empty_directory_is_no_error(machine: Machine) -> None:
    (machine.here / "empty").mkdir()
    summary = machine.run(events("nothing", machine.here / "empty", machine.here / "nowhere"))
    assert (summary["records"]["read"], summary["batches"], summary["route"]) == (0, 0, ["done"])
    assert summary["spark_started"] is False
    assert not (machine.here / "nowhere").exists() or summary["target_rows"] in (0, None)


def events(name: str, source: Path, target: Path) -> dict[str, Any]:
    """A pipeline of JSON lines into Delta."""
    return {
        "name": name,
        "source": {"type": "files", "path": str(source)},
        "transform": {"decode": "json", "schema": "id bigint, note string"},
        "sink": {"type": "delta", "path": str(target)},
    }


def orders(name: str, **source: Any) -> dict[str, Any]:
    """A pipeline from one database into the other."""
    return {
        "name": name,
        "source": {"type": "postgres", "connection": "shop", "table": "orders", "cursor": "id", **source},
        "sink": {"type": "postgres", "connection": "store", "table": "orders"},
    }


def test_a_broken_declaration_names_file_and_line(machine: Machine) -> None:
    path = machine.here / "broken.yaml"
    path.write_text("name: broken\nsource: {type: files, path: /in\nsink: {type: delta, path: /out}\n")
    assert f"{path}:3: not valid YAML" in failed(machine.command.run("run", str(path), "-o", "json"))
    path.write_text("name: broken\nsource:\n  type: files\n  pth: /in\nsink: {type: delta, path: /out}\n")
    line = failed(machine.command.run("run", str(path), "-o", "json"))
    assert f"{path}:4: source.pth:" in line
    assert "path" in line
    assert "broken.yaml: cannot be read" in failed(
        machine.command.run("run", "no such place/broken.yaml", "-o", "json")
    )


def test_a_missing_directory_is_named(machine: Machine) -> None:
    line = machine.refused(events("lost", machine.here / "no such place", machine.here / "out"))
    assert f"there is no directory {machine.here / 'no such place'}" in line


def test_a_wrong_password_and_a_missing_table_are_told_apart(machine: Machine) -> None:
    assert "password authentication failed" in machine.refused(orders("locked-out", connection="locked"))
    assert "source table nosuch does not exist" in machine.refused(orders("no-table", table="nosuch"))


def test_a_target_that_lacks_a_column_is_refused_and_gets_everything_once_it_has_it(machine: Machine) -> None:
    shop, store = machine.databases["shop"], machine.databases["store"]
    execute(shop, "CREATE TABLE orders (id bigint, note text)")
    execute(shop, "INSERT INTO orders SELECT i, 'n' || i FROM generate_series(1, 100) i")
    execute(store, "CREATE TABLE orders (id bigint)")
    line = machine.refused(orders("unfit"))
    assert "the target has no column note; it has id" in line
    assert machine.status("unfit")["batches"] == {"planned": 1}
    execute(store, "ALTER TABLE orders ADD note text")
    assert machine.run(orders("unfit"))["records"]["delivered"] == 100
    assert execute(store, "SELECT count(*), count(DISTINCT id), count(note) FROM orders") == [(100, 100, 100)]


ON_A_FULL_DISK = """
set -eu
mount -t tmpfs -o size=64m tmpfs disk
if [ "$1" = ledger ]; then "$2" -m airflow ckpt db migrate > migrate.log 2>&1; room=0; else room=1; fi
shift
head -c $((64 - room))M /dev/zero > disk/filler 2> /dev/null || true
"$@" > first.json 2> first.log && echo 0 > first.status || echo $? > first.status
rm disk/filler
"$@" > second.json 2> second.log && echo 0 > second.status || echo $? > second.status
"""


def on_a_full_disk(
    what: str, command: CkptCommand, place: Path, document: Mapping[str, Any]
) -> list[subprocess.CompletedProcess[str]]:
    """Run twice with ``place/disk`` a small file system of its own, which is full the first time.

    :param what: ``ledger`` makes the ledger there first and leaves no room at all, ``target`` leaves 1 MB
    """
    (place / "disk").mkdir(parents=True)
    namespace = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    pipeline = write_pipeline(place / "pipeline.yaml", document)
    arguments = [sys.executable, "-m", "airflow", "ckpt", "run", str(pipeline), "-o", "json"]
    subprocess.run(
        [*namespace, "sh", "-c", ON_A_FULL_DISK, "sh", what, *arguments],
        env=command.env,
        cwd=place,
        stdin=subprocess.DEVNULL,
        timeout=400,
        check=True,
    )
    return [
        subprocess.CompletedProcess(
            arguments, int(status), *((place / f"{time}.{kind}").read_text() for kind in ("json", "log"))
        )
        for time in ("first", "second")
        for status in [(place / f"{time}.status").read_text()]
    ]


def test_a_full_disk_under_the_target_costs_nothing_once_there_is_room(machine: Machine) -> None:
    place = machine.here / "full"
    (place / "in").mkdir(parents=True)
    with (place / "in" / "a.jsonl").open("w") as file:
        for number in range(20_000):
            file.write(json.dumps({"id": number, "note": os.urandom(100).hex()}) + "\n")
    document = events("full", place / "in", place / "disk" / "table")
    first, second = on_a_full_disk("target", machine.command, place, document)
    assert "No space left on device" in failed(first)
    summary = machine.succeeded(second)
    assert summary["records"] == {"read": 20_000, "delivered": 20_000, "filtered": 0, "dead_lettered": 0, "retried": 0}
    assert summary["target_rows"] == 20_000


def test_a_full_disk_under_the_ledger_is_told_and_nothing_was_begun(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"id": 1, "note": "x"}\n')
    extra = {"path": str(tmp_path / "disk" / "ledger.db")}
    command = CkptCommand(tmp_path / "home", {"ckpt_default": json.dumps({"conn_type": "ckpt", "extra": extra})})
    first, second = on_a_full_disk("ledger", command, tmp_path, events("e", tmp_path / "in", tmp_path / "table"))
    line = failed(first)
    assert f"the ledger in SQLite file {extra['path']}" in line
    assert "Make room" in line
    summary = machine.succeeded(second)
    assert (summary["records"]["delivered"], summary["target_rows"]) == (1, 1)
