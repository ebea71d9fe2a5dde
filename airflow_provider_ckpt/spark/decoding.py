"""Decodes raw records into the columns of ``transform.schema``, and says which records are not what it promises.

Plain JSON records come decoded (see ``plain.py``); whatever else there is goes through Spark's parser, and through the
checks of ``strictness.py`` and ``exactness.py`` for what that lets pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import ErrorType
from airflow_provider_ckpt.spark import columns as c
from airflow_provider_ckpt.spark import exactness, strictness
from airflow_provider_ckpt.spark.plain import Plain
from airflow_provider_ckpt.spark.projection import parse_schema, project, quoted
from airflow_provider_ckpt.spark.sql import aside, literal, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.connectors.protocols import Shape

_DECODED = "__decoded"
_VALID = "__valid"
_TEXT = "__text"
_ALTERED = "__altered"


@dataclass(frozen=True, slots=True)
class Check:
    """What is demanded of a record before any expression sees it.

    :param failed: SQL that is true of a record that fails
    :param verdict: of such a record
    :param message: why
    """

    failed: str
    verdict: str
    message: str


def plain_records(spark: SparkSession, pipeline: Pipeline) -> Plain | None:
    """Which raw records the reader decodes itself; None if there are none."""
    transform = pipeline.transform
    if transform.decode != "json" or transform.schema_ is None:
        return None
    return Plain.of(parse_schema(spark, transform.schema_, pipeline.name).fields)


def decode(frame: DataFrame, pipeline: Pipeline, shape: Shape) -> tuple[DataFrame, list[str], list[Check]]:
    """Parse the record's value into the schema's columns.

    What else the source gives (a message's key, headers and timestamp) can be named beside them, but is put out only
    where ``select`` says so. The source's columns stay as :func:`raw` names them.

    :returns: the frame, the schema's columns, and the checks
    """
    transform = pipeline.transform
    assert transform.schema_ is not None
    fields = parse_schema(frame.sparkSession, transform.schema_, pipeline.name).fields
    names = [item.name for item in fields]
    told = [name for name in frame.columns if name == c.PLAIN]
    aliased = [f"{quote(name)} AS {raw(name)}" for name, _ in shape.columns]
    text = f"cast(value AS string) AS {_TEXT}"
    frame = project(frame, [*quoted([*c.CONTROL, *told]), *aliased, text], pipeline)

    plain = f"({c.PLAIN} IS NOT NULL)" if told else "false"
    decoded = {name: f"{_DECODED}.{quote(name)}" for name in names}
    parsed, strict = _parsed(pipeline, list(decoded.values()))
    if told:
        parsed = f"coalesce({c.PLAIN}, {parsed})"
    altered = exactness.altered(fields, decoded, _TEXT, delimiter=_delimiter(pipeline))
    frame = project(frame, [*quoted(frame.columns), f"{parsed} AS {_DECODED}"], pipeline)
    unparsed = f"{plain} OR {_DECODED} IS NULL"
    frame = project(frame, [*quoted(frame.columns), f"{aside(altered, unless=unparsed)} AS {_ALTERED}"], pipeline)
    lax = aside(f"NOT coalesce({strict}, false)", unless=plain)
    parsable = f"is_valid_utf8({_TEXT}) AND {_DECODED} IS NOT NULL AND {_DECODED}.{c.CORRUPT} IS NULL"
    taken = {"value", *(name.lower() for name in names)}
    frame = project(
        frame,
        [
            *quoted([name for name in frame.columns if name != _DECODED]),
            f"coalesce({plain} OR ({parsable} AND NOT {_ALTERED} AND NOT {lax}), false) AS {_VALID}",
            *(f"{value} AS {quote(name)}" for name, value in decoded.items()),
            *(f"{raw(name)} AS {quote(name)}" for name, _ in shape.columns if name.lower() not in taken),
        ],
        pipeline,
    )
    return frame, names, [*_validity(pipeline, plain), *_missing(pipeline, names, plain)]


def raw(name: str) -> str:
    """The source's column under a name that is no column's of a schema."""
    return quote(f"__raw_{name}")


def parser(pipeline: Pipeline, text: str, schema: str, options: str) -> str:
    """SQL that parses a text as the pipeline says."""
    transform = pipeline.transform
    if transform.decode == "json":
        return f"from_json({text}, {schema}, map({options}, {strictness.JSON_DIALECT}))"
    return f"from_csv({text}, {schema}, map({options}, {strictness.csv_dialect(transform.delimiter)}))"


def _parsed(pipeline: Pipeline, columns: list[str]) -> tuple[str, str]:
    """SQL of the record as its parser takes it, and a condition: the parser has left nothing out."""
    transform = pipeline.transform
    assert transform.schema_ is not None
    schema = literal(f"{transform.schema_}, {c.CORRUPT} string")
    parsed = parser(pipeline, _TEXT, schema, f"'mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '{c.CORRUPT}'")
    if transform.decode == "json":
        return parsed, strictness.of_json(_TEXT, columns)
    # What the parser itself cannot bear must never reach it.
    bearable = strictness.bearable_csv(_TEXT, transform.delimiter, len(columns))
    return f"CASE WHEN {bearable} THEN {parsed} END", strictness.of_csv(_TEXT, len(columns))


def _validity(pipeline: Pipeline, plain: str) -> list[Check]:
    skips_null = pipeline.error_handling.null_value_behavior == "skip"
    unfit = str(ErrorType.MESSAGE_DESERIALIZATION)
    what = "one JSON object" if pipeline.transform.decode == "json" else "a CSV record"
    tombstone = f"{raw('value')} IS NULL AND NOT {plain}"
    return [
        Check(tombstone, c.FILTERED if skips_null else unfit, "no value to decode (a tombstone)"),
        Check(f"NOT {_VALID} AND NOT is_valid_utf8({_TEXT})", unfit, "not valid UTF-8"),
        Check(f"NOT {_VALID} AND {_ALTERED}", unfit, "a value that its column cannot hold as it is written"),
        Check(f"NOT {_VALID}", unfit, f"not {what} that fits the schema"),
    ]


def _missing(pipeline: Pipeline, names: list[str], plain: str) -> list[Check]:
    """The check that no field of the schema is missing, where it is asked for; a plain record has them all."""
    behavior = pipeline.error_handling.missing_field_behavior
    if pipeline.transform.decode != "json" or behavior == "null":
        return []
    absent = " OR ".join(f"{quote(name)} IS NULL" for name in names)
    wanted = "array(" + ", ".join(literal(name) for name in names) + ")"
    lacking = f"size(array_except({wanted}, json_object_keys({_TEXT}))) > 0"
    missing = aside(lacking, unless=f"{plain} OR NOT ({absent})")
    verdict = c.FILTERED if behavior == "skip" else str(ErrorType.JSON_PATH_NOT_FOUND)
    return [Check(missing, verdict, "a field of the schema is missing")]


def _delimiter(pipeline: Pipeline) -> str | None:
    """Of CSV's fields; None where a record is JSON."""
    return pipeline.transform.delimiter if pipeline.transform.decode == "csv" else None
