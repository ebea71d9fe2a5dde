"""Raise the fence of the Kafka sink: write the new epoch to the receipts topic, then fence producers of older epochs.

A producer is fenced when its transactional id is initialised again. A lane writes the transactional id that it will use
to the receipts topic, initialises it, and then reads epochs. The fence writes its epoch before it reads the ids in use.
So if the fence misses the id of a lane, the lane wrote its id later, reads the newer epoch, and stops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from airflow_provider_ckpt.connectors import refuse_fenced_run
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.kafka.producers import TransactionalProducer, write_records
from airflow_provider_ckpt.connectors.kafka.receipts import (
    ReceiptsTopicState,
    epoch_key,
    receipts_topic,
    time_value,
    transactional_id,
)
from airflow_provider_ckpt.connectors.kafka.restored_target import TargetLogEnds
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext

_PARALLEL_FENCES = 8
"""Number of transactional ids that the fence initialises in parallel; each takes a few round trips."""


def refuse_if_fenced(state: ReceiptsTopicState, epoch: int, pipeline: str) -> None:
    """Raise an error if the receipts topic contains a newer epoch of this ledger.

    :param state: content of the receipts topic
    :param epoch: epoch of the run
    :param pipeline: name of the pipeline
    :raises FencedError: naming both epochs
    """
    refuse_fenced_run.refuse_if_fenced(state.newest_epoch, epoch, f"the topic {receipts_topic(pipeline)}", pipeline)


def refuse_unless_current(state: ReceiptsTopicState, epoch: int, pipeline: str) -> None:
    """Raise an error unless the newest epoch of this ledger in the receipts topic is the run's.

    :param state: content of the receipts topic
    :param epoch: epoch of the run
    :param pipeline: name of the pipeline
    :raises FencedError: if there is a newer epoch
    :raises SinkError: if the topic does not contain the run's epoch
    """
    refuse_fenced_run.refuse_unless_current(
        state.newest_epoch, epoch, f"the topic {receipts_topic(pipeline)}", pipeline
    )


class KafkaFence:
    """Fence of one pipeline in its receipts topic.

    :param connection: connection to the sink's cluster
    :param context: ids of the ledger and the pipeline
    :param topic: name of the receipts topic
    """

    def __init__(self, connection: Connection, context: SinkContext, topic: str) -> None:
        self._connection = connection
        self._context = context
        self._topic = topic

    def fence(
        self, epoch: int, read: Callable[[], ReceiptsTopicState], look: Callable[[], TargetLogEnds | None]
    ) -> None:
        """Write the epoch, then fence all producers that may still write under an older one.

        When this returns, no transaction of an older epoch can commit any more, and the records of older epochs and of
        their transactional ids are deleted.

        :param epoch: the new epoch
        :param read: function that reads the receipts topic to its end and returns its content
        :param look: function that returns first and last offsets of the target topic; None if the topic does not exist
        :raises FencedError: if the topic contains a newer epoch
        """
        refuse_if_fenced(read(), epoch, self._context.pipeline)
        self.write_epoch(epoch, look())
        state = read()
        refuse_if_fenced(state, epoch, self._context.pipeline)
        self._end_older_producers([used.partition for used in state.ids])
        write_records(self._connection, self._topic, [(key, None) for key in state.obsolete_keys(epoch)])

    def write_epoch(self, epoch: int, ends: TargetLogEnds | None) -> None:
        """Write the Kafka record that stores an epoch with the target topic's offsets; records of other epochs remain.

        :param epoch: the epoch
        :param ends: first and last offsets of the target topic; None if the topic does not exist
        """
        value = time_value(datetime.now(UTC), None if ends is None else ends.to_json())
        write_records(self._connection, self._topic, [(epoch_key(self._context.ledger, epoch), value)])

    def _end_older_producers(self, partitions: Sequence[str]) -> None:
        """Initialise the transactional id of each given source partition again, which fences its older producers.

        :param partitions: ids of the source partitions
        """

        def end(partition: str) -> None:
            TransactionalProducer(self._connection, transactional_id(self._context, partition), self._topic).close()

        with ThreadPoolExecutor(_PARALLEL_FENCES, thread_name_prefix="ckpt-fence") as pool:
            for done in [pool.submit(end, partition) for partition in sorted(set(partitions))]:
                done.result()
