"""A files source recognises the files that its own pipeline writes, however source and sink spell the path."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.files.own_output import matches
from airflow_provider_ckpt.connectors.files.source import FilesSource
from airflow_provider_ckpt.connectors.outputs import WrittenFiles, WrittenTarget
from airflow_provider_ckpt.connectors.storage.local import LocalLocation
from tests.integration.connectors.files.files_support import pipeline


def rows(directory: Path) -> WrittenFiles:
    """The output of a files sink."""
    return WrittenFiles("sink.path", LocalLocation(directory), "ckpt-", ".jsonl")


def reads(path: Path | str, output: WrittenFiles, **source: Any) -> bool:
    """Return whether a source of that path would read the output."""
    return FilesSource(pipeline(path, **source)).reads(output)


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    (tmp_path / "d").mkdir()
    return tmp_path / "d"


@pytest.mark.parametrize(
    ("pattern", "sink"),
    [
        ("**/*.jsonl", "x"),
        ("**/*.jsonl", "x/y/z"),
        ("**/*.jsonl", "."),
        ("**", "x"),
        ("**/**/*", "x"),
        ("*/*.jsonl", "x"),
        ("[xy]/*", "x"),
        ("**/x/*.json*", "a/x"),
        ("a/**/c/**/*.jsonl", "a/b/c/d"),
        ("*.jsonl", "."),
        ("c*l", "."),
        ("**/[!d]*", "x"),
        ("**/ckpt-????*", "x"),
    ],
)
def test_a_sink_under_the_pattern_is_recognised(inbox: Path, pattern: str, sink: str) -> None:
    (inbox / "a").mkdir()
    assert reads(f"{inbox}/{pattern}", rows((inbox / sink).resolve()))
    (inbox / sink).mkdir(parents=True, exist_ok=True)
    assert reads(f"{inbox}/{pattern}", rows((inbox / sink).resolve()))


@pytest.mark.parametrize(
    ("pattern", "sink"),
    [
        ("**/*.csv", "x"),
        ("**/in-*.jsonl", "x"),
        ("**/[0-9]*.jsonl", "x"),
        ("*/*.jsonl", "x/y"),
        ("*/*.jsonl", "."),
        ("*.jsonl", "x"),
        ("**/*.jsonl", "_x"),
        ("**/*.jsonl", ".x/y"),
        ("**/*.jsonl", "../x"),
        ("a/**/c/*.jsonl", "a/b/d"),
        ("[!x]/*", "x"),
        ("", "x"),
    ],
)
def test_a_sink_elsewhere_or_of_other_names_is_not(inbox: Path, pattern: str, sink: str) -> None:
    (inbox / "a").mkdir()
    assert not reads(f"{inbox}/{pattern}", rows((inbox / sink).resolve()))


def test_the_source_directory_itself_is_recognised(inbox: Path) -> None:
    assert reads(inbox, rows(inbox))


def test_a_link_to_the_source_directory_is_recognised(inbox: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(inbox)

    assert reads(f"{tmp_path}/link/**/*.jsonl", rows(inbox / "x"))


def test_a_relative_path_is_recognised(inbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert reads("d/**/*.jsonl", rows(inbox / "x"))
    source = FilesSource(pipeline("d/**/*.jsonl"), Connection("fs", "fs", extra={"path": str(tmp_path)}))
    assert source.reads(rows(inbox / "x"))


def test_a_followed_link_to_the_sink_is_recognised_and_one_that_is_not_followed_is_not(
    inbox: Path, tmp_path: Path
) -> None:
    (tmp_path / "out" / "x").mkdir(parents=True)
    (inbox / "link").symlink_to(tmp_path / "out")

    assert reads(f"{inbox}/**/*.jsonl", rows(tmp_path / "out" / "x"), follow_links=True)
    assert reads(f"{inbox}/**/*.jsonl", rows(tmp_path / "out" / "new"), follow_links=True)
    assert not reads(f"{inbox}/*/*.jsonl", rows(tmp_path / "out" / "x"), follow_links=True)
    assert not reads(f"{inbox}/**/*.jsonl", rows(tmp_path / "out" / "x"))


def test_nested_output_is_recognised_from_above_and_from_within(inbox: Path) -> None:
    nested = replace(rows(inbox / "x"), prefix="", nested=True)
    (inbox / "x" / "day=1").mkdir(parents=True)

    assert reads(f"{inbox}/*/*/*.jsonl", nested)
    assert reads(f"{inbox}/x/day=1/*.jsonl", nested)
    assert reads(inbox / "x" / "day=1", nested)
    assert not reads(f"{inbox}/*.jsonl", nested)
    assert not reads(f"{inbox}/x/day=1/*.csv", nested)


def test_a_single_file_is_no_output_of_another_name(inbox: Path) -> None:
    (inbox / "a.jsonl").touch()

    assert not reads(inbox / "a.jsonl", rows(inbox))


def test_a_pattern_of_many_wildcards_is_compared_at_once(inbox: Path) -> None:
    deep = inbox.joinpath(*["a"] * 60)

    assert not matches(Path(f"{inbox}/{'**/a*/' * 30}{'*a' * 60}.csv"), rows(deep), follow_links=False)


def test_a_topic_or_table_is_not_read_from_files(inbox: Path) -> None:
    assert not FilesSource(pipeline(inbox)).reads(WrittenTarget("sink.topic", "orders", "kafka", "id"))
