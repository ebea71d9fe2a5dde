"""Records of the receipts topic: the receipts and the other bookkeeping of a Kafka sink.

The other bookkeeping consists of the epochs of the fence, the transactional ids in use, replays of dead letters, and
lists of source files. The topic is compacted and has one partition; a record replaces the earlier ones with the same
key. A receipt is written in the transaction of its batch, every other record outside any transaction.
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
from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.receipt import Receipt
from airflow_provider_ckpt.core.replay_content import Replay

TOPIC_PREFIX = "ckpt-receipts."
"""Prefix of the names of receipts topics, so that permissions can be granted by prefix."""

REQUIRED_SETTINGS = {"cleanup.policy": "compact", "unclean.leader.election.enable": "false"}
"""Required settings of a receipts topic; without them receipts could be lost, and their batches sent again."""

NEW_TOPIC_SETTINGS = {**REQUIRED_SETTINGS, "segment.bytes": str(16 << 20)}
"""Settings of a new receipts topic. Segments are small, since Kafka never compacts the newest one."""


_SEAL_FIELD = "dead_letters"
"""Field of a receipt with the secret that signs the dead letters of its attempt, so that none can be forged."""


class RecordKind(StrEnum):
    """Kind of a record of the receipts topic, the first element of its key."""

    EPOCH = "epoch"
    ID = "id"
    RECEIPT = "receipt"
    REPLAY = "replay"
    FILES = "files"


class UsedId(NamedTuple):
    """Epoch and source partition of a lane whose producer may be using the partition's transactional id."""

    epoch: int
    partition: str


def receipts_topic(pipeline: str) -> str:
    """Return the name of a pipeline's receipts topic, in which the dots of the pipeline's name are encoded.

    Kafka refuses a topic whose name differs from that of an existing one only in dots and underscores, since its
    metrics replace dots by underscores. So if a pipeline's name has dots, each hyphen is doubled, each dot becomes
    ``-d``, and a hyphen is put before the result; no pipeline's name begins with a hyphen.
    """
    if "." in pipeline:
        return f"{TOPIC_PREFIX}-{pipeline.replace('-', '--').replace('.', '-d')}"
    return f"{TOPIC_PREFIX}{pipeline}"


def refuse_receipts_topics(named: Mapping[str, str], own: str | None, pipeline: str) -> None:
    """Raise an error if a pipeline would write rows or dead letters to a receipts topic.

    A receipts topic is recognised by :data:`TOPIC_PREFIX`. It is allowed as a source, and ``own`` is allowed under any
    key.

    :param named: names of the pipeline's topics, by the key of its declaration that names them
    :param own: the pipeline's own receipts topic, which ``named`` contains; None if ``named`` does not contain it
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
    """Return the transactional id with which lanes write the batches of a source partition.

    Initialising it fences the earlier producers that use it.

    :param context: ids of the ledger and the pipeline
    :param partition: id of the source partition
    """
    return f"ckpt/{context.ledger}/{context.pipeline}/{partition}"


def epoch_key(ledger: str, epoch: int) -> bytes:
    """Return the key of the Kafka record that stores an epoch.

    Each epoch has its own record; the fence is at the highest epoch.

    :param ledger: id of the ledger
    :param epoch: the epoch
    """
    return _encode([RecordKind.EPOCH, ledger, epoch])


def id_key(ledger: str, used: UsedId) -> bytes:
    """Return the key of the Kafka record which states that a transactional id may be in use.

    :param ledger: id of the ledger
    :param used: epoch and source partition of the lane that uses the id
    """
    return _encode([RecordKind.ID, ledger, *used])


def receipt_key(ledger: str, key: BatchKey) -> bytes:
    """Return the key of the Kafka record that stores a batch's receipt."""
    return _encode([RecordKind.RECEIPT, ledger, *key.to_json()])


def receipt_value(receipt: Receipt, secret: bytes | None = None) -> bytes:
    """Return the value of the Kafka record that stores a receipt.

    :param receipt: the receipt
    :param secret: secret that signs the dead letters of its attempt; None if there are none
    """
    return _encode({**receipt.to_json(), **({} if secret is None else {_SEAL_FIELD: secret.hex()})})


def replay_key(ledger: str, partition: str) -> bytes:
    """Return the key of the Kafka record that stores a replay: the dead letters that a side partition sends again.

    :param ledger: id of the ledger
    :param partition: id of the side partition
    """
    return _encode([RecordKind.REPLAY, ledger, partition])


def replay_value(replay: Replay) -> bytes:
    """Return the value of the Kafka record that stores a replay."""
    return _encode(replay.to_json())


