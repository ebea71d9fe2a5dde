"""Dead letters in a separate directory: each failed attempt to write them is reported with its reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.connectors.batch_content import DeadLetter
from airflow_provider_ckpt.connectors.dead_letter_retries import DeadLettersRefusedError
from airflow_provider_ckpt.connectors.files.dead_letter_store import FilesDeadLetterStore
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.wave_messages import BatchTask

TASK = BatchTask(BatchKey(1, "p", 3), Range(0, 10), 2)
LETTERS = [
    DeadLetter(position, b"k", b"\xff\x00", ErrorInfo(ErrorType.SINK, "too long", sqlstate="22001"), {"x-error": "é"})
    for position in (4, 7)
]


def box(path: Path) -> FilesDeadLetterStore:
    pipeline = build(
        {
            "name": "orders",
            "source": {"type": "postgres", "connection": "c", "table": "t", "cursor": "id"},
            "sink": {"type": "postgres", "connection": "c", "table": "t"},
            "dead_letter_queue": {"sink": "files", "path": str(path)},
        }
    )
    return FilesDeadLetterStore(pipeline, None, SinkContext("ledger", "orders", 5))


def test_letters_come_back_as_they_were_and_a_longer_list_takes_the_place_of_a_shorter(tmp_path: Path) -> None:
    kept = box(tmp_path / "dead")
    kept.check()

    kept.store(TASK, LETTERS[:1], 0)
    kept.store(TASK, LETTERS, 1)

    found = list(kept.dead_letters([AttemptKey(TASK.key, 2, 5)]))
    assert [item.dead_letter for item in found] == LETTERS
    assert [file.name for file in tmp_path.rglob("*.jsonl")] == ["3-2-5.jsonl"]
    assert list(kept.dead_letters([AttemptKey(TASK.key, 1, 5), AttemptKey(TASK.key, 2, 4)])) == []


def test_one_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    kept = box(tmp_path / "dead")
    kept.check()
    (tmp_path / "dead").mkdir()
    (tmp_path / "dead" / "orders").touch()

    with pytest.raises(DeadLettersRefusedError, match=r"cannot write .*/3-2-5\.jsonl: (Not a directory|File exists)\."):
        kept.store(TASK, LETTERS, 0)
