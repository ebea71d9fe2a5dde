"""Errors of drivers and file systems are mapped to stable error types, and to whether another attempt may help."""

from __future__ import annotations

import errno

import pytest
from confluent_kafka import KafkaError

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.kafka.client import to_error_info as kafka_error
from airflow_provider_ckpt.connectors.postgres.client import error_info as postgres_error
from airflow_provider_ckpt.connectors.storage.filesystem import io_error
from airflow_provider_ckpt.core.batch import Batch
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.error_policy import default_action
from airflow_provider_ckpt.core.errors import ErrorAction, ErrorInfo, ErrorType
from airflow_provider_ckpt.core.failed_attempt import decide
from airflow_provider_ckpt.core.failure_decisions import FailRun, HaltRun, RejectBatch, RetryBatch
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.retry_policy import DeliveryPolicy
from tests.unit.core.machines import NOW

BATCH = Batch(BatchKey(1, "p", 0), Range(0, 10), attempts=1)


class DriverError(Exception):
    """The common base of psycopg2's and ADBC's errors."""

    def __init__(self, sqlstate: str | None) -> None:
        super().__init__("said no")
        self.sqlstate = sqlstate


def follows(error: ErrorInfo) -> type[object]:
    """Return the type of the decision on a batch's first error."""
    return type(decide(BATCH, error, DeliveryPolicy(), now=NOW, deviation=0.0))


@pytest.mark.parametrize(
    ("sqlstate", "recoverable", "whole", "decision"),
    [
        ("08006", True, True, FailRun),
        ("08P01", True, True, FailRun),
        ("22001", False, False, RejectBatch),
        ("22P05", False, False, RejectBatch),
        ("23505", False, False, RejectBatch),
        ("25006", True, True, FailRun),
        ("25P03", True, False, RetryBatch),
        ("28P01", False, False, HaltRun),
        ("3D000", False, False, HaltRun),
        ("40001", True, False, RetryBatch),
        ("40P01", True, False, RetryBatch),
        ("42501", False, False, HaltRun),
        ("42P01", False, False, HaltRun),
        ("53100", True, True, FailRun),
        ("53300", True, True, FailRun),
        ("54000", False, False, HaltRun),
        ("55000", False, False, HaltRun),
        ("55P03", True, False, RetryBatch),
        ("57014", True, False, RetryBatch),
        ("57P01", True, True, FailRun),
        ("58030", True, True, FailRun),
        ("P0001", False, False, HaltRun),
        ("XX000", False, False, HaltRun),
        (None, False, False, HaltRun),
    ],
)
@pytest.mark.parametrize("kind", [ErrorType.SINK, ErrorType.SOURCE])
def test_sqlstates(kind: ErrorType, sqlstate: str | None, recoverable: bool, whole: bool, decision: type) -> None:
    info = postgres_error(DriverError(sqlstate), kind, "delivering")

    assert (info.type, info.recoverable, info.is_outage, info.sqlstate) == (kind, recoverable, whole, sqlstate)
    if kind is ErrorType.SOURCE and decision is RejectBatch:  # only a sink's refusal is about a record
        decision = HaltRun
    assert follows(info) is decision


def kafka(code: int, kind: ErrorType) -> ErrorInfo:
    connection = Connection("stream", "kafka", extra={"bootstrap.servers": "broker:9092"})
    return kafka_error(KafkaError(code), kind, "sending", connection)


