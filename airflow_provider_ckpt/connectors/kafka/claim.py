"""Claim one source partition for a lane: initialise its transactional id, then read its existing receipts.

The order of the steps implements the fence (architecture, Connectors). The lane records in the receipts topic that it
uses the id, initialises the id, and only then reads epochs and receipts, up to an end offset that was requested after
the initialisation. Earlier users of the id cannot commit any more, so no further receipt of the partition can appear.
A newer run's fence either finds the id recorded and ends this claim, or has written its epoch before, so that this
lane reads it.
"""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.kafka.client import answer_timeout
from airflow_provider_ckpt.connectors.kafka.fence import refuse_if_fenced, refuse_unless_current
from airflow_provider_ckpt.connectors.kafka.producers import TransactionalProducer, transaction_timeout, write_records
from airflow_provider_ckpt.connectors.kafka.receipts import (
    ReceiptsTopicState,
    UsedId,
    id_key,
    receipt_value,
    receipts_topic,
    time_value,
    transactional_id,
)
from airflow_provider_ckpt.connectors.kafka.receipts_reader import ReceiptsReader
from airflow_provider_ckpt.connectors.kafka.sink_topics import SinkTopicsClient
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.receipt import Receipt


class PartitionClaim:
    """Claim of one source partition, which ends when another producer initialises its transactional id.

    :param connection: of the sink's cluster
    :param topics: reads the end of the receipts topic
    :param context: ledger, pipeline and epoch
    :param partition: id of the source partition
    :param batch_bytes: see :class:`~airflow_provider_ckpt.connectors.kafka.producers.TransactionalProducer`
    :raises FencedError: if the receipts topic contains a newer epoch
    :raises SinkError: if the receipts topic does not contain this epoch, or the broker cannot be reached
    """

    def __init__(
        self, connection: Connection, topics: SinkTopicsClient, context: SinkContext, partition: str, batch_bytes: int
    ) -> None:
        self.partition = partition
        self._context = context
        topic = receipts_topic(context.pipeline)
        seconds = answer_timeout(connection) + transaction_timeout(connection)
        state = ReceiptsTopicState(context.ledger, partition)
        with closing(ReceiptsReader(connection, topic, state, committed=True)) as reading:
            reading.read_to_stable_end(seconds)
            refuse_if_fenced(state, context.epoch, context.pipeline)
            used = UsedId(context.epoch, partition)
            if used not in state.ids:
                write_records(connection, topic, [(id_key(context.ledger, used), time_value(datetime.now(UTC)))])
            self.transactions = TransactionalProducer(
                connection, transactional_id(context, partition), topic, batch_bytes
            )
            try:
                reading.read_to(topics.end(topic), seconds)
                refuse_unless_current(state, context.epoch, context.pipeline)
            except BaseException:
                self.transactions.close()
                raise
        self._state = state

    def receipt(self, key: BatchKey) -> Receipt | None:
        """Return the receipt of a batch; None if it has none."""
        return self._state.receipt(key)

    def add_committed(self, receipt: Receipt) -> None:
        """Add a receipt that was committed under this claim."""
        self._state.receipts[receipt.key] = receipt_value(receipt)

    def close(self) -> None:
        """Close the connection."""
        self.transactions.close()


def read_epochs(connection: Connection, topics: SinkTopicsClient, context: SinkContext) -> ReceiptsTopicState:
    """Read the receipts topic including open and aborted transactions, so that its epochs are current.

    :param connection: of the sink's cluster
    :param topics: reads the end of the receipts topic
    :param context: ledger, pipeline and epoch
    """
    topic = receipts_topic(context.pipeline)
    with closing(ReceiptsReader(connection, topic, ReceiptsTopicState(context.ledger, ""), committed=False)) as reading:
        reading.read_to(topics.end(topic), answer_timeout(connection))
        return reading.state
