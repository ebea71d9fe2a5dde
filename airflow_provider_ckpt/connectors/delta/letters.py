"""Dead letters of a Delta table as JSON lines beside it: one file an attempt, which never changes; and replays."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from airflow_provider_ckpt.connectors.content import DeadLetter, KeptLetter, headers_of
from airflow_provider_ckpt.connectors.delta.layout import Layout
from airflow_provider_ckpt.connectors.files.local import io_error, write_durably
from airflow_provider_ckpt.connectors.protocols import SinkContext
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType, SinkError
from airflow_provider_ckpt.core.letters import AttemptKey, Replay
from airflow_provider_ckpt.core.wave import BatchTask


def letter_lines(task: BatchTask, context: SinkContext, letters: Sequence[DeadLetter], at: datetime) -> bytes:
    """An attempt's dead letters as its file holds them, in order."""
    lines = [json.dumps(_document(task, context, letter, at), ensure_ascii=False) for letter in letters]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def read_letters(layout: Layout, source: AttemptKey) -> Iterator[KeptLetter]:
    """The dead letters that an attempt left; none if it has no file.

    :raises SinkError: if the file is damaged
    """
    path = layout.letters_file(source.key, source.attempt, source.epoch)
    try:
        with path.open("rb") as file:
            for line in file:
                yield _letter(source, json.loads(line))
    except FileNotFoundError:
        return
    except (ValueError, KeyError) as error:
        raise SinkError(
            f"the dead letters in {path} are damaged.", pipeline=layout.pipeline, hint="Restore the file from a backup."
        ) from error
    except OSError as error:
        raise io_error(error, f"read {path}") from error


def keep_replay(layout: Layout, partition: str, replay: Replay) -> None:
    """Write a replay's file durably, in place of one that was forgotten unsent.

    :raises IoError: if the file system fails
    """
    path = layout.replay(partition)
    try:
        write_durably(path, json.dumps(replay.to_json()).encode())
    except OSError as error:
        raise io_error(error, f"write {path}") from error


def read_replay(layout: Layout, partition: str) -> Replay | None:
    """What :func:`keep_replay` wrote, if it did.

    :raises SinkError: if the file is damaged
    """
    path = layout.replay(partition)
    try:
        return Replay.from_json(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError) as error:
        raise SinkError(
            f"the replay in {path} is damaged.", pipeline=layout.pipeline, hint="Restore the file from a backup."
        ) from error
    except OSError as error:
        raise io_error(error, f"read {path}") from error


def _document(task: BatchTask, context: SinkContext, letter: DeadLetter, at: datetime) -> dict[str, Any]:
    return {
        "pipeline": context.pipeline,
        "ledger": context.ledger,
        "generation": task.key.generation,
        "partition": task.key.partition,
        "seq": task.key.seq,
        "attempt": task.attempt,
        "epoch": context.epoch,
        "position": letter.position,
        "error_type": letter.error.type.value,
        "message": letter.error.message,
        "sqlstate": letter.error.sqlstate,
        "key": _text(letter.key),
        "key_base64": _base64(letter.key),
        "value": _text(letter.value),
        "value_base64": _base64(letter.value),
        "headers": letter.header_texts(),
        "at": at.isoformat(),
    }


def _letter(source: AttemptKey, line: dict[str, Any]) -> KeptLetter:
    error = ErrorInfo(ErrorType(line["error_type"]), line["message"], sqlstate=line["sqlstate"])
    key, value = _bytes(line["key_base64"]), _bytes(line["value_base64"])
    letter = DeadLetter(line["position"], key, value, error, *headers_of(line["headers"]))
    return KeptLetter(source, letter, datetime.fromisoformat(line["at"]))


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
