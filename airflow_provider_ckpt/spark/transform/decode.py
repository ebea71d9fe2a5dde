"""Decode raw records into the columns of ``transform.schema``, and check that each record matches the schema.

Readers have already decoded flat JSON records (see ``plain_json.py``). All others go through Spark's parser. The
conditions in ``strict_parsing.py`` and ``lossless_parsing.py`` then find the records that this parser wrongly accepts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import ErrorType
from airflow_provider_ckpt.spark import columns as c
from airflow_provider_ckpt.spark.sql import literal, quote
from airflow_provider_ckpt.spark.transform import lossless_parsing, slow_decimals, strict_parsing
from airflow_provider_ckpt.spark.transform.missing_fields import missing_field_checks
from airflow_provider_ckpt.spark.transform.plain_json import FlatJsonDecoder
from airflow_provider_ckpt.spark.transform.projection import parse_schema, project, quoted
from airflow_provider_ckpt.spark.transform.record_check import RecordCheck

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField

    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.connectors.source_protocol import RecordShape

_TEXT = "__text"
_PARSED, _RECORD, _FAULT = "__parsed", "record", "__fault"
_DECODED = "__decoded"
"""Name of a lambda variable in SQL whose value is the record as Spark's parser returns it."""


def flat_json_decoder(spark: SparkSession, pipeline: Pipeline) -> FlatJsonDecoder | None:
    """Return the decoder with which readers decode flat JSON records before Spark gets them (see ``plain_json.py``).

    :param spark: any session, which parses the schema
    :param pipeline: the pipeline's declaration
    :return: None if the pipeline does not decode JSON, or if its schema has a field that flat records cannot have
    """
    transform = pipeline.transform
    if transform.decode != "json" or transform.schema_ is None:
        return None
    return FlatJsonDecoder.of(parse_schema(spark, transform.schema_, pipeline.name).fields)


def decode(frame: DataFrame, pipeline: Pipeline, shape: RecordShape) -> tuple[DataFrame, list[str], list[RecordCheck]]:
    """Parse the ``value`` of each record into the columns of the schema.

    Expressions may also use the source's other columns (a message's key, headers and timestamp), but these are output
    only if ``select`` names them. All source columns stay in the data frame under the names of :func:`raw_column`.

    :param frame: data frame with the control columns, then the source's columns
    :param pipeline: the pipeline's declaration
    :param shape: names and types of the source's columns
    :return: the data frame with the decoded records, the names of the schema's columns, and the checks of each record
    """
    transform = pipeline.transform
    assert transform.schema_ is not None
    fields = parse_schema(frame.sparkSession, transform.schema_, pipeline.name).fields
    names = [item.name for item in fields]
    flat_columns = [name for name in frame.columns if name == c.FLAT_JSON]
    aliased = [f"{quote(name)} AS {raw_column(name)}" for name, _ in shape.columns]
    text = f"cast(value AS string) AS {_TEXT}"
    frame = project(frame, [*quoted([*c.CONTROL, *flat_columns]), *aliased, text], pipeline)

    is_flat = f"{c.FLAT_JSON} IS NOT NULL" if flat_columns else "false"
    decoded = {name: f"{_DECODED}.{quote(name)}" for name in names}
    found = [
        *_validity_checks(
            pipeline, lossless_parsing.is_lossy(fields, decoded, _TEXT, delimiter=_delimiter(pipeline)), decoded
        ),
        *missing_field_checks(pipeline, _TEXT, decoded),
    ]
    faults = " ".join(f"WHEN {check.failed} THEN {number}" for number, check in enumerate(found))
    # A lambda keeps the parser out of the Java method that Spark generates for later steps: Java does not compile a
    # method of more than 8,000 bytes, and executing the steps one by one would slow down every record.
    parsed = (
        f"get(transform(CASE WHEN {is_flat} THEN array() ELSE array({_parsed_record(pipeline, fields)}) END,"
        f" {_DECODED} -> named_struct('{_RECORD}', {_DECODED}, '{_FAULT}', CASE {faults} END)), 0)"
    )
    frame = project(frame, [*quoted(frame.columns), f"{parsed} AS {_PARSED}"], pipeline)

    columns = {name: f"{_PARSED}.{_RECORD}.{quote(name)}" for name in names}
    if flat_columns:
        columns = {n: f"CASE WHEN {is_flat} THEN {c.FLAT_JSON}.{quote(n)} ELSE {e} END" for n, e in columns.items()}
    taken = {"value", *(name.lower() for name in names)}
    frame = project(
        frame,
        [
            *quoted([name for name in frame.columns if name not in {_PARSED, _TEXT, c.FLAT_JSON}]),
            f"{_PARSED}.{_FAULT} AS {_FAULT}",
            *(f"{value} AS {quote(name)}" for name, value in columns.items()),
            *(f"{raw_column(name)} AS {quote(name)}" for name, _ in shape.columns if name.lower() not in taken),
        ],
        pipeline,
    )
    checks = [replace(check, failed=f"{_FAULT} = {number}") for number, check in enumerate(found)]
    return frame, names, checks


