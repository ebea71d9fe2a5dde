"""``airflow ckpt run`` from a shell with unusual directories and tables, and its messages if it cannot run.

An error is one line on standard error, with exit status 1 and nothing on standard output. Afterwards the corrected
pipeline delivers every record once with the same ledger.
"""

from __future__ import annotations

import json
from typing import Any

from tests.services.delta import read_delta
from tests.services.tables import execute
from tests.system.machine import Machine, events, failed

ODD_TABLE = '"Sales 2024"."Order ""Items"""'
ODD_COLUMNS = (
    '"Order Id" bigint {key}, "größe" numeric(10, 2), "select" text, "tags" text[], "when" timestamptz, "doc" jsonb'
)


def test_csv_with_quotes_and_newlines_into_delta(machine: Machine) -> None:

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
    rows = read_delta(machine.here / "ta ble").to_pylist()
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
    actor = read_delta(machine.here / "visits").column("who").to_pylist()
    assert sorted(actor) == sorted(f"v{n}" for n in range(1, 1501) if n % 10 != 7)


def test_an_empty_directory_is_no_error(machine: Machine) -> None:
    (machine.here / "empty").mkdir()
    summary = machine.run(events("nothing", machine.here / "empty", machine.here / "nowhere"))
    assert (summary["records"]["read"], summary["batches"], summary["route"]) == (0, 0, ["done"])
    assert summary["spark_started"] is False
    assert not (machine.here / "nowhere").exists() or summary["target_rows"] in (0, None)


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
    assert "orders has no column note; it has id" in line
    assert machine.status("unfit")["batches"] == {}
    execute(store, "ALTER TABLE orders ADD note text")
    assert machine.run(orders("unfit"))["records"]["delivered"] == 100
    assert execute(store, "SELECT count(*), count(DISTINCT id), count(note) FROM orders") == [(100, 100, 100)]
