"""Store dead letters as JSON lines beside a target that cannot store them itself, one file for each attempt.

The files are ``<target>.dead_letters/<pipeline>/ledger=<ledger>/generation=<generation>/<partition>/`` with the names
``<seq>-<attempt>-<epoch>.jsonl``. The replays of side partitions (lists of the dead letters that they send again) are
stored in the sink's bookkeeping directory, in files ``<partition>.json``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from airflow_provider_ckpt.connectors.batch_content import DeadLetter, StoredDeadLetter, split_headers
from airflow_provider_ckpt.connectors.dead_letter_retries import DeadLettersRefusedError
from airflow_provider_ckpt.connectors.outputs import WrittenFiles
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.storage.filesystem import escape
from airflow_provider_ckpt.connectors.storage.location import Location
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType, IoError, SinkError
from airflow_provider_ckpt.core.replay_content import Replay
from airflow_provider_ckpt.core.wave_messages import BatchTask


def dead_letters_directory(target: Location, pipeline: str) -> Location:
    """Return the directory of a pipeline's dead letters beside a target.

    :param target: file or directory of the target
    :param pipeline: name of the pipeline
    """
    return target.sibling(f"{target.name}.dead_letters") / escape(pipeline)


@dataclass(frozen=True, slots=True)
class DeadLetterFiles:
    """Writes and reads the dead letter files of one pipeline and ledger.

    :param target: path beside which the directory of the dead letters lies, such as the sink's target
    :param ledger: id of the ledger
    :param pipeline: name of the pipeline
    """

    target: Location
    ledger: str
    pipeline: str

    @property
    def directory(self) -> Location:
        """Directory of the pipeline's dead letter files; it contains the files of all ledgers."""
        return dead_letters_directory(self.target, self.pipeline)

    def output(self, key: str) -> WrittenFiles:
        """Return a description of the dead letter files, with which a source checks that it does not read them.

        :param key: key of the pipeline's declaration that determines the directory, for messages, such as
            ``dead_letter_queue.path``
        """
        return WrittenFiles(key, self.directory, suffix=".jsonl", nested=True)

    def file(self, key: BatchKey, attempt: int, epoch: int) -> Location:
        """Return the path of the file with an attempt's dead letters.

        The dead letters in the file are read only if the batch's receipt names this attempt; a failed attempt may leave
        a file behind.

        :param key: the batch
        :param attempt: number of the attempt
        :param epoch: epoch of the run that makes the attempt
        """
        directory = self.directory / f"ledger={escape(self.ledger)}" / f"generation={key.generation}"
        return directory / escape(key.partition) / f"{key.seq}-{attempt}-{epoch}.jsonl"

    def write(self, task: BatchTask, context: SinkContext, dead_letters: Sequence[DeadLetter]) -> Location:
        """Write an attempt's dead letters durably; a failed write leaves no file.

        :param task: the batch and its attempt
        :param context: ids of the ledger and the pipeline, and the epoch of the run
        :param dead_letters: all dead letters of the attempt
        :return: path of the file
        :raises IoError: if the whole file system or object store is full, unreachable or not writable
        :raises DeadLettersRefusedError: if this file cannot be written for any other reason
        """
        path = self.file(task.key, task.attempt, context.epoch)
        at = datetime.now(UTC)
        lines = [
            json.dumps(_to_json(task, context, dead_letter, at), ensure_ascii=False) for dead_letter in dead_letters
        ]
        data = "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")
        try:
            path.write(data)
        except IoError as error:
            if error.is_outage:
                raise
            hint = "Make that directory writable, then run again."
            raise DeadLettersRefusedError(error.message, hint=hint) from error
        return path

    def read(self, source: AttemptKey) -> Iterator[StoredDeadLetter]:
        """Yield the dead letters of an attempt in the order in which they were written; none if it has no file.

        :raises SinkError: if the file is damaged
        :raises IoError: if the file system or object store fails
        """
        path = self.file(source.key, source.attempt, source.epoch)
        try:
            for line in (path.read() or b"").splitlines():
                yield _from_json(source, json.loads(line))
        except (ValueError, KeyError) as error:
            raise SinkError(
                f"the dead letters in {path} are damaged.",
                pipeline=self.pipeline,
                hint="Restore the file from a backup.",
            ) from error


@dataclass(frozen=True, slots=True)
class ReplayFiles:
    """Stored replays of one pipeline and ledger: each file lists the dead letters that one side partition sends again.

    :param directory: directory of the files, which contains nothing else
    :param pipeline: name of the pipeline, for messages
    """

    directory: Location
    pipeline: str

    def write(self, partition: str, replay: Replay) -> None:
        """Store a replay durably: the list of dead letters that a side partition sends again.

        A stored replay of the same partition is overwritten, which is harmless: a replay is sent only once it is
        stored.

        :param partition: id of the side partition
        :param replay: references to the dead letters
        :raises IoError: if the file system or object store fails
        """
        self._file(partition).write(json.dumps(replay.to_json()).encode())

    def read(self, partitions: Iterable[str]) -> dict[str, Replay]:
        """Return the stored replays of the given side partitions, by partition; a partition without one is left out.

        :raises SinkError: if a file is damaged
        :raises IoError: if the file system or object store fails
        """
        found = {partition: self._read(self._file(partition)) for partition in partitions}
        return {partition: replay for partition, replay in found.items() if replay is not None}

    def _file(self, partition: str) -> Location:
        return self.directory / f"{escape(partition)}.json"

    def _read(self, path: Location) -> Replay | None:
        try:
            content = path.read()
            return None if content is None else Replay.from_json(json.loads(content))
        except (ValueError, KeyError) as error:
            raise SinkError(
                f"the replay in {path} is damaged.", pipeline=self.pipeline, hint="Restore the file from a backup."
            ) from error


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
        **dead_letter.content_texts(),
        "headers": dead_letter.header_texts(),
        "at": at.isoformat(),
    }


def _from_json(source: AttemptKey, line: dict[str, Any]) -> StoredDeadLetter:
    error = ErrorInfo(ErrorType(line["error_type"]), line["message"], sqlstate=line["sqlstate"])
    key, value = _bytes(line["key_base64"]), _bytes(line["value_base64"])
    dead_letter = DeadLetter(line["position"], key, value, error, *split_headers(line["headers"]))
    return StoredDeadLetter(source, dead_letter, datetime.fromisoformat(line["at"]))


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