def raw_column(name: str) -> str:
    """Return the quoted name, ``__raw_<name>``, under which a source column stays in the data frame after decoding.

    Schemas cannot contain such names, since they are reserved.

    :param name: name of the source column
    """
    return quote(f"__raw_{name}")


def parser_sql(pipeline: Pipeline, text: str, schema: str, options: str) -> str:
    """Return SQL that parses a record's text with ``from_json`` or ``from_csv``, as ``transform.decode`` says.

    :param pipeline: the pipeline's declaration
    :param text: SQL expression of the text
    :param schema: SQL string literal of the schema
    :param options: further options of the parser, as a SQL list of keys and values
    """
    transform = pipeline.transform
    if transform.decode == "json":
        return f"from_json({text}, {schema}, map({options}, {strict_parsing.JSON_DIALECT}))"
    return f"from_csv({text}, {schema}, map({options}, {strict_parsing.csv_dialect(transform.delimiter)}))"


def has_short_decimals(spark: SparkSession, pipeline: Pipeline, text: str) -> str | None:
    """Return a SQL condition that is true if all decimals of a record are short enough to be parsed fast.

    The reason is in ``slow_decimals.py``.

    :param spark: any session, which parses the schema
    :param pipeline: the pipeline's declaration
    :param text: SQL expression of the record's text
    :return: None if the schema has no decimals
    """
    transform = pipeline.transform
    assert transform.schema_ is not None
    fields = parse_schema(spark, transform.schema_, pipeline.name).fields
    return slow_decimals.has_short_decimals(fields, text, delimiter=_delimiter(pipeline))


def _parsed_record(pipeline: Pipeline, fields: Sequence[StructField]) -> str:
    """Return SQL that parses a record with ``from_json`` or ``from_csv``.

    The SQL yields null for a record that would stall or crash that parser.

    :param pipeline: the pipeline's declaration
    :param fields: fields of the schema
    """
    transform = pipeline.transform
    assert transform.schema_ is not None
    schema = literal(f"{transform.schema_}\n, {c.CORRUPT} string")  # the schema may end with a comment
    parsed = parser_sql(pipeline, _TEXT, schema, f"'mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '{c.CORRUPT}'")
    bearable = [slow_decimals.has_short_decimals(fields, _TEXT, delimiter=_delimiter(pipeline))]
    if transform.decode == "csv":
        bearable.insert(0, strict_parsing.is_parsable_csv(_TEXT, transform.delimiter, len(fields)))
    conditions = " AND ".join(filter(None, bearable))
    return f"CASE WHEN {conditions} THEN {parsed} END" if conditions else parsed


def _validity_checks(pipeline: Pipeline, altered: str, columns: Mapping[str, str]) -> list[RecordCheck]:
    """Return the checks that a record matches the schema, in order: each assumes that the earlier checks have passed.

    :param pipeline: the pipeline's declaration
    :param altered: SQL condition that is true if a parsed column differs from the record's text
    :param columns: by field name, SQL expression of the parsed column
    """
    of_json = pipeline.transform.decode == "json"
    skips_null = pipeline.error_handling.null_value_behavior == "skip"
    unfit = str(ErrorType.MESSAGE_DESERIALIZATION)
    what = "one JSON object" if of_json else "a CSV record"
    strict = (
        strict_parsing.is_strict_json(_TEXT, list(columns.values()))
        if of_json
        else strict_parsing.is_strict_csv(_TEXT, len(columns))
    )
    parsed = f"{_DECODED} IS NOT NULL"
    complete = f"{parsed} AND {_DECODED}.{c.CORRUPT} IS NULL AND coalesce({strict}, false)"
    return [
        RecordCheck(
            f"{raw_column('value')} IS NULL", c.FILTERED if skips_null else unfit, "no value to decode (a tombstone)"
        ),
        RecordCheck(f"NOT is_valid_utf8({_TEXT})", unfit, "not valid UTF-8"),
        RecordCheck(f"{parsed} AND {altered}", unfit, "a value that its column cannot hold as it is written"),
        RecordCheck(f"NOT ({complete})", unfit, f"not {what} that fits the schema"),
    ]


def _delimiter(pipeline: Pipeline) -> str | None:
    """Return the delimiter of CSV fields; None if records are JSON."""
    return pipeline.transform.delimiter if pipeline.transform.decode == "csv" else None
