"""Declare the files connector: the keys of its ``source`` and ``sink`` sections, and the classes that implement it.

Files are JSON lines, CSV or Parquet, in directories of a file system or in object stores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from airflow_provider_ckpt.config.connector import Connector, DeadLetterStoreType, SinkType, SourceType
from airflow_provider_ckpt.config.fields import RequiredText
from airflow_provider_ckpt.config.sink import SinkSection
from airflow_provider_ckpt.config.source import SourceSection
from airflow_provider_ckpt.connectors.storage.schemes import is_object_url

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline

_HERE = "airflow_provider_ckpt.connectors.files"


class FilesSourceSection(SourceSection):
    """Section ``source`` of a pipeline that reads the files of a directory, or the objects below a prefix.

    New files are read as they appear.

    :param path: a directory, a prefix in an object store, or a glob pattern
    :param format: ``jsonl``, ``csv`` or ``parquet``; for text files it must agree with ``transform.decode``
    :param follow_links: whether symbolic links among the files are followed
    :param header: whether each file's first line names its columns (csv)
    :param names_grow: whether new objects always have greater keys than older ones, so that a listing can begin at the
        last 1,000 known objects
    """

    place_key: ClassVar[str] = "path"
    discovers_files: ClassVar[bool] = True

    path: RequiredText
    format: Literal["jsonl", "csv", "parquet"] | None = None
    follow_links: bool = False
    header: bool = True
    names_grow: bool = False

    @property
    def is_parquet(self) -> bool:
        """True if the files are Parquet files, whose columns have types."""
        return self.format == "parquet"

    @property
    def has_columns(self) -> bool:
        """True for Parquet files, whose records have typed columns; see :attr:`SourceSection.has_columns`."""
        return self.is_parquet

    @property
    def may_lack_columns(self) -> bool:
        """True for Parquet files, which may have different columns; see :attr:`SourceSection.may_lack_columns`."""
        return self.is_parquet

    def check(self, pipeline: Pipeline) -> None:
        """Refuse a section that contradicts ``transform.decode`` or ``error_handling``; see :class:`SourceSection`.

        :param pipeline: the pipeline
        :raises ValueError: naming the contradicting keys, or a key that does not apply to the path, such as
            ``names_grow`` to a directory of a file system
        """
        in_store = is_object_url(self.path)
        if in_store and set("?%#") & set(self.path):
            raise ValueError("the URL of an object store must not contain ?, % or #; in a pattern write * instead of ?")
        if self.names_grow and not in_store:
            raise ValueError("source.names_grow is only for object stores; directories are always listed as a whole")
        decode = pipeline.transform.decode
        if self.is_parquet and decode:
            raise ValueError("Parquet files have columns already; leave transform.decode out")
        if self.is_parquet and pipeline.error_handling.missing_field_behavior == "skip":
            raise ValueError("missing_field_behavior: skip is not supported for Parquet files; use error or null")
        if not self.is_parquet and not decode:
            raise ValueError("a files source needs transform.decode (json or csv) and transform.schema")
        if (self.format == "jsonl" and decode != "json") or (self.format == "csv" and decode != "csv"):
            raise ValueError(f"source.format: {self.format} and transform.decode: {decode} contradict each other")


class FilesSinkSection(SinkSection):
    """Section ``sink`` of a pipeline that writes a file for each batch to a directory or a prefix of an object store.

    :param path: the directory or the URL of the prefix
    :param format: format of the files: ``jsonl``, ``csv`` or ``parquet``
    :param files_may_go: whether readers remove files from the directory, so that a missing file is no loss
    """

    place_key: ClassVar[str] = "path"

    path: RequiredText
    format: Literal["jsonl", "csv", "parquet"]
    files_may_go: bool = False


def _source(section: FilesSourceSection) -> str:
    return f"{_HERE}.parquet_source:ParquetSource" if section.is_parquet else f"{_HERE}.source:FilesSource"


def _reader(section: FilesSourceSection) -> str:
    return f"{_HERE}.parquet_reader:ParquetReader" if section.is_parquet else f"{_HERE}.reader:FilesReader"


def _sink(section: FilesSinkSection) -> str:
    return f"{_HERE}.object_store.sink:ObjectFilesSink" if is_object_url(section.path) else f"{_HERE}.sink:FilesSink"


def _writer(section: FilesSinkSection) -> str:
    in_store = is_object_url(section.path)
    return f"{_HERE}.object_store.writer:ObjectFilesWriter" if in_store else f"{_HERE}.writer:FilesWriter"


def _committer(section: FilesSinkSection) -> str | None:
    return f"{_HERE}.object_store.committer:object_files_committer" if is_object_url(section.path) else None


CONNECTOR = Connector(
    source=SourceType(section=FilesSourceSection, source=_source, reader=_reader),
    sink=SinkType(
        section=FilesSinkSection,
        sink=_sink,
        writer=_writer,
        committer=_committer,
        dead_letter_place="airflow_provider_ckpt.connectors.location_names:dead_letter_place",
    ),
    dead_letter_store=DeadLetterStoreType(
        store=f"{_HERE}.dead_letter_store:FilesDeadLetterStore",
        place=f"{_HERE}.names:dead_letter_place",
        keys=("connection", "path"),
        needed={"path": "a directory"},
    ),
    dataset="airflow_provider_ckpt.connectors.location_names:dataset",
    preload=("numpy",),
    preload_before_fork=(f"{_HERE}.sink",),
)
