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
from airflow_provider_ckpt.connectors.protocols import SinkContext
from airflow_provider_ckpt.core.batch import BatchKey, Receipt
from airflow_provider_ckpt.core.dead_letters import AttemptKey, Replay
from airflow_provider_ckpt.core.errors import ConfigError

PREFIX = "ckpt-receipts."
"""Of the receipts topics' names, so that rights can be granted to all of them at once."""

DEMANDED = {"cleanup.policy": "compact", "unclean.leader.election.enable": "false"}
"""Settings without which receipts could get lost, and with them the knowledge of what was delivered."""

CREATED_WITH = {**DEMANDED, "segment.bytes": str(16 << 20)}
"""Settings of a topic that the sink creates: the newest segment is never compacted, so it is kept small."""


_SEALED_WITH = "letters"


class Kind(StrEnum):
    """What a record says."""

    EPOCH = "epoch"
    ID = "id"
    RECEIPT = "receipt"
    REPLAY = "replay"
    FILES = "files"


class UsedId(NamedTuple):
    """A transactional id that lanes of an epoch may use."""

    epoch: int
    partition: str


def receipts_topic(pipeline: str) -> str:
    """The receipts topic of a pipeline; no two pipelines share one, nor the name that Kafka's metrics give it.

    Metrics have an underscore for each dot, and the broker takes no topic whose name differs from another's in nothing
    else. So a dot is written as ``-d``, and then a hyphen as two; a hyphen in front, with which no pipeline's name
    begins, says that it was done.
    """
    if "." in pipeline:
        return f"{PREFIX}-{pipeline.replace('-', '--').replace('.', '-d')}"
    return f"{PREFIX}{pipeline}"


def refuse_receipts_topics(named: Mapping[str, str], own: str | None, pipeline: str) -> None:
    """Fail if a pipeline would write rows or dead letters among the receipts of another.

    :param named: topics by what names them
    :param own: the pipeline's own receipts topic, which is no other's
    :raises ConfigError: naming the topic
    """
    for key, topic in named.items():
        if topic != own and topic.startswith(PREFIX) and key != "source.topic":
            raise ConfigError(
                f"{key} is {topic}, and topics whose names begin with {PREFIX} hold receipts of pipelines.",
                pipeline=pipeline,
                hint="Name another topic.",
            )


def transactional_id(context: SinkContext, partition: str) -> str:
    """The one transactional id of a source partition: whoever initialises it ends whoever used it before."""
    return f"ckpt/{context.ledger}/{context.pipeline}/{partition}"


def epoch_key(ledger: str, epoch: int) -> bytes:
    """The key of an epoch's record. Each epoch has its own: the highest counts, whichever was written last."""
    return _text([Kind.EPOCH, ledger, epoch])


def id_key(ledger: str, used: UsedId) -> bytes:
    """The key of a record that says that an epoch's lanes may use a transactional id."""
    return _text([Kind.ID, ledger, *used])


def receipt_key(ledger: str, key: BatchKey) -> bytes:
    """The key of a batch's receipt."""
    return _text([Kind.RECEIPT, ledger, *key.to_json()])


def receipt_value(receipt: Receipt, secret: bytes | None = None) -> bytes:
    """A receipt's value.

    :param secret: with which the dead letters of its attempt were sealed, if there are some
    """
    return _text({**receipt.to_json(), **({} if secret is None else {_SEALED_WITH: secret.hex()})})


def replay_key(ledger: str, partition: str) -> bytes:
    """The key of what a side partition of dead letters sends."""
    return _text([Kind.REPLAY, ledger, partition])


def replay_value(replay: Replay) -> bytes:
    """A replay's value."""
    return _text(replay.to_json())


def files_key(ledger: str, files: FileList) -> bytes:
    """The key of a list of source files."""
    return _text([Kind.FILES, ledger, files.first, files.epoch])


def files_value(files: FileList) -> bytes:
    """A list's value."""
    return _text(files.to_json())


