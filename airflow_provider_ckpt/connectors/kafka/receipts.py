"""Records of the receipts topic, a Kafka sink's bookkeeping.

They are the epochs of the fence, the transactional ids in use, replays of dead letters, lists of source files, and a
receipt for each batch. The topic is compacted and has one partition. A record's key identifies its subject, so a later
record replaces an earlier one with the same key. Receipts are written in the transaction of their batch, all other
records outside any transaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from airflow_provider_ckpt.connectors.file_lists import FileList
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letter_index import AttemptKey
from airflow_provider_ckpt.core.dead_letter_replay import Replay
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.receipt import Receipt

TOPIC_PREFIX = "ckpt-receipts."
"""Prefix of the names of receipts topics, so that rights can be granted to all of them at once."""

REQUIRED_SETTINGS = {"cleanup.policy": "compact", "unclean.leader.election.enable": "false"}
"""Required settings of the receipts topic; without them receipts could be lost, and their batches be sent again."""

NEW_TOPIC_SETTINGS = {**REQUIRED_SETTINGS, "segment.bytes": str(16 << 20)}
"""Settings of a topic that the sink creates. Segments are small, since Kafka never compacts the newest one."""


_SEAL_FIELD = "dead_letters"


class RecordKind(StrEnum):
    """Kind of a record, the first element of its key."""

    EPOCH = "epoch"
    ID = "id"
    RECEIPT = "receipt"
    REPLAY = "replay"
    FILES = "files"


class UsedId(NamedTuple):
    """Transactional id that lanes of an epoch may use, identified by epoch and source partition."""

    epoch: int
    partition: str


def receipts_topic(pipeline: str) -> str:
    """Return the name of a pipeline's receipts topic, which is unique even after dots become underscores.

    Kafka's metrics replace dots by underscores, and a broker refuses a topic whose name differs from an existing one
    only in that. So in the name of a pipeline with dots each hyphen is doubled and each dot becomes ``-d``; a leading
    hyphen, with which no pipeline's name begins, marks such a name.
    """
    if "." in pipeline:
        return f"{TOPIC_PREFIX}-{pipeline.replace('-', '--').replace('.', '-d')}"
    return f"{TOPIC_PREFIX}{pipeline}"


def refuse_receipts_topics(named: Mapping[str, str], own: str | None, pipeline: str) -> None:
    """Raise an error if a pipeline would write rows or dead letters to a receipts topic.

    :param named: topics by the configuration key that names them
    :param own: the pipeline's own receipts topic, which is allowed; None if it has none
    :param pipeline: the pipeline's name, for the error message
    :raises ConfigError: naming the topic
    """
    for key, topic in named.items():
        if topic != own and topic.startswith(TOPIC_PREFIX) and key != "source.topic":
            raise ConfigError(
                f"{key} is {topic}, and topics whose names begin with {TOPIC_PREFIX} hold receipts of pipelines.",
                pipeline=pipeline,
                hint="Name another topic.",
            )


def transactional_id(context: SinkContext, partition: str) -> str:
    """Return the transactional id of a source partition; initialising it ends its earlier users."""
    return f"ckpt/{context.ledger}/{context.pipeline}/{partition}"


def epoch_key(ledger: str, epoch: int) -> bytes:
    """Return the key of an epoch's record; each epoch has its own, and the highest counts, not the one written last."""
    return _encode([RecordKind.EPOCH, ledger, epoch])


def id_key(ledger: str, used: UsedId) -> bytes:
    """Return the key of the record that an epoch's lanes may use a transactional id."""
    return _encode([RecordKind.ID, ledger, *used])


def receipt_key(ledger: str, key: BatchKey) -> bytes:
    """Return the key of a batch's receipt."""
    return _encode([RecordKind.RECEIPT, ledger, *key.to_json()])


def receipt_value(receipt: Receipt, secret: bytes | None = None) -> bytes:
    """Return the value of a receipt.

    :param secret: secret with which the dead letters of its attempt were sealed; None if there are none
    """
    return _encode({**receipt.to_json(), **({} if secret is None else {_SEAL_FIELD: secret.hex()})})


def replay_key(ledger: str, partition: str) -> bytes:
    """Return the key of the replay that a side partition sends."""
    return _encode([RecordKind.REPLAY, ledger, partition])


def replay_value(replay: Replay) -> bytes:
    """Return the value of a replay."""
    return _encode(replay.to_json())


def file_list_key(ledger: str, files: FileList) -> bytes:
    """Return the key of a list of source files."""
    return _encode([RecordKind.FILES, ledger, files.first, files.epoch])


def file_list_value(files: FileList) -> bytes:
    """Return the value of a list of source files."""
    return _encode(files.to_json())


def time_value(at: datetime, target: Mapping[str, Any] | None = None) -> bytes:
    """Return the value of an epoch's or an id's record, with the time of writing for information.

    :param target: of an epoch's, what the target's log held then, JSON-ready
    """
    return _encode({"at": at.isoformat(), **({} if target is None else {"target": target})})


