"""Store dead letters as JSON lines beside a target that cannot hold them: one file an attempt, which never changes.

Their path is ``<target>.dead_letters/<pipeline>/ledger=<ledger>/generation=<generation>/<partition>``, with files
called ``<seq>-<attempt>-<epoch>.jsonl``. The replays of side partitions are stored with the sink's own bookkeeping, as
``<directory>/<partition>.json``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow_provider_ckpt.connectors.batch_content import DeadLetter, StoredDeadLetter, split_headers
from airflow_provider_ckpt.connectors.dead_letter_store import DeadLettersRefusedError
from airflow_provider_ckpt.connectors.local.filesystem import escape, io_error, write_durably
from airflow_provider_ckpt.connectors.outputs import WrittenFiles
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letter_index import AttemptKey
from airflow_provider_ckpt.core.dead_letter_replay import Replay
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType, SinkError
from airflow_provider_ckpt.core.wave import BatchTask


def dead_letters_directory(target: Path, pipeline: str) -> Path:
    """Return the directory of a pipeline's dead letters."""
    return target.with_name(f"{target.name}.dead_letters") / escape(pipeline)


@dataclass(frozen=True, slots=True)
class DeadLetterFiles:
    """Dead letters of one pipeline and ledger.

    :param target: the target beside which they are stored
    :param ledger: id of the ledger
    :param pipeline: name of the pipeline
    """

    target: Path
    ledger: str
    pipeline: str

    @property
    def directory(self) -> Path:
        """Directory of the pipeline's dead letters of all ledgers."""
        return dead_letters_directory(self.target, self.pipeline)

    def output(self, key: str) -> WrittenFiles:
        """The files of all of the pipeline's dead letters.

        :param key: the pipeline's key that says where they are
        """
        return WrittenFiles(key, self.directory, suffix=".jsonl", nested=True)

    def file(self, key: BatchKey, attempt: int, epoch: int) -> Path:
        """Return the path of an attempt's dead letters.

        They count only if the batch's receipt names that attempt and epoch.

        :param key: the batch
        :param attempt: number of the attempt
        :param epoch: epoch of the attempt
        """
        directory = self.directory / f"ledger={escape(self.ledger)}" / f"generation={key.generation}"
        return directory / escape(key.partition) / f"{key.seq}-{attempt}-{epoch}.jsonl"

    def write(self, task: BatchTask, context: SinkContext, dead_letters: Sequence[DeadLetter]) -> Path:
        """Write an attempt's dead letters durably; a failed write leaves no file behind.

        :param task: the batch and its attempt
        :param context: ledger, pipeline and epoch
        :param dead_letters: all dead letters of the attempt
        :raises IoError: if the disk as a whole is full or broken
        :raises DeadLettersRefusedError: if they could not be written for any other reason
        """
        path = self.file(task.key, task.attempt, context.epoch)
        at = datetime.now(UTC)
        lines = [
            json.dumps(_to_json(task, context, dead_letter, at), ensure_ascii=False) for dead_letter in dead_letters
        ]
        data = "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")
        try:
            write_durably(path, data)
        except OSError as error:
            failure = io_error(error, f"write {path}")
            if failure.is_outage:
                raise failure from error
            hint = "Make that directory writable, then run again."
            raise DeadLettersRefusedError(failure.message, hint=hint) from error
        return path

    def read(self, source: AttemptKey) -> Iterator[StoredDeadLetter]:
        """Yield the dead letters that an attempt left; none if it has no file.

        :raises SinkError: if the file is damaged
        """
        path = self.file(source.key, source.attempt, source.epoch)
        try:
            with path.open("rb") as file:
                for line in file:
                    yield _from_json(source, json.loads(line))
        except FileNotFoundError:
            return
        except (ValueError, KeyError) as error:
            raise SinkError(
                f"the dead letters in {path} are damaged.",
                pipeline=self.pipeline,
                hint="Restore the file from a backup.",
            ) from error
        except OSError as error:
            raise io_error(error, f"read {path}") from error


@dataclass(frozen=True, slots=True)
class ReplayFiles:
    """Replays of one pipeline and ledger: which dead letters its side partitions send again.

    :param directory: directory for nothing else
    :param pipeline: name of the pipeline, for messages
    """

    directory: Path
    pipeline: str

    def write(self, partition: str, replay: Replay) -> None:
        """Write a replay's file durably, replacing one of the same partition that was never sent.

        :raises IoError: if the file system fails
        """
        path = self._file(partition)
        try:
            write_durably(path, json.dumps(replay.to_json()).encode())
        except OSError as error:
            raise io_error(error, f"write {path}") from error

    def read(self, partitions: Iterable[str]) -> dict[str, Replay]:
        """Return the stored replays of these partitions; partitions that never sent anything are left out.

        :raises SinkError: if a file is damaged
        """
        found = {partition: self._read(self._file(partition)) for partition in partitions}
        return {partition: replay for partition, replay in found.items() if replay is not None}

    def _file(self, partition: str) -> Path:
        return self.directory / f"{escape(partition)}.json"

    def _read(self, path: Path) -> Replay | None:
        try:
            return Replay.from_json(json.loads(path.read_bytes()))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError) as error:
            raise SinkError(
                f"the replay in {path} is damaged.", pipeline=self.pipeline, hint="Restore the file from a backup."
            ) from error
        except OSError as error:
            raise io_error(error, f"read {path}") from error


def _to_json(task: BatchTask, context: SinkContext, dead_letter: DeadLetter, at: datetime) -> dict[str, Any]:
    return {
        "pipeline": context.pipeline,
        "ledger": context.ledger,
        "generation": task.key.generation,
        "partition": task.key.partition,
        "seq": task.key.seq,
        "attempt": task.attempt,
        "epoch": context.epoch,
        "position": dead_letter.position,
        "error_type": dead_letter.error.type.value,
        "message": dead_letter.error.message,
        "sqlstate": dead_letter.error.sqlstate,
        "key": _text(dead_letter.key),
        "key_base64": _base64(dead_letter.key),
        "value": _text(dead_letter.value),
        "value_base64": _base64(dead_letter.value),
        "headers": dead_letter.header_texts(),
        "at": at.isoformat(),
    }


def _from_json(source: AttemptKey, line: dict[str, Any]) -> StoredDeadLetter:
    error = ErrorInfo(ErrorType(line["error_type"]), line["message"], sqlstate=line["sqlstate"])
    key, value = _bytes(line["key_base64"]), _bytes(line["value_base64"])
    dead_letter = DeadLetter(line["position"], key, value, error, *split_headers(line["headers"]))
    return StoredDeadLetter(source, dead_letter, datetime.fromisoformat(line["at"]))


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
