"""Writing side of the Kafka sink: write a batch's rows, dead letters and receipt in one producer transaction.

A lane claims one source partition at a time. After any failure it releases the claim, and the next claim reads from the
receipts topic whether the transaction was committed.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.batch_content import BatchContent, DeadLetter
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.dead_letter_retries import DeadLettersRefusedError, store_dead_letters
from airflow_provider_ckpt.connectors.kafka.client import require_connection, to_error_info
from airflow_provider_ckpt.connectors.kafka.connector import KafkaSinkSection
from airflow_provider_ckpt.connectors.kafka.dead_letters import dead_letter_headers
from airflow_provider_ckpt.connectors.kafka.fence import refuse_if_fenced
from airflow_provider_ckpt.connectors.kafka.partition_claim import PartitionClaim, read_epochs
from airflow_provider_ckpt.connectors.kafka.producers import may_be_fenced
from airflow_provider_ckpt.connectors.kafka.receipts import receipt_key, receipt_value, receipts_topic
from airflow_provider_ckpt.connectors.kafka.sender import Sender
from airflow_provider_ckpt.connectors.kafka.serialize import Messages, to_messages
from airflow_provider_ckpt.connectors.kafka.sink_topics import SinkTopic, SinkTopicsClient
from airflow_provider_ckpt.connectors.kafka.size_limits import always_refused, possibly_refused
from airflow_provider_ckpt.connectors.refuse_fenced_run import naming_batch
from airflow_provider_ckpt.connectors.sink_protocol import Refused, SinkContext
from airflow_provider_ckpt.connectors.sum_identity import checked_counts
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.errors import (
    CkptError,
    ErrorInfo,
    ErrorType,
    FencedError,
    SinkError,
)
from airflow_provider_ckpt.core.receipt import Receipt
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, KafkaException

    from airflow_provider_ckpt.config.pipeline import Pipeline


class KafkaWriter:
    """Writing side of the Kafka sink in one lane.

    See :class:`~airflow_provider_ckpt.connectors.sink_protocol.Writer`.

    :param pipeline: ``sink.topic`` names the target
    :param connection: the Airflow connection of the Kafka cluster
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> None:
        self._pipeline = pipeline
        self._name = pipeline.sink.place
        self._connection = require_connection(connection, "sink")
        self._context = context
        self._receipts = receipts_topic(context.pipeline)
        self._topics: SinkTopicsClient | None = None
        self._target: SinkTopic | None = None
        self._claim: PartitionClaim | None = None

    @naming_batch
    def deliver(self, task: BatchTask, content: BatchContent) -> Outcome | Refused:
        """Write a batch's rows, dead letters and receipt, unless it has a receipt; see :meth:`Writer.deliver`.

        :param task: the batch and its attempt
        :param content: the batch's rows and dead letters
        :return: the outcome: the verdict of the receipt, or ``failed`` with the error; or the errors of the rows that
            are refused, after which nothing is committed
        :raises FencedError: if the receipts topic contains a newer epoch
        """
        from confluent_kafka import KafkaException

        queue = self._pipeline.dead_letter_queue
        try:
            checked_counts(content, task, queue)
            return store_dead_letters(partial(self._write, task, content), content.dead_letters, task, queue)
        except FencedError:
            self.close()
            raise
        except CkptError as error:
            self.close()
            return _failed_outcome(task, error.info)
        except KafkaException as error:
            return _failed_outcome(
                task, self._convert_error(error, f"delivering {task.key} {task.range} to {self._name}")
            )
        except BaseException:  # if the transaction was committed, the claim lacks its receipt; a new claim reads it
            self.close()
            raise

    def close(self) -> None:
        """Release the claim of the partition, if there is one, and close the connection."""
        self._release_claim()
        self._topics = self._target = None

    def _release_claim(self) -> None:
        if self._claim is not None:
            self._claim.close()
            self._claim = None

    def _claim_partition(self, partition: str) -> PartitionClaim:
        if self._claim is not None and self._claim.partition != partition:
            self._release_claim()
        if self._claim is None:
            target = self._describe_target()
            assert self._topics is not None
            self._claim = PartitionClaim(self._connection, self._topics, self._context, partition, target.max_bytes)
        return self._claim

    def _describe_target(self) -> SinkTopic:
        if self._topics is None:
            self._topics = SinkTopicsClient(self._connection, self._pipeline.name)
        self._target = self._target or self._topics.find(self._name)
        if self._target is None:
            raise SinkError(
                f"target topic {self._name} does not exist in connection {self._connection.id!r}.",
                hint="It existed when the run started; create it again and start a new run.",
            )
        return self._target

    def _existing_outcome(self, task: BatchTask) -> Outcome | None:
        """Return the outcome of a batch that has a receipt already; None if the batch has no receipt.

        :param task: the batch
        """
        receipt = self._claim_partition(task.key.partition).receipt(task.key)
        if receipt is None:
            return None
        return Outcome(
            task.key, task.attempt, AttemptOutcome(receipt.verdict.value), receipt=receipt, receipt_existed=True
        )

    def _write(self, task: BatchTask, content: BatchContent) -> Outcome | Refused:
        """Write a batch in one transaction, unless it has a receipt; if rows are refused, nothing of it is committed.

        :param task: the batch and its attempt
        :param content: the batch's rows and dead letters
        :return: the outcome, or the errors of the refused rows
        :raises DeadLettersRefusedError: if the broker refuses a dead letter
        """
        found = self._existing_outcome(task)
        if found is not None:
            return found
        messages = to_messages(content.rows, KafkaSinkSection.of(self._pipeline).key)
        refused = always_refused(messages, self._describe_target())
        return Refused(refused) if refused else self._transaction(task, content, messages)

    def _transaction(self, task: BatchTask, content: BatchContent, messages: Messages) -> Outcome | Refused:
        """Send rows, dead letters and receipt in one transaction and commit it; abort it if rows are refused.

        :param task: the batch and its attempt, whose partition is claimed
        :param content: the batch's content, for counts and dead letters
        :param messages: the batch's rows as messages
        :return: the outcome, or the errors of the messages that the broker refused
        """
        counts = checked_counts(content, task, self._pipeline.dead_letter_queue)
        dead_letters = content.dead_letters
        verdict = task.instruction.verdict
        now = datetime.now(UTC)
        receipt = Receipt(
            task.key, task.range, verdict, self._context.epoch, task.attempt, counts, now, task.bound, content.positions
        )
        hold = self._claim_partition(task.key.partition)
        transactions, producer = hold.transactions, hold.transactions.producer
        secret = secrets.token_bytes(16) if dead_letters else None
        producer.begin_transaction()
        try:
            refused = self._send_rows(messages)
            if refused:
                self._abort_and_release(hold)
                return Refused(refused)
            self._send_dead_letters(task, dead_letters, secret)
            # Sent last: until the commit, readers of the receipts topic see no later receipts of other lanes.
            value = receipt_value(receipt, secret)
            producer.produce(self._receipts, value, receipt_key(self._context.ledger, task.key), 0)
            transactions.commit()
        except DeadLettersRefusedError:
            self._abort_and_release(hold)
            raise
        except BaseException:
            transactions.abort()
            raise
        hold.add_committed(receipt)
        types = Counter(dead_letter.error.type.value for dead_letter in dead_letters)
        return Outcome(task.key, task.attempt, AttemptOutcome(verdict.value), receipt=receipt, dead_letters=dict(types))

    def _abort_and_release(self, hold: PartitionClaim) -> None:
        """Abort the transaction, and release the claim of the partition so that its producer is closed.

        The producer has assigned sequence numbers to messages that were never sent, so its next transaction would fail.

        :param hold: the claim to release
        """
        hold.transactions.abort()
        self._release_claim()

    def _send_rows(self, messages: Messages) -> dict[int, ErrorInfo]:
        """Send the rows as messages, and return the errors of those that the broker refused, by row number.

        :param messages: the messages
        """
        if not len(messages):
            return {}
        assert self._claim is not None
        watched = possibly_refused(messages, self._describe_target(), int(time.time() * 1000))
        refused: dict[int, ErrorInfo] = {}
        Sender(self._claim.transactions.producer, self._name, refused).send(messages, watched)
        if watched:
            self._claim.transactions.flush(refused)
        return refused

    def _send_dead_letters(self, task: BatchTask, dead_letters: Sequence[DeadLetter], secret: bytes | None) -> None:
        if not dead_letters:
            return
        assert self._claim is not None
        transactions = self._claim.transactions
        failures: list[tuple[DeadLetter, KafkaError]] = []
        sender = Sender(transactions.producer, self._pipeline.dead_letter_queue.topic, {})
        for number, dead_letter in enumerate(dead_letters):

            def watch(error: KafkaError | None, _: object, dead_letter: DeadLetter = dead_letter) -> None:
                if error is not None:
                    failures.append((dead_letter, error))

            headers = dead_letter_headers(dead_letter, task, self._context, number, secret)
            sender.send_one(dead_letter.value, watch, {"key": dead_letter.key, "headers": headers})
        transactions.flush(failures)
        if failures:
            dead_letter, error = failures[0]
            info = self._info(error, "")
            if not info.recoverable and info.type is not ErrorType.FENCED:
                name = self._pipeline.dead_letter_queue.topic
                raise DeadLettersRefusedError(
                    self._info(error, f"writing a dead letter to topic {name}").message,
                    position=dead_letter.position,
                    hint=f"Make topic {name} accept it (max.message.bytes, rights), then run again.",
                )
            # Any other error is not caused by the dead letter; the commit raises it.

    def _info(self, error: KafkaError, operation: str) -> ErrorInfo:
        return to_error_info(error, ErrorType.KAFKA_PRODUCER, operation, self._connection)

    def _convert_error(self, error: KafkaException, operation: str) -> ErrorInfo:
        """Release the claim after an error of the client, close the connection, and return the error's information.

        If the producer may have been fenced, the receipts topic is read to find out whether a newer run or another lane
        has fenced it.

        :param error: the client's exception
        :param operation: the operation that failed, for the message
        :raises FencedError: if the receipts topic contains a newer epoch
        """
        kafka_error: KafkaError = error.args[0]
        specific = kafka_error if self._claim is None else self._claim.transactions.most_specific_error(kafka_error)
        self._release_claim()
        info = self._info(specific, operation)
        if not (may_be_fenced(kafka_error) or kafka_error.fatal()) or info.is_outage:
            self.close()
            return info
        try:
            state = read_epochs(self._connection, self._topics or self._new_topics_client(), self._context)
            refuse_if_fenced(state, self._context.epoch, self._context.pipeline)
        except FencedError:
            raise
        except CkptError as unreachable:
            return unreachable.info
        finally:
            self.close()
        message = f"{info.message} (another lane has taken over the partition; the next attempt reads its receipts)"
        return ErrorInfo(ErrorType.KAFKA_PRODUCER, message, True)

    def _new_topics_client(self) -> SinkTopicsClient:
        self._topics = SinkTopicsClient(self._connection, self._pipeline.name)
        return self._topics


def _failed_outcome(task: BatchTask, error: ErrorInfo) -> Outcome:
    return Outcome(task.key, task.attempt, AttemptOutcome.FAILED, error=error)
