"""Control side of the Kafka sink: check its topics, raise the fence, and read receipts, dead letters and losses."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.batch_content import StoredDeadLetter
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.file_lists import FileList
from airflow_provider_ckpt.connectors.kafka.client import (
    answer_timeout,
    bootstrap_servers,
    require_connection,
    require_topic,
)
from airflow_provider_ckpt.connectors.kafka.committed_reader import read_committed
from airflow_provider_ckpt.connectors.kafka.connector import KafkaSinkSection, KafkaSourceSection
from airflow_provider_ckpt.connectors.kafka.dead_letter_reader import DeadLetterReader
from airflow_provider_ckpt.connectors.kafka.fence import KafkaFence
from airflow_provider_ckpt.connectors.kafka.producers import transaction_timeout, write_records
from airflow_provider_ckpt.connectors.kafka.receipts import (
    ReceiptsTopicState,
    file_list_key,
    file_list_value,
    receipts_topic,
    refuse_receipts_topics,
    replay_key,
    replay_value,
)
from airflow_provider_ckpt.connectors.kafka.receipts_reader import ReceiptsReader
from airflow_provider_ckpt.connectors.kafka.restored_target import TargetLogEnds, TargetLogReader
from airflow_provider_ckpt.connectors.kafka.serialize import refuse_unfit_columns
from airflow_provider_ckpt.connectors.kafka.sink_topics import SinkTopic, SinkTopicsClient
from airflow_provider_ckpt.connectors.outputs import Output, WrittenTarget
from airflow_provider_ckpt.connectors.sink_protocol import Claims, SinkContext
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.receipt import KnownReceipts, Receipt
from airflow_provider_ckpt.core.replay_content import Replay

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline

log = logging.getLogger(__name__)


class KafkaSink:
    """Control side of the Kafka sink.

    See :class:`~airflow_provider_ckpt.connectors.sink_protocol.Sink`.

    :param pipeline: ``sink.topic`` names the target
    :param connection: the Airflow connection of the Kafka cluster
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    """

    exactly_once = True

    def __init__(self, pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> None:
        sink = KafkaSinkSection.of(pipeline)
        self._pipeline = pipeline
        self._name = require_topic(sink.topic, "sink.topic", pipeline.name)
        self._connection = require_connection(connection, "sink")
        self._context = context
        self._receipts = require_topic(receipts_topic(context.pipeline), "the receipts topic", pipeline.name)
        self._seconds = answer_timeout(self._connection)
        self._fence = KafkaFence(self._connection, context, self._receipts)
        self._topics: SinkTopicsClient | None = None
        self._target_log = TargetLogReader(self._connection, pipeline.name, may_be_emptied=sink.may_be_emptied)

    @property
    def location(self) -> str:
        """Address of the target topic, such as ``kafka://host:9092/orders``; see :attr:`Sink.location`."""
        return f"kafka://{bootstrap_servers(self._connection)}/{self._name}"

    def check(self) -> None:
        """Raise ConfigError if the target is missing, or a topic is named for two purposes; see :meth:`Sink.check`."""
        self._refuse_shared_topics()
        self._target_topic()

    def create_bookkeeping(self) -> None:
        """Create the topics for receipts and dead letters if they are missing; see :meth:`Sink.create_bookkeeping`."""
        target = self._target_topic()
        self._warn_of_weaknesses(target, self._topics_client().ensure_receipts_topic(self._receipts, target))
        queue = self._pipeline.dead_letter_queue
        if queue.in_sink:
            self._topics_client().ensure_dead_letter_topic(queue.topic, target, queue.compression)

    def outputs(self) -> Sequence[Output]:
        """Return the target, the receipts topic and the dead letter topic, if they exist; see :class:`NamesOutputs`."""
        named = {"sink.topic": self._name, "the receipts topic": self._receipts}
        if self._pipeline.dead_letter_queue.in_sink:
            named["dead_letter_queue.topic"] = self._pipeline.dead_letter_queue.topic
        found = {key: self._topics_client().find(name) for key, name in named.items()}
        return [WrittenTarget(key, topic.name, "kafka", topic.id) for key, topic in found.items() if topic is not None]

    def check_columns(self, columns: Sequence[tuple[str, str]]) -> None:
        """Raise ConfigError if rows of these columns cannot become messages; see :meth:`Sink.check_columns`.

        :param columns: name and Spark SQL type of each column
        """
        refuse_unfit_columns(columns, KafkaSinkSection.of(self._pipeline).key, self._pipeline.name)

    def claims(self) -> Claims:
        """Return the fence's epoch, the ledgers in the receipts topic, the target's topic id, evidence of lost records.

        The epoch is the highest of all ledgers. See :meth:`Sink.claims`.
        """
        target = self._topics_client().find(self._name)
        identity = None if target is None else target.id
        if not self._receipts_topic():
            return Claims(target=identity)
        with closing(self._receipts_reader(committed=False)) as reader:
            self._read_to_end(reader)
            state = reader.state
        noted = state.target
        lost = (
            None
            if target is None or noted is None
            else self._target_log.describe_loss(target, TargetLogEnds.from_json(noted))
        )
        return Claims(state.highest_epoch, state.ledgers, identity, lost)

    def store_target_snapshot(self, epoch: int) -> None:
        """Store the target topic's first and last offsets in the receipts topic; see :class:`SinkWithTargetSnapshot`.

        Nothing is written if the topic contains a newer epoch, or if the target has lost records, so that the next run
        detects the loss.

        :param epoch: epoch of the run, with which the offsets are stored
        """
        target = self._topics_client().find(self._name)
        if target is None or not self._receipts_topic():
            return
        # The offsets are read before the check for losses, so that the next run detects a loss after the check.
        ends = self._target_log.read(target, self._topics_client())
        with closing(self._receipts_reader(committed=False)) as reader:
            self._read_to_end(reader)
            state = reader.state
        noted = state.target
        if state.newest_epoch == epoch and (
            noted is None or self._target_log.describe_loss(target, TargetLogEnds.from_json(noted)) is None
        ):
            self._fence.write_epoch(epoch, ends)

    def fence(self, epoch: int) -> None:
        """Write the epoch into the receipts topic, then fence all producers of older epochs; see ``fence.py``.

        :raises FencedError: if the topic contains a newer epoch
        """
        with closing(self._receipts_reader(committed=False)) as reader:

            def read() -> ReceiptsTopicState:
                self._read_to_end(reader)
                return reader.state

            self._fence.fence(epoch, read, self._target_ends)

    def receipts(self, known: Mapping[str, KnownReceipts]) -> Iterator[Receipt]:
        """Yield the committed receipts that the ledger does not know yet; see :meth:`Sink.receipts`."""
        if not self._receipts_topic():
            return
        with closing(self._receipts_reader(committed=True)) as reader:
            self._read_to_end(reader)
            state = reader.state
        nowhere = KnownReceipts(0, 0)
        for receipt in state.sorted_receipts():
            key = receipt.key
            if not known.get(key.partition, nowhere).covers(key.generation, receipt.range.end):
                yield receipt

    def batches_without_receipt(self, keys: Sequence[BatchKey]) -> Sequence[BatchKey]:
        """Return those of the given batches that have no receipt in the receipts topic.

        See :meth:`Sink.batches_without_receipt`.
        """
        if not keys or not self._receipts_topic():
            return list(keys)
        with closing(self._receipts_reader(committed=True)) as reader:
            self._read_to_end(reader)
            return [key for key in keys if reader.state.receipts.get(key) is None]

    def dead_letters(self, sources: Iterable[AttemptKey]) -> Iterator[StoredDeadLetter]:
        """Yield the dead letters of the given attempts, after one reading of the dead letter topic.

        See :meth:`Sink.dead_letters`.
        """
        wanted = list(sources)
        queue = self._pipeline.dead_letter_queue
        topic = self._topics_client().find(queue.topic)
        if topic is None:
            return
        secrets = self._secrets(wanted)
        reader = DeadLetterReader(self._connection, queue.topic, self._context)
        seconds = self._seconds + transaction_timeout(self._connection)
        found = reader.read(secrets, self._topics_client().ends(queue.topic, topic.partitions), seconds)
        for source in wanted:
            yield from found.get(source, ())

    def _secrets(self, sources: Sequence[AttemptKey]) -> Mapping[AttemptKey, bytes | None]:
        """Return for each attempt the secret that signs its dead letters, from its receipt; None if there is none.

        :param sources: the attempts
        """
        if not self._receipts_topic():
            return dict.fromkeys(sources)
        with closing(self._receipts_reader(committed=True)) as reader:
            self._read_to_end(reader)
            return {source: reader.state.secret(source) for source in sources}

    def store_replay(self, partition: str, replay: Replay) -> None:
        """Store the list of dead letters that a side partition sends again; see :meth:`Sink.store_replay`."""
        write_records(
            self._connection, self._receipts, [(replay_key(self._context.ledger, partition), replay_value(replay))]
        )

    def replays(self, partitions: Iterable[str]) -> Mapping[str, Replay]:
        """Return the replays that the receipts topic has for the given side partitions; see :meth:`Sink.replays`."""
        if not self._receipts_topic():
            return {}
        with closing(self._receipts_reader(committed=False)) as reader:
            self._read_to_end(reader)
            found = {partition: reader.state.replay(partition) for partition in partitions}
        return {partition: replay for partition, replay in found.items() if replay is not None}

    def store_file_list(self, files: FileList) -> None:
        """Store a list of discovered source files in the receipts topic; see :meth:`Sink.store_file_list`."""
        write_records(
            self._connection, self._receipts, [(file_list_key(self._context.ledger, files), file_list_value(files))]
        )

    def stored_file_lists(self, first: int) -> Sequence[FileList]:
        """Return the stored lists of source files from an ordinal on; see :meth:`Sink.stored_file_lists`."""
        if not self._receipts_topic():
            return []
        with closing(self._receipts_reader(committed=False)) as reader:
            self._read_to_end(reader)
            return reader.state.file_lists(first)

    def target_rows(self, *, exact: bool = False) -> int | None:
        """Return the number of committed messages in the target topic; None if it is not known.

        Offsets also count aborted messages and transaction markers, so all messages must be read. The number is not
        known if retention or compaction may have removed messages.

        :param exact: whether to read all messages; if False, the result is None
        """
        topic = self._topics_client().find(self._name) if exact else None
        if topic is None or topic.compacted:
            return None
        if any(self._topics_client().ends(self._name, topic.partitions, first=True).values()):
            return None
        ends = self._topics_client().ends(self._name, topic.partitions)
        seconds = self._seconds + transaction_timeout(self._connection)
        operation = f"counting the messages of topic {self._name}"
        return sum(
            len(messages)
            for messages in read_committed(self._connection, self._name, ends, seconds, operation=operation)
        )

    def close(self) -> None:
        """Close the connection."""
        self._topics = None

    def _target_ends(self) -> TargetLogEnds | None:
        target = self._topics_client().find(self._name)
        return None if target is None else self._target_log.read(target, self._topics_client())

    def _topics_client(self) -> SinkTopicsClient:
        if self._topics is None:
            self._topics = SinkTopicsClient(self._connection, self._pipeline.name)
        return self._topics

    def _target_topic(self) -> SinkTopic:
        """Return the description of the target topic.

        :raises ConfigError: if the topic does not exist
        """
        target = self._topics_client().find(self._name)
        if target is None:
            raise ConfigError(
                f"target topic {self._name} does not exist in connection {self._connection.id!r}.",
                pipeline=self._pipeline.name,
                hint="Create it, or check sink.topic.",
            )
        return target

    def _warn_of_weaknesses(self, *topics: SinkTopic) -> None:
        for topic in topics:
            for weakness in topic.weaknesses:
                log.warning(
                    "%s: topic %s may lose delivered records: its %s.", self._pipeline.name, topic.name, weakness
                )

    def _refuse_shared_topics(self) -> None:
        """Raise an error if one topic is named for two purposes, such as source and sink.

        :raises ConfigError: naming the purposes and the topic
        """
        source, dead_letters = self._pipeline.source, self._pipeline.dead_letter_queue
        named = {"sink.topic": self._name, "the receipts topic": self._receipts}
        if dead_letters.in_sink:
            named["dead_letter_queue.topic"] = dead_letters.topic
        if isinstance(source, KafkaSourceSection) and source.connection == self._pipeline.sink.connection:
            named["source.topic"] = source.topic
        refuse_receipts_topics(named, self._receipts, self._pipeline.name)
        for name in set(named.values()):
            same = [what for what, topic in named.items() if topic == name]
            if len(same) > 1:
                raise ConfigError(
                    f"{' and '.join(same)} are the same topic, {name}.",
                    pipeline=self._pipeline.name,
                    hint="Name a topic of its own for each.",
                )

    def _receipts_topic(self) -> SinkTopic | None:
        return self._topics_client().find(self._receipts)

    def _receipts_reader(self, *, committed: bool) -> ReceiptsReader:
        return ReceiptsReader(
            self._connection, self._receipts, ReceiptsTopicState(self._context.ledger), committed=committed
        )

    def _read_to_end(self, reader: ReceiptsReader) -> None:
        end = self._topics_client().end(self._receipts)
        reader.read_to(end, self._seconds + transaction_timeout(self._connection))
