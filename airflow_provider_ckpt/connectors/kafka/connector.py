"""Declare the kafka connector: the keys of its ``source`` and ``sink`` sections, and the classes that implement it."""

from __future__ import annotations

from typing import ClassVar

from airflow_provider_ckpt.config.connector import (
    Connector,
    DeadLetterStoreType,
    OutOfRangeTimes,
    SinkType,
    SourceType,
)
from airflow_provider_ckpt.config.fields import ColumnNames, RequiredText
from airflow_provider_ckpt.config.sink import SinkSection
from airflow_provider_ckpt.config.source import SourceSection

_HERE = "airflow_provider_ckpt.connectors.kafka"


class KafkaSourceSection(SourceSection):
    """Section ``source`` of a pipeline that reads a Kafka topic.

    :param connection: Airflow connection id of the cluster
    :param topic: the topic's name
    """

    place_key: ClassVar[str] = "topic"
    needs_order: ClassVar[bool] = True

    connection: RequiredText
    topic: RequiredText

    @property
    def has_columns(self) -> bool:
        """False, since messages have no columns before they are decoded; see :attr:`SourceSection.has_columns`."""
        return False


class KafkaSinkSection(SinkSection):
    """Section ``sink`` of a pipeline that writes to a Kafka topic.

    :param connection: Airflow connection id of the cluster
    :param topic: the topic's name
    :param key: the columns that become a message's key
    :param may_be_emptied: whether messages may be deleted on purpose, so that missing messages are no loss
    """

    place_key: ClassVar[str] = "topic"
    needs_order: ClassVar[bool] = True

    connection: RequiredText
    topic: RequiredText
    key: ColumnNames = ()
    may_be_emptied: bool = False

    @property
    def may_lose_rows(self) -> bool:
        """True if messages may be deleted on purpose (``may_be_emptied``); see :attr:`SinkSection.may_lose_rows`."""
        return self.may_be_emptied


CONNECTOR = Connector(
    source=SourceType(
        section=KafkaSourceSection,
        source=f"{_HERE}.source:KafkaSource",
        reader=f"{_HERE}.reader:KafkaReader",
        out_of_range_times=OutOfRangeTimes(
            0,
            "is after the year 294246: Kafka counts milliseconds, but the producer may have written another unit; "
            "leave it out of transform.select",
        ),
    ),
    sink=SinkType(
        section=KafkaSinkSection,
        sink=f"{_HERE}.sink:KafkaSink",
        writer=f"{_HERE}.writer:KafkaWriter",
        dead_letter_place=f"{_HERE}.names:dead_letter_place",
        dead_letter_keys=("topic", "compression"),
    ),
    dead_letter_store=DeadLetterStoreType(
        store=f"{_HERE}.dead_letter_store:KafkaDeadLetterStore",
        place=f"{_HERE}.names:dead_letter_place",
        keys=("connection", "topic", "brokers", "compression"),
        needs_connection=True,
        instead_of_connection="brokers",
    ),
    dataset=f"{_HERE}.names:dataset",
    preload=("confluent_kafka.admin",),
)
