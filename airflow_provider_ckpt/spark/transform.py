"""The transform, as one SQL projection: decode, ``where``, ``select``, with a verdict for every record.

No record is dropped and none can fail the batch: expressions are guarded in line by a function that Spark evaluates
under try, so that they are evaluated for the output only where none raises. They run twice, so nondeterministic ones
are refused; so is what needs other records than its own, since it would tear the lanes' order apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import (
    ConfigError,
    DslParseError,
    ErrorType,
    InvalidFilterError,
    InvalidTransformError,
)
from airflow_provider_ckpt.spark import columns as c
from airflow_provider_ckpt.spark import strictness
from airflow_provider_ckpt.spark.plain import pattern
from airflow_provider_ckpt.spark.sql import aside, first_line, guard, is_name, literal, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.connectors.protocols import Shape

_DECODED = "__decoded"
_CORRUPT = "__corrupt"
_VALID = "__valid"
_TEXT = "__text"
_ALTERED = "__altered"
_WANTED = "__wanted"


def apply(frame: DataFrame, pipeline: Pipeline, shape: Shape) -> DataFrame:
    """Give every record of ``frame`` a verdict, and the ones to deliver their output columns.

    :param frame: control columns, then the source's columns
    :returns: control columns, :data:`VERDICT`, :data:`MESSAGE`, :data:`ORIGINAL`, then the output columns
    :raises ConfigError: if an expression does not parse, names an unknown column, is nondeterministic, or needs other
        records than its own
    """
    transform = pipeline.transform
    frame, names, checks, original = _columns(frame, pipeline, shape)
    outputs = dict(transform.select) if transform.select else {name: quote(name) for name in names}
    _refuse_unfit(frame, pipeline, outputs)

    branches = [f"WHEN {c.READ} IS NOT NULL THEN NULL"]
    messages = []
    for condition, verdict, message in checks:
        branches.append(f"WHEN {condition} THEN {literal(verdict)}")
        messages.append(f"WHEN {condition} THEN {literal(message)}")
    if transform.where:
        # One evaluation tells all: null where it raises, else as a text whether the record is wanted.
        wanted = f"try_to_binary(cast(coalesce(CAST(({transform.where}) AS BOOLEAN), false) AS string), 'utf-8')"
        frame = _project(frame, [*_quoted(frame.columns), f"{wanted} AS {_WANTED}"], pipeline)
        unwanted = f"{_WANTED} <> to_binary('true', 'utf-8')"
        branches.append(f"WHEN {_WANTED} IS NULL THEN {literal(ErrorType.FILTER_EVALUATION)}")
        branches.append(f"WHEN {unwanted} THEN {literal(c.FILTERED)}")
        messages.append(f"WHEN {_WANTED} IS NULL THEN {literal('where failed: ' + transform.where)}")
        messages.append(f"WHEN {unwanted} THEN NULL")
    risky = {name: f"({e})" for name, e in (transform.select or {}).items() if not is_name(e)}
    if risky:
        branches.append(f"WHEN {guard(*risky.values())} THEN {literal(ErrorType.TRANSFORM_EVALUATION)}")
        for name, expression in risky.items():
            failed = literal(f"select {name} failed: {outputs[name]}")
            messages.append(f"WHEN {guard(expression)} THEN {failed}")
    verdict = "CASE " + " ".join(branches) + " END"
    message = "CASE " + " ".join(messages) + " END" if messages else "CAST(NULL AS STRING)"

    judged = _project(frame, [*_quoted(frame.columns), f"{verdict} AS {c.VERDICT}"], pipeline)
    rejected = f"{c.VERDICT} IS NOT NULL AND {c.VERDICT} <> '{c.FILTERED}'"
    deliver = f"{c.READ} IS NULL AND {c.VERDICT} IS NULL"
    return _project(
        judged,
        [
            *_quoted(c.CONTROL),
            c.VERDICT,
            f"CASE WHEN {rejected} THEN {message} END AS {c.MESSAGE}",
            f"CASE WHEN {rejected} THEN {original} ELSE {_blank(shape)} END AS {c.ORIGINAL}",
            *(f"CASE WHEN {deliver} THEN ({e}) END AS {quote(name)}" for name, e in outputs.items()),
        ],
        pipeline,
    )


def _blank(shape: Shape) -> str:
    """SQL of no original at all.

    Where the source has lists, they are there and empty: Spark's Arrow writer walks over all null lists of a batch
    again for every further row of it.
    """
    empty = {"array": "array()", "map": "map()"}
    kinds = [kind.partition("<")[0].lower() for _, kind in shape.columns]
    if not empty.keys() & set(kinds):
        return "NULL"
    columns = [
        f"CAST({empty.get(short, 'NULL')} AS {kind}) AS {quote(name)}"
        for short, (name, kind) in zip(kinds, shape.columns, strict=True)
    ]
    return f"struct({', '.join(columns)})"


def plain_pattern(pipeline: Pipeline) -> str | None:
    """Which raw records are plain (see ``plain.py``); None if the transform does not ask."""
    transform = pipeline.transform
    if transform.decode != "json" or transform.schema_ is None:
        return None
    return pattern(parse_schema(transform.schema_, pipeline.name).fields)


def unguarded(frame: DataFrame, pipeline: Pipeline, shape: Shape, kind: ErrorType) -> Iterator[DataFrame]:
    """What a guard kept from raising, for a few records of which an error is known.

    :param frame: as :func:`apply` takes it
    :param kind: the records' error type
    """
    transform = pipeline.transform
    if kind is ErrorType.MESSAGE_DESERIALIZATION and transform.decode:
        parsed = _parser(pipeline, "cast(value AS string)", literal(transform.schema_ or ""), "'mode', 'FAILFAST'")
        yield _project(frame, [f"{parsed} AS checked"], pipeline)
    frame, _, _, _ = _columns(frame, pipeline, shape)
    if kind is ErrorType.FILTER_EVALUATION and transform.where:
        yield _project(frame, [f"CAST(({transform.where}) AS BOOLEAN) AS checked"], pipeline)
    if kind is ErrorType.TRANSFORM_EVALUATION:
        for expression in (transform.select or {}).values():
            yield _project(frame, [f"({expression}) AS checked"], pipeline)


def _columns(
    frame: DataFrame, pipeline: Pipeline, shape: Shape
) -> tuple[DataFrame, list[str], list[tuple[str, str, str]], str]:
    """The columns that expressions may name, what is demanded of a record, and an expression for the original."""
    original = "struct(" + ", ".join(quote(name) for name, _ in shape.columns) + ")"
    if not pipeline.transform.decode:
        names = [name for name, _ in shape.columns]
        return frame, names, _null_checks(pipeline, names), original
    # Out of the way: a column of the schema may well be called "value" too.
    told = [name for name in frame.columns if name == c.PLAIN]
    frame = _project(frame, [*_quoted([*c.CONTROL, *told]), f"{original} AS {c.ORIGINAL}"], pipeline)
    return *_decode(frame, pipeline, shape), c.ORIGINAL


def parse_schema(ddl: str, pipeline: str) -> StructType:
    """The columns of a schema in Spark's DDL.

    :raises ConfigError: if it does not parse
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        parsed = StructType.fromDDL(ddl)
        if not isinstance(parsed, StructType):
            raise ConfigError(
                f"transform.schema is one type, not columns: {ddl}",
                pipeline=pipeline,
                hint="Write it as Spark DDL, such as: id bigint, at timestamp.",
            )
    except PySparkException as error:
        raise ConfigError(
            f"transform.schema does not parse: {first_line(error)}",
            pipeline=pipeline,
            hint="Write it as Spark DDL, such as: id bigint, at timestamp.",
        ) from error
    return parsed