def file_list_key(ledger: str, files: FileList) -> bytes:
    """Return the key of the Kafka record that stores a list of source files."""
    return _encode([RecordKind.FILES, ledger, files.first, files.epoch])


def file_list_value(files: FileList) -> bytes:
    """Return the value of the Kafka record that stores a list of source files."""
    return _encode(files.to_json())


def time_value(at: datetime, target: Mapping[str, Any] | None = None) -> bytes:
    """Return the value of the Kafka record that stores an epoch or a transactional id.

    :param at: time of writing, for information only
    :param target: offsets of the target topic at that time, JSON-ready; only in the record of an epoch
    """
    return _encode({"at": at.isoformat(), **({} if target is None else {"target": target})})


def _encode(data: object) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode()


@dataclass(slots=True)
class ReceiptsTopicState:
    """Content of a receipts topic: the epochs of all ledgers, and all other records of one ledger.

    The state is empty at first; :meth:`apply` adds one record after another, in the order of the topic.

    :param ledger: id of the ledger whose records to keep
    :param partition: source partition whose receipts to keep; None for all
    :param epochs: epochs of each ledger, by its id
    :param ids: transactional ids that may be in use
    :param receipts: value of the record of each receipt, by the batch's key
    :param replays: value of the record of each replay, by side partition
    :param lists: value of the record of each list of source files, by the ordinal of its first file and its epoch
    :param fences: value of the record of each epoch of the ledger, by epoch
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
        """Offsets of the target topic, JSON-ready, as stored with the ledger's newest epoch; None if there are none."""
        noted: Mapping[str, Any] | None = json.loads(self.fences.get(self.newest_epoch, b"{}")).get("target")
        return noted

    @property
    def highest_epoch(self) -> int:
        """Highest epoch of all ledgers; 0 if there is none."""
        return max((epoch for epochs in self.epochs.values() for epoch in epochs), default=0)

    @property
    def ledgers(self) -> frozenset[str]:
        """Ids of all ledgers with an epoch in the topic; a ledger without one has no receipts either."""
        return frozenset(ledger for ledger, epochs in self.epochs.items() if epochs)

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Apply the next record of the topic.

        A record without a value deletes the epoch, transactional id or receipt with its key, but no replay or list.
        Records of other ledgers are ignored, except epochs. If a batch has several receipts, the first one counts.

        :param key: key of the record, as the functions of this module make it
        :param value: value of the record, which is not parsed; None to delete
        :raises ValueError: if the key is not one of this module; for some such keys ``TypeError`` or ``IndexError``
        """
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
        """Return the receipt of a batch; None if the batch has none."""
        value = self.receipts.get(key)
        return None if value is None else Receipt.from_json(json.loads(value))

    def secret(self, source: AttemptKey) -> bytes | None:
        """Return the secret that signs an attempt's dead letters, from its batch's receipt.

        Return None if there is no receipt, another attempt wrote it, or it contains no secret.

        :param source: the batch and attempt
        """
        value = self.receipts.get(source.key)
        found = {} if value is None else json.loads(value)
        named = (found.get("attempt"), found.get("epoch")) == (source.attempt, source.epoch)
        return bytes.fromhex(found[_SEAL_FIELD]) if named and _SEAL_FIELD in found else None

    def replay(self, partition: str) -> Replay | None:
        """Return the stored replay of a side partition: the dead letters that it sends again; None if none is stored.

        :param partition: id of the side partition
        """
        value = self.replays.get(partition)
        return None if value is None else Replay.from_json(json.loads(value))

    def file_lists(self, first: int) -> list[FileList]:
        """Return the lists of source files whose first file has the given ordinal or a greater one.

        :param first: the ordinal, counted from 0 over all discovered files
        """
        return [FileList.from_json(json.loads(value)) for (at, _), value in self.lists.items() if at >= first]

    def sorted_receipts(self) -> Iterator[Receipt]:
        """Yield all receipts in the order of their keys."""
        for key in sorted(self.receipts):
            yield Receipt.from_json(json.loads(self.receipts[key]))

    def obsolete_keys(self, epoch: int) -> Iterable[bytes]:
        """Yield the keys of the records that a fence at an epoch makes obsolete.

        These are the records that store older epochs, or transactional ids that lanes of older epochs used.

        :param epoch: epoch of the fence
        """
        yield from (epoch_key(self.ledger, older) for older in self.epochs.get(self.ledger, ()) if older < epoch)
        yield from (id_key(self.ledger, used) for used in self.ids if used.epoch < epoch)


def _add_or_remove(found: set[Any], item: object, value: bytes | None) -> None:
    if value is None:
        found.discard(item)
    else:
        found.add(item)