def _encode(data: object) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode()


@dataclass(slots=True)
class ReceiptsTopicState:
    """Content of a receipts topic: the epochs of all ledgers, and all other records of one ledger.

    :param ledger: ledger whose records to store
    :param partition: source partition whose receipts to store; None for all
    :param epochs: epochs of each ledger
    :param ids: transactional ids in use
    :param receipts: value of each receipt
    :param replays: value of each replay, by side partition
    :param lists: value of each list of source files, by its first ordinal and epoch
    :param fences: value of each epoch's record
    """

    ledger: str
    partition: str | None = None
    epochs: dict[str, set[int]] = field(default_factory=dict)
    ids: set[UsedId] = field(default_factory=set)
    receipts: dict[BatchKey, bytes] = field(default_factory=dict)
    replays: dict[str, bytes] = field(default_factory=dict)
    lists: dict[tuple[int, int], bytes] = field(default_factory=dict)
    fences: dict[int, bytes] = field(default_factory=dict)

    @property
    def newest_epoch(self) -> int:
        """Highest epoch of the ledger; 0 if there is none."""
        return max(self.epochs.get(self.ledger, ()), default=0)

    @property
    def target(self) -> Mapping[str, Any] | None:
        """The target's log as the ledger's newest epoch last saw it, JSON-ready; None if it was not recorded."""
        noted: Mapping[str, Any] | None = json.loads(self.fences.get(self.newest_epoch, b"{}")).get("target")
        return noted

    @property
    def highest_epoch(self) -> int:
        """Highest epoch of all ledgers; 0 if there is none."""
        return max((epoch for epochs in self.epochs.values() for epoch in epochs), default=0)

    @property
    def ledgers(self) -> frozenset[str]:
        """All ledgers with an epoch in the topic; a ledger without one has no receipts either."""
        return frozenset(ledger for ledger, epochs in self.epochs.items() if epochs)

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Apply the next record of the topic; one without a value removes the earlier record of its key."""
        kind, ledger, *rest = json.loads(key or b"")
        if kind == RecordKind.EPOCH:
            _add_or_remove(self.epochs.setdefault(ledger, set()), rest[0], value)
            if ledger == self.ledger and value is not None:
                self.fences[rest[0]] = value
        elif ledger == self.ledger and kind == RecordKind.ID:
            _add_or_remove(self.ids, UsedId(*rest), value)
        elif ledger == self.ledger and kind == RecordKind.REPLAY and value is not None:
            self.replays[rest[0]] = value
        elif ledger == self.ledger and kind == RecordKind.FILES and value is not None:
            self.lists[rest[0], rest[1]] = value
        elif ledger == self.ledger and kind == RecordKind.RECEIPT and self.partition in (None, rest[1]):
            batch = BatchKey.from_json(rest)
            if value is None:
                self.receipts.pop(batch, None)
            else:
                self.receipts.setdefault(batch, value)

    def receipt(self, key: BatchKey) -> Receipt | None:
        """Return the receipt of a batch; None if it has none."""
        value = self.receipts.get(key)
        return None if value is None else Receipt.from_json(json.loads(value))

    def secret(self, source: AttemptKey) -> bytes | None:
        """Return the secret of an attempt's dead letters, if the batch's receipt names this attempt and has one."""
        value = self.receipts.get(source.key)
        found = {} if value is None else json.loads(value)
        named = (found.get("attempt"), found.get("epoch")) == (source.attempt, source.epoch)
        return bytes.fromhex(found[_SEAL_FIELD]) if named and _SEAL_FIELD in found else None

    def replay(self, partition: str) -> Replay | None:
        """Return the replay that a side partition sends; None if it was not stored."""
        value = self.replays.get(partition)
        return None if value is None else Replay.from_json(json.loads(value))

    def file_lists(self, first: int) -> list[FileList]:
        """Return the lists of source files that begin at an ordinal or later."""
        return [FileList.from_json(json.loads(value)) for (at, _), value in self.lists.items() if at >= first]

    def sorted_receipts(self) -> Iterator[Receipt]:
        """Yield all receipts in the order of their keys."""
        for key in sorted(self.receipts):
            yield Receipt.from_json(json.loads(self.receipts[key]))

    def obsolete_keys(self, epoch: int) -> Iterable[bytes]:
        """Yield the keys of records that a fence at ``epoch`` makes obsolete: older epochs and their ids."""
        yield from (epoch_key(self.ledger, older) for older in self.epochs.get(self.ledger, ()) if older < epoch)
        yield from (id_key(self.ledger, used) for used in self.ids if used.epoch < epoch)


def _add_or_remove(found: set[Any], item: object, value: bytes | None) -> None:
    if value is None:
        found.discard(item)
    else:
        found.add(item)
