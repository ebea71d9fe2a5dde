"""Claim one source partition for a lane: initialise its transactional id, then read its existing receipts.

The fence relies on the order of the steps (documentation: Architecture, Connectors). The lane writes to the receipts
topic that it uses the transactional id, initialises the id, and only then reads epochs and receipts, up to an end
offset that it requests after the initialisation. From then on, earlier producers with this id cannot commit, so no
other lane can add a receipt for the partition. The fence of a newer run writes its epoch before it reads the ids in
use. So it either finds this id and fences this lane's producer, or its epoch is already in the topic when the lane
reads, and the lane stops.
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
    """Exclusive right of a lane to write the receipts of one source partition.

    The right ends when another producer initialises the same transactional id. The constructor claims the partition: it
    initialises the id and reads the partition's receipts.

    :param connection: connection to the sink's cluster
    :param topics: client that returns the end offset of the receipts topic
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    :param partition: id of the source partition
    :param batch_bytes: maximum size in bytes of a producer batch of several records
    :ivar transactions: producer with the transactional id, with which the lane writes the partition's batches
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
        """Add a receipt that was committed under this claim to those that :meth:`receipt` returns."""
        self._state.receipts[receipt.key] = receipt_value(receipt)

    def close(self) -> None:
        """Close the producer, and with it the connection to the cluster."""
        self.transactions.close()


def read_epochs(connection: Connection, topics: SinkTopicsClient, context: SinkContext) -> ReceiptsTopicState:
    """Return the records of the receipts topic except receipts; their epochs show whether a newer run exists.

    The topic is read to its end without waiting for open transactions.

    :param connection: connection to the sink's cluster
    :param topics: client that returns the end offset of the receipts topic
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    """
    topic = receipts_topic(context.pipeline)
    with closing(ReceiptsReader(connection, topic, ReceiptsTopicState(context.ledger, ""), committed=False)) as reading:
        reading.read_to(topics.end(topic), answer_timeout(connection))
        return reading.state