@pytest.mark.parametrize(
    ("code", "kind", "decision"),
    [
        (KafkaError._TRANSPORT, ErrorType.KAFKA_PRODUCER, FailRun),
        (KafkaError._INCONSISTENT, ErrorType.KAFKA_PRODUCER, FailRun),
        (KafkaError._MSG_TIMED_OUT, ErrorType.KAFKA_PRODUCER, FailRun),
        (KafkaError.NOT_ENOUGH_REPLICAS, ErrorType.KAFKA_PRODUCER, FailRun),
        (KafkaError.THROTTLING_QUOTA_EXCEEDED, ErrorType.KAFKA_PRODUCER, FailRun),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, ErrorType.KAFKA_PRODUCER, FailRun),
        (KafkaError.SASL_AUTHENTICATION_FAILED, ErrorType.KAFKA_PRODUCER, FailRun),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, ErrorType.KAFKA_PRODUCER, FailRun),
        (KafkaError.MSG_SIZE_TOO_LARGE, ErrorType.SERIALIZATION, RejectBatch),
        (KafkaError.INVALID_RECORD, ErrorType.SERIALIZATION, RejectBatch),
        (KafkaError.PRODUCER_FENCED, ErrorType.FENCED, HaltRun),
        (KafkaError.INVALID_PRODUCER_EPOCH, ErrorType.FENCED, HaltRun),
        (KafkaError.POLICY_VIOLATION, ErrorType.KAFKA_PRODUCER, HaltRun),
        (KafkaError.UNSUPPORTED_COMPRESSION_TYPE, ErrorType.KAFKA_PRODUCER, HaltRun),
    ],
)
def test_codes_of_a_kafka_producer(code: int, kind: ErrorType, decision: type) -> None:
    info = kafka(code, ErrorType.KAFKA_PRODUCER)

    assert (info.type, follows(info)) == (kind, decision)


@pytest.mark.parametrize(
    ("code", "decision"),
    [
        (KafkaError._ALL_BROKERS_DOWN, FailRun),
        (KafkaError.REQUEST_TIMED_OUT, FailRun),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, FailRun),
        (KafkaError.OFFSET_OUT_OF_RANGE, HaltRun),
        (KafkaError._BAD_MSG, HaltRun),
    ],
)
def test_codes_of_a_kafka_consumer(code: int, decision: type) -> None:
    info = kafka(code, ErrorType.KAFKA_CONSUMER)

    assert (info.type, follows(info)) == (ErrorType.KAFKA_CONSUMER, decision)


@pytest.mark.parametrize(
    ("code", "recoverable", "decision"),
    [
        (errno.ENOSPC, True, FailRun),
        (errno.EDQUOT, True, FailRun),
        (errno.EACCES, False, FailRun),
        (errno.EPERM, False, FailRun),
        (errno.EROFS, False, FailRun),
        (errno.EIO, True, FailRun),
        (errno.ESTALE, True, FailRun),
        (errno.EMFILE, True, FailRun),
        (errno.ENOENT, True, RetryBatch),
        (errno.ENAMETOOLONG, True, RetryBatch),
    ],
)
def test_file_systems(code: int, recoverable: bool, decision: type) -> None:
    info = io_error(OSError(code, "no"), "write /data/x").info

    assert (info.type, info.recoverable, follows(info)) == (ErrorType.IO, recoverable, decision)


@pytest.mark.parametrize("kind", ErrorType)
def test_every_type_has_one_action_and_what_no_rule_names_halts(kind: ErrorType) -> None:
    retried = {
        *(ErrorType.IO, ErrorType.OFFSET_COMMIT, ErrorType.LEDGER_UNAVAILABLE, ErrorType.CACHE, ErrorType.REDIS),
    }
    dead = {
        *(ErrorType.MESSAGE_DESERIALIZATION, ErrorType.SERIALIZATION, ErrorType.FILTER_EVALUATION),
        *(ErrorType.TRANSFORM_EVALUATION, ErrorType.JSON_PATH_NOT_FOUND, ErrorType.COMPRESSION),
        *(ErrorType.COMPRESSION_WITH_CODEC, ErrorType.DECOMPRESSION, ErrorType.PROCESSING),
        ErrorType.PROCESSING_WITH_CONTEXT,
    }
    expected = ErrorAction.RETRY if kind in retried else ErrorAction.DEAD_LETTER if kind in dead else ErrorAction.HALT

    assert default_action(ErrorInfo(kind, "")) is expected
