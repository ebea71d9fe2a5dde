"""List the pairs of source and sink that the crash tests cover."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.chaos.crash_points.refreshed_targets import REFRESHED
from tests.chaos.crash_points.sinks import SINKS
from tests.chaos.crash_points.sources import SOURCES


@dataclass(frozen=True, slots=True)
class Pair:
    """A source and a sink.

    :param copies: whether records may also go on unchanged, without a transform
    :param refreshes: whether each run replaces all rows of the target (``mode: replace``)
    """

    source: str
    sink: str
    copies: bool = False
    refreshes: bool = False

    def __post_init__(self) -> None:
        assert self.source in SOURCES, self.source
        assert self.sink in (REFRESHED if self.refreshes else SINKS), self.sink

    def __str__(self) -> str:
        return f"refresh-{self.source}-{self.sink}" if self.refreshes else f"{self.source}-{self.sink}"


PAIRS: Sequence[Pair] = (
    Pair("files", "delta"),
    Pair("files", "iceberg"),
    Pair("kafka", "kafka", copies=True),
    Pair("kafka", "postgres"),
    Pair("postgres", "postgres", copies=True),
    Pair("postgres", "kafka"),
    Pair("postgres", "mariadb"),
    Pair("sqlite", "postgres"),
    Pair("postgres", "delta_in_s3"),
    Pair("files_in_s3", "iceberg_in_s3"),
    Pair("kafka", "files_in_s3"),
    Pair("postgres", "postgres", copies=True, refreshes=True),
    Pair("postgres", "postgres_renamed", refreshes=True),
    Pair("postgres", "mariadb", refreshes=True),
    Pair("postgres", "delta_in_s3", refreshes=True),
)