def _decode(
    frame: DataFrame, pipeline: Pipeline, shape: Shape
) -> tuple[DataFrame, list[str], list[tuple[str, str, str]]]:
    """Parse the original value into the schema's columns; the checks say which records are not what it promises.

    What else the source gives (a message's key, headers and timestamp) can be named beside them, but is put out only
    where ``select`` says so.
    """
    transform = pipeline.transform
    assert transform.schema_ is not None
    fields = parse_schema(transform.schema_, pipeline.name).fields
    names = [item.name for item in fields]
    text = _TEXT
    frame = _project(frame, [*_quoted(frame.columns), f"cast({c.ORIGINAL}.value AS string) AS {_TEXT}"], pipeline)
    schema = literal(f"{transform.schema_}, {_CORRUPT} string")
    parsed = _parser(pipeline, text, schema, f"'mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '{_CORRUPT}'")
    decoded = {name: f"{_DECODED}.{quote(name)}" for name in names}
    if transform.decode == "json":
        strict = strictness.of_json(text, list(decoded.values()))
        what = "not one JSON object that fits the schema"
    else:
        strict = strictness.of_csv(text, len(names))
        # What the parser itself cannot bear must never reach it.
        bearable = strictness.bearable_csv(text, transform.delimiter, transform.schema_)
        parsed = f"CASE WHEN {bearable} THEN {parsed} END"
        what = "not a CSV record that fits the schema"
    altered = strictness.altered(fields, decoded, text, delimiter=_delimiter(pipeline))
    frame = _project(frame, [*_quoted(frame.columns), f"{parsed} AS {_DECODED}"], pipeline)
    plain = f"coalesce({c.PLAIN}, false)" if c.PLAIN in frame.columns else "false"
    frame = _project(frame, [*_quoted(frame.columns), f"{aside(altered, unless=plain)} AS {_ALTERED}"], pipeline)
    lax = aside(f"NOT coalesce({strict}, false)", unless=plain)
    valid = f"is_valid_utf8({text}) AND {_DECODED} IS NOT NULL AND {_DECODED}.{_CORRUPT} IS NULL"
    taken = {"value", *(name.lower() for name in names)}
    flat = _project(
        frame,
        [
            *_quoted([name for name in frame.columns if name != _DECODED]),
            f"coalesce({valid} AND NOT {_ALTERED} AND NOT {lax}, false) AS {_VALID}",
            *(f"{value} AS {quote(name)}" for name, value in decoded.items()),
            *(f"{c.ORIGINAL}.{quote(name)} AS {quote(name)}" for name, _ in shape.columns if name not in taken),
        ],
        pipeline,
    )
    skips_null = pipeline.error_handling.null_value_behavior == "skip"
    checks = [
        (
            f"{c.ORIGINAL}.value IS NULL",
            c.FILTERED if skips_null else str(ErrorType.MESSAGE_DESERIALIZATION),
            "no value to decode (a tombstone)",
        ),
        (f"NOT {_VALID} AND NOT is_valid_utf8({text})", str(ErrorType.MESSAGE_DESERIALIZATION), "not valid UTF-8"),
        (
            f"NOT {_VALID} AND {_ALTERED}",
            str(ErrorType.MESSAGE_DESERIALIZATION),
            "a value that its column cannot hold as it is written",
        ),
        (f"NOT {_VALID}", str(ErrorType.MESSAGE_DESERIALIZATION), what),
    ]
    if transform.decode == "json" and pipeline.error_handling.missing_field_behavior != "null":
        absent = " OR ".join(f"{quote(name)} IS NULL" for name in names)
        wanted = "array(" + ", ".join(literal(name) for name in names) + ")"
        lacking = f"size(array_except({wanted}, json_object_keys({text}))) > 0"
        missing = aside(lacking, unless=f"{plain} OR NOT ({absent})")
        skip = pipeline.error_handling.missing_field_behavior == "skip"
        verdict = c.FILTERED if skip else str(ErrorType.JSON_PATH_NOT_FOUND)
        checks.append((missing, verdict, "a field of the schema is missing"))
    return flat, names, checks + _null_checks(pipeline, names)


