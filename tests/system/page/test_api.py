"""The page's API in Airflow's API server: the rights of users, and the steps from the list to an applied action."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.system.page.ledger_states import DEAD_LETTERS, HOSTILE

DOCS = Path(__file__).parents[3] / "docs" / "page.rst"
WITH_DAG, WITHOUT_DAG = ("orders", "prices"), ("bare", "orphan")
FAB = "airflow.providers.fab.auth_manager.fab_auth_manager.FabAuthManager"
SETTINGS = {
    "simple": {"CORE__MULTI_TEAM": "True", "CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin"},
    "fab": {"CORE__AUTH_MANAGER": FAB},
}


@pytest.fixture(scope="module", params=["simple", "fab"])
def answers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Answers of the API under one auth manager; Airflow and its settings need a process of their own."""
    home = tmp_path_factory.mktemp("home")
    settings = {
        "API__BASE_URL": "http://airflow.test",
        "API__SECRET_KEY": "s" * 32,
        "API_AUTH__JWT_SECRET": "j" * 64,
        "CORE__LOAD_EXAMPLES": "False",
        "DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
        **SETTINGS[request.param],
    }
    env = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    env |= {"AIRFLOW_HOME": str(home), **{f"AIRFLOW__{name}": value for name, value in settings.items()}}
    command = [sys.executable, "-m", "tests.system.page.walk", request.param, f"sqlite:///{home}/ckpt.db", f"{home}/a"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found: dict[str, Any] = json.loads((home / "a").read_text())
    return found


def table(name: str) -> dict[str, dict[str, str]]:
    """Rows of a list table of the docs, each as a dict by the heading of its column."""
    text = DOCS.read_text().split(f":name: {name}\n", 1)[1].lstrip("\n").split("\n\n")[0]
    heading, *rows = [re.findall(r"^ *(?:\* )?- (.*)$", part, re.M) for part in re.split(r"\n   (?=\* - )", text)]
    return {row[0]: dict(zip(heading[1:], row[1:], strict=True)) for row in rows}


def outcome(status: int) -> str:
    """Turn a status into a cell of the tables: ``yes``, or the status that refuses or fails."""
    return "yes" if status == 200 else str(status)


def kind(row: dict[str, Any]) -> str:
    """Name of the row of the table of rights to which a request belongs."""
    assert row["method"] in ("GET", "POST"), f"the docs say nothing of {row['method']} {row['route']}"
    name = "see" if row["method"] == "GET" else "act"
    return f"{name} without DAG" if row["pipeline"] in WITHOUT_DAG else name


def test_every_route_answers_each_user_as_the_docs_say(answers: dict[str, Any]) -> None:
    rights = table("page-rights")
    asked = [row for row in answers["matrix"] if row["origin"] == "same" and row["pipeline"] != "unknown"]
    assert {row["route"] for row in asked} >= {f"/api{path}" for path in ("/me", "/pipelines", "/openapi.json")}
    wrong = []
    for row in asked:
        expected = rights[kind(row)][row["user"]]
        if not row["pipeline"] and row["user"] != "anonymous":
            expected = "yes"
        wrong += [] if outcome(row["status"]) == expected else [(row, expected)]
    assert wrong == []
    assert len(asked) > 100


def test_every_route_answers_each_origin_as_the_docs_say(answers: dict[str, Any]) -> None:
    origins = table("page-origins")
    asked = [row for row in answers["matrix"] if row["user"] == "user" and row["pipeline"] in ("", "orders")]
    wrong = [row for row in asked if outcome(row["status"]) != origins[kind(row)][row["origin"]]]
    assert wrong == []
    refused = [row for row in answers["matrix"] if row["user"] == "anonymous"]
    assert {row["status"] for row in refused if row["origin"] == "same"} == {401}
    assert {row["status"] for row in refused} <= {401, 403}


def test_what_is_refused_changes_nothing_and_what_is_done_is_in_the_audit_log(answers: dict[str, Any]) -> None:
    def granted(*routes: str) -> int:
        rows = [row for row in answers["matrix"] if row["pipeline"] == "orders" and row["status"] == 200]
        return sum(row["route"].endswith(routes) for row in rows)

    story = answers["story"]
    assert len(story["actions"]["content"]["items"]) == granted("/actions") > 0
    looks = [event["kind"] for event in story["looks"]["content"]["items"]]
    assert looks.count("dead_letters_read") == granted("/dead-letters/records") + 4
    assert looks.count("dead_letters_exported") == granted("/dead-letters/export") + 1
    assert {row["status"] for row in answers["matrix"]} == {200, 401, 403, 404}


def test_only_administrators_may_delete_what_the_ledger_stores(answers: dict[str, Any]) -> None:
    rights = table("page-rights")
    wrong = []
    for row in answers["deletions"]:
        name = "delete without DAG" if row["pipeline"] in WITHOUT_DAG else "delete"
        unknown = "401" if row["user"] == "anonymous" else "404"
        expected = unknown if row["pipeline"] == "unknown" else rights[name][row["user"]]
        wrong += [] if outcome(row["status"]) == expected else [(row, expected)]
    assert wrong == []
    assert len(answers["deletions"]) == 60


def test_a_lease_is_broken_once_and_only_the_one_that_was_shown(answers: dict[str, Any]) -> None:
    story = answers["story"]
    status = {name: step["status"] for name, step in story.items()}
    content = {name: step["content"] for name, step in story.items()}
    free, shown = content["free lease"], content["lease"]

    assert (free["id"], free["summary"]) == (None, "Nobody holds the lease.")
    assert shown["broken"]["run"]["run_id"] == "manual__9"
    assert shown["broken"]["renewed_at"] < shown["expires_at"] < shown["broken"]["expires_at"]
    assert shown["needs_reason"]
    assert (shown["by"], shown["waits_for"]) == ("ledger", None)
    (change,) = shown["changes"]
    assert (change["what"], change["before"].startswith("held by dag:shop/manual__9"), change["after"]) == (
        "lease",
        True,
        f"free, epoch {shown['broken']['epoch'] + 1}",
    )
    assert (status["lease without reason"], status["broken"], status["broken again"]) == (422, 200, 409)
    assert "epoch" in content["fenced"]["refusal"]
    assert content["fenced"]["lease"]["held"] is False
    assert (status["third lease"], "acquired since" in content["third lease"]["detail"]) == (409, True)
    events = content["lease events"]["items"]
    assert [event["kind"] for event in events] == ["lease_broken", "approved"]
    assert {event["actor"] for event in events} == {"airflow:user"}
    assert events[0]["reason"] == "its machine is gone"


def test_old_history_is_deleted_once(answers: dict[str, Any]) -> None:
    story = answers["story"]
    content = {name: step["content"] for name, step in story.items()}

    assert "old events" in {change["what"] for change in content["garbage"]["changes"]}
    assert {change["after"] for change in content["garbage"]["changes"]} == {"0"}
    assert content["collected"]["changes"] == content["garbage"]["changes"]
    assert (story["collected"]["status"], story["collected again"]["status"]) == (200, 409)
    assert content["no garbage"]["id"] is None


def test_a_pipeline_is_deleted_by_whoever_types_its_name(answers: dict[str, Any]) -> None:
    story = answers["story"]
    content = {name: step["content"] for name, step in story.items()}
    shown = content["deletion"]

    assert (shown["needs_reason"], shown["needs_name"]) == (True, True)
    assert [line["partition"] for line in shown["before"]] == ["t"]
    assert shown["after"] == []
    assert {change["after"] for change in shown["changes"]} == {"deleted"}
    assert (story["deletion while it runs"]["status"], story["deletion after a run"]["status"]) == (409, 409)
    assert [story[f"deletion of {name}"]["status"] for name in (None, "", "orphans")] == [422, 422, 422]
    assert [story[name]["status"] for name in ("not deleted", "deleted", "gone")] == [200, 200, 404]
    events = content["gone"]["events"]
    assert ["forgotten", "airflow:admin", "its DAG is gone"] in events
    assert ["approved", "airflow:admin", None] in events


def test_an_unknown_pipeline_is_like_an_invisible_one(answers: dict[str, Any]) -> None:
    asked = [row for row in answers["matrix"] if row["pipeline"] == "unknown" and row["user"] != "anonymous"]
    assert {row["status"] for row in asked} == {404}


def test_no_answer_is_cached_or_taken_for_another_type(answers: dict[str, Any]) -> None:
    for row in answers["matrix"]:
        headers = row["headers"]
        assert headers["cache-control"] == "no-store", row
        assert headers["x-content-type-options"] == "nosniff", row
        good = "application/x-ndjson" if row["route"].endswith("/export") else "application/json"
        wanted = good if row["status"] == 200 else "application/problem+json"
        assert headers["content-type"] == wanted, row


def test_from_the_list_to_an_action_that_is_done_once(answers: dict[str, Any]) -> None:
    story = answers["story"]
    status = {name: step["status"] for name, step in story.items()}
    content = {name: step["content"] for name, step in story.items()}
    orders = content["list"]["items"][0]
    assert (orders["name"], orders["health"], orders["cause"]["batch"]) == ("orders", "blocked", "t#10")
    (line,) = content["line"]["partitions"]
    assert [piece["fate"] for piece in line["pieces"]] == ["settled", "held", "delivered", "delivered"]
    assert line["blocked"] == {"batch": "t#10", "state": "held", "batches": 2, "positions": 20}
    assert content["accounted"]["ok"] is True
    preview = content["preview"]
    assert [piece["fate"] for piece in preview["after"][0]["pieces"]][1] == "planned"
    assert (status["of another user"], status["for another pipeline"]) == (409, 409)
    assert (status["done"], content["done"]["state"]) == (200, "applied")
    assert (status["again"], status["older preview"], status["void"]) == (409, 409, 409)
    assert (status["without reason"], status["useless field"], status["bad cursor"]) == (422, 422, 422)
    assert status["form"] == 415
    assert content["after"]["row"]["state"] == "planned"
    assert content["discarded"]["changes"] == [
        {"what": "dead letters discarded", "before": "0", "after": "3"},
        {"what": "dead letters parked", "before": "3", "after": "0"},
    ]
    assert content["rewind"]["after"][0]["committed"] == "50"
    assert [item["name"] for item in content["of the DAG"]["items"]] == ["prices"]
    assert content["list of outsider"]["items"] == []
    assert {item["name"] for item in content["list of admin"]["items"]} == {
        *("orders", "prices", "bare", "orphan", "shop.public.customers", "shop.public.items")
    }


def test_the_line_has_the_schema_versions_of_its_range_with_what_changed_and_who_recorded_them(
    answers: dict[str, Any],
) -> None:
    (line,) = answers["story"]["line"]["content"]["partitions"]
    (early,) = answers["story"]["early line"]["content"]["partitions"]
    (version,) = line["schema_versions"]
    name = f"note {HOSTILE}"
    assert (version["version"], version["position"], version["generation"], version["columns"]) == (2, "120", 1, 3)
    assert version["changes"] == [{"kind": "added", "column": name, "before": None, "after": "text", "new_name": None}]
    assert (version["changes_left_out"], version["decision"]) == (
        0,
        [f"column {name} (text) is new: the target gets it"],
    )
    assert version["run"] == {"dag_id": "shop", "run_id": "manual__1", "task_id": "replicate", "map_index": -1}
    assert version["at"].endswith("Z")
    assert [(found["version"], found["position"]) for found in early["schema_versions"]] == [(1, "0")]
    assert (line["schema_versions_left_out"], early["schema_versions_left_out"]) == (False, False)


def test_a_refresh_tells_how_far_it_is_and_why_its_publication_is_held(answers: dict[str, Any]) -> None:
    story = answers["story"]
    names = ("staging", "held publication", "released", "held publication for a viewer")
    staging, held, released, seen = (story[name]["content"]["refreshes"][0] for name in names)
    assert (staging["partition"], staging["generation"], staging["state"]) == ("table", 2, "staging")
    assert (staging["positions"], staging["staged_positions"], staging["staged_batches"], staging["open_batches"]) == (
        *(50, 20, 2, 1),
    )
    assert (staging["hold"], staging["since"].endswith("Z")) == (None, True)
    assert (held["state"], held["staged_positions"], held["since"]) == ("held", 50, staging["since"])
    assert (held["hold"]["batch"], held["hold"]["reason"]) == ("table#4@2", f"it has no rows {HOSTILE}")
    assert held["hold"]["since"] >= held["since"]
    assert seen == held, "the reason is for all who may see the pipeline"
    assert (released["state"], released["hold"]) == ("released", None)
    assert story["refresh of outsider"]["status"] == 404
    assert story["detail"]["content"]["refreshes"] == [], "a pipeline that is not refreshed"


def test_a_database_sums_its_tables_for_whoever_may_see_them(answers: dict[str, Any]) -> None:
    content = {name: step["content"] for name, step in answers["story"].items()}
    database = content["database"]
    assert [(item["name"], item["database"]) for item in database["items"]] == [("shop.public.items", "shop")]
    (shop,) = database["databases"]
    assert (shop["name"], shop["health"], shop["tables"]) == ("shop", "blocked", 2), "health restricts rows, not sums"
    assert (shop["done"], shop["behind"], shop["held"], shop["failed"], shop["running"]) == (1, 1, 1, 0, 0)
    assert content["list"]["databases"] == content["first page"]["databases"] == [shop]
    assert content["second page"]["databases"] == [], "later pages do not repeat the sums"
    assert content["database of outsider"]["databases"] == []


def test_an_action_that_needs_the_sink_comes_with_the_form_of_the_recovery_dag(answers: dict[str, Any]) -> None:
    (form,) = answers["story"]["recover"]["content"]["recovery"]
    assert form["dag_id"] == "ckpt_recovery"
    assert form["conf"] == {"pipeline": "orders", "action": "recover"}
    assert form["may_trigger"] is True
    (form,) = answers["story"]["adopt"]["content"]["recovery"]
    assert form["conf"] == {"pipeline": "orders", "action": "adopt", "ledger_id": "5f0c0d52"}
    assert answers["story"]["adopt of nothing"]["status"] == 422


def test_dead_letters_are_read_as_they_are_stored(answers: dict[str, Any]) -> None:
    story = {name: step["content"] for name, step in answers["story"].items()}
    records = story["records"]["items"]

    assert [content_of(record["value"]) for record in records] == [
        stored.value and stored.value[:16_384] for stored in DEAD_LETTERS
    ]
    assert [(record["value"]["kind"], record["value"]["size"], record["value"]["truncated"]) for record in records] == [
        ("binary", 12, False),
        ("json", len(DEAD_LETTERS[1].value or b""), False),
        ("text", 1_000_003, True),
    ]
    assert [record["position"] for record in records] == ["113", "111", "112"]
    assert content_of(records[1]["key"]) == HOSTILE.encode()
    assert (records[1]["error"]["message"], records[1]["error"]["sqlstate"]) == (f"value too long {HOSTILE}", "22001")
    assert records[1]["origin"] == {"topic": HOSTILE}
    hostile, empty = records[1]["headers"]
    assert (hostile["name"], content_of(hostile["value"]), empty["value"]) == (HOSTILE, b"\x00\xff", None)
    assert {group["error_type"]: group["records"] for group in story["groups"]["items"]} == {
        "Sink": 2,
        "MessageDeserialization": 1,
    }


def test_records_are_read_page_by_page_and_searched(answers: dict[str, Any]) -> None:
    story = {name: step["content"] for name, step in answers["story"].items()}
    (first,), (second,) = story["first record"]["items"], story["second record"]["items"]

    assert (first["position"], content_of(first["value"]), first["value"]["truncated"]) == (
        "113",
        b"\xff\x00\xfe ",
        True,
    )
    assert second["position"] == "111"
    assert [record["position"] for record in story["found records"]["items"]] == ["111", "112"]


def test_the_export_has_every_byte(answers: dict[str, Any]) -> None:
    exported = answers["story"]["export"]
    lines = [json.loads(line) for line in exported["content"].splitlines()]

    assert exported["headers"]["content-disposition"] == 'attachment; filename="orders-dead-letters.jsonl"'
    assert [base64.b64decode(line["value_base64"]) for line in lines] == [stored.value for stored in DEAD_LETTERS]


def content_of(shown: dict[str, Any]) -> bytes:
    """Bytes of a record, as far as the answer has them."""
    return base64.b64decode(shown["base64"])


def test_hostile_text_stays_text_and_is_bounded(answers: dict[str, Any]) -> None:
    event = answers["story"]["events"]["content"]["items"][0]
    assert event["actor"] == f"airflow:{HOSTILE}"
    assert event["reason"].startswith(HOSTILE)
    assert len(event["reason"]) <= 2000
    assert len(event["detail"]) <= 8000