def moment_value(at: datetime, target: Mapping[str, Any] | None = None) -> bytes:
    """The value of an epoch's or an id's record: when it was written, for people.

    :param target: of an epoch's, what the target's log held then, JSON-ready
    """
    return _text({"at": at.isoformat(), **({} if target is None else {"target": target})})


def _text(data: object) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode()


@dataclass(slots=True)
class Books:
    """What was read of a receipts topic, as far as one ledger wants to know.

    :param ledger: whose receipts and ids to keep
    :param partition: keep this source partition's receipts alone; all by default
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
    def newest(self) -> int:
        """The ledger's highest epoch, 0 if there is none."""
        return max(self.epochs.get(self.ledger, ()), default=0)

    @property
    def target(self) -> Mapping[str, Any] | None:
        """The target's log as the ledger's newest epoch last saw it, JSON-ready; None if it was not recorded."""
        noted: Mapping[str, Any] | None = json.loads(self.fences.get(self.newest, b"{}")).get("target")
        return noted

    @property
    def highest(self) -> int:
        """The highest epoch of all ledgers, 0 if there is none."""
        return max((epoch for epochs in self.epochs.values() for epoch in epochs), default=0)

    @property
    def ledgers(self) -> frozenset[str]:
        """All ledgers that have an epoch here; nobody writes a receipt without one."""
        return frozenset(ledger for ledger, epochs in self.epochs.items() if epochs)

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """Note one record, in the topic's order; one without a value takes back what stood under its key."""
        kind, ledger, *rest = json.loads(key or b"")
        if kind == Kind.EPOCH:
            _note(self.epochs.setdefault(ledger, set()), rest[0], value)
            if ledger == self.ledger and value is not None:
                self.fences[rest[0]] = value
        elif ledger == self.ledger and kind == Kind.ID:
            _note(self.ids, UsedId(*rest), value)
        elif ledger == self.ledger and kind == Kind.REPLAY and value is not None:
            self.replays[rest[0]] = value
        elif ledger == self.ledger and kind == Kind.FILES and value is not None:
            self.lists[rest[0], rest[1]] = value
        elif ledger == self.ledger and kind == Kind.RECEIPT and self.partition in (None, rest[1]):
            batch = BatchKey.from_json(rest)
            if value is None:
                self.receipts.pop(batch, None)
            else:
                self.receipts.setdefault(batch, value)

    def receipt(self, key: BatchKey) -> Receipt | None:
        """The receipt of a batch, if it has one."""
        value = self.receipts.get(key)
        return None if value is None else Receipt.from_json(json.loads(value))

    def secret(self, source: AttemptKey) -> bytes | None:
        """With what the dead letters of an attempt were sealed; None if the batch's receipt names another, or none."""
        value = self.receipts.get(source.key)
        found = {} if value is None else json.loads(value)
        named = (found.get("attempt"), found.get("epoch")) == (source.attempt, source.epoch)
        return bytes.fromhex(found[_SEALED_WITH]) if named and _SEALED_WITH in found else None

    def replay(self, partition: str) -> Replay | None:
        """What a side partition sends, if it was kept."""
        value = self.replays.get(partition)
        return None if value is None else Replay.from_json(json.loads(value))

    def file_lists(self, first: int) -> list[FileList]:
        """The lists of source files that begin at an ordinal or later."""
        return [FileList.from_json(json.loads(value)) for (at, _), value in self.lists.items() if at >= first]

    def in_order(self) -> Iterator[Receipt]:
        """All receipts, in the order of their keys."""
        for key in sorted(self.receipts):
            yield Receipt.from_json(json.loads(self.receipts[key]))

    def below(self, epoch: int) -> Iterable[bytes]:
        """The keys of what a fence at an epoch makes superfluous: older epochs, and ids that only they used."""
        yield from (epoch_key(self.ledger, older) for older in self.epochs.get(self.ledger, ()) if older < epoch)
        yield from (id_key(self.ledger, used) for used in self.ids if used.epoch < epoch)


def _note(found: set[Any], item: object, value: bytes | None) -> None:
    if value is None:
        found.discard(item)
    else:
        found.add(item)