def _parser(pipeline: Pipeline, text: str, schema: str, options: str) -> str:
    """SQL that parses a text as the pipeline says."""
    transform = pipeline.transform
    if transform.decode == "json":
        return f"from_json({text}, {schema}, map({options}, {strictness.JSON_DIALECT}))"
    return f"from_csv({text}, {schema}, map({options}, {strictness.csv_dialect(transform.delimiter)}))"


def _delimiter(pipeline: Pipeline) -> str | None:
    """Of CSV's fields; None where a record is JSON."""
    return pipeline.transform.delimiter if pipeline.transform.decode == "csv" else None


def _null_checks(pipeline: Pipeline, names: list[str]) -> list[tuple[str, str, str]]:
    behavior = pipeline.error_handling.null_value_behavior
    if behavior == "passthrough":
        return []
    verdict = c.FILTERED if behavior == "skip" else str(ErrorType.PROCESSING)
    return [(" OR ".join(f"{quote(name)} IS NULL" for name in names), verdict, "a field is null")]


def _refuse_unfit(frame: DataFrame, pipeline: Pipeline, outputs: dict[str, str]) -> None:
    where = {"where": pipeline.transform.where} if pipeline.transform.where else {}
    for name, expression in {**where, **{f"select.{n}": e for n, e in outputs.items()}}.items():
        projected = _project(frame, [f"({expression}) AS checked"], pipeline, key=f"transform.{name}")
        problem = _problem(frame, projected)
        if problem:
            what, hint = problem
            raise _unusable(f"transform.{name}")(
                f"transform.{name} {what}: {expression}", pipeline=pipeline.name, hint=hint
            )


def _problem(frame: DataFrame, projected: DataFrame) -> tuple[str, str] | None:
    """Why an expression cannot stand in a transform, and what to do; None if it can."""
    if not hasattr(projected, "_jdf"):
        return None
    plan = projected._jdf.queryExecution().analyzed()
    alone = plan.nodeName() == "Project" and plan.child().equals(frame._jdf.queryExecution().analyzed())
    if not alone or not plan.subqueries().isEmpty():
        return "needs other records than its own", "Leave windows, aggregates and subqueries to a query on the target."
    expressions = plan.expressions()
    if not all(expressions.apply(index).deterministic() for index in range(expressions.size())):
        hint = "A record that is read again must give the same result; take such values from the source."
        return "is nondeterministic", hint
    return None


def _project(frame: DataFrame, expressions: list[str], pipeline: Pipeline, key: str = "transform") -> DataFrame:
    from pyspark.errors import ParseException, PySparkException

    try:
        projected = frame.selectExpr(*expressions)
        projected.schema  # noqa: B018  # analysis happens here, on a Connect session too
    except PySparkException as error:
        kind = DslParseError if isinstance(error, ParseException) else _unusable(key)
        raise kind(
            f"{key} cannot be used: {first_line(error)}",
            pipeline=pipeline.name,
            hint="Correct the expression; the columns it may use are those of the source or of transform.schema.",
        ) from error
    return projected


def _unusable(key: str) -> type[ConfigError]:
    """The error of an expression that parses and cannot be used."""
    return InvalidFilterError if key == "transform.where" else InvalidTransformError


def _quoted(names: tuple[str, ...] | list[str]) -> list[str]:
    return [quote(name) for name in names]
