"""The transform, as one SQL projection: decode, ``where``, ``select``, with a verdict for every record.

No record is dropped and none can fail the batch: each expression ``e`` is guarded in line by a function that Spark
evaluates under try, so ``e`` itself is evaluated only where it cannot raise. ``e`` runs twice, so nondeterministic
expressions are refused; so is what needs other records than its own, since it would tear the lanes' order apart.
"""

from __future__ import annotations

import secrets
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

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.connectors.protocols import Shape

_DECODED = "__decoded"
_CORRUPT = "__corrupt"
_VALID = "__valid"


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
        raised = guard(f"CAST(({transform.where}) AS BOOLEAN)")
        branches.append(f"WHEN {raised} THEN {literal(ErrorType.FILTER_EVALUATION)}")
        branches.append(f"WHEN NOT coalesce(({transform.where}), false) THEN {literal(c.FILTERED)}")
        messages.append(f"WHEN {raised} THEN {literal('where failed: ' + transform.where)}")
        messages.append(f"WHEN NOT coalesce(({transform.where}), false) THEN NULL")
    if transform.select:
        for name, expression in outputs.items():
            raised = guard(f"({expression})")
            branches.append(f"WHEN {raised} THEN {literal(ErrorType.TRANSFORM_EVALUATION)}")
            messages.append(f"WHEN {raised} THEN {literal(f'select {name} failed: {expression}')}")
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
            f"CASE WHEN {rejected} THEN {original} END AS {c.ORIGINAL}",
            *(f"CASE WHEN {deliver} THEN ({e}) END AS {quote(name)}" for name, e in outputs.items()),
        ],
        pipeline,
    )


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
    frame = _project(frame, [*_quoted(c.CONTROL), f"{original} AS {c.ORIGINAL}"], pipeline)
    return *_decode(frame, pipeline, shape), c.ORIGINAL


def guard(expression: str) -> str:
    """SQL that is true where evaluating ``expression`` raises, and never raises itself."""
    return f"try_to_binary(cast(isnull({expression}) AS string), 'utf-8') IS NULL"


def quote(name: str) -> str:
    """A column's name as a SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A text as a SQL literal; Spark would replace ``${x}`` by a variable."""
    escaped = str(text).replace("\\", "\\\\").replace("'", "\\'").replace("${", "$\\{")
    return "'" + escaped.replace("\n", "\\n").replace("\r", "\\r") + "'"


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


_CALLING = "An error occurred while calling "
"""How the text of an error from the JVM begins for which Spark has no Python class; what is wrong comes after it."""


def first_line(error: BaseException) -> str:
    """The first line of an error's text, which in Spark's carries the error class and the reason."""
    lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith(_CALLING)]
    return lines[0].strip(": ") if lines else type(error).__name__


def _decode(
    frame: DataFrame, pipeline: Pipeline, shape: Shape
) -> tuple[DataFrame, list[str], list[tuple[str, str, str]]]:
    """Parse the original value into the schema's columns; the checks say which records are not what it promises.

    What else the source gives (a message's key, headers and timestamp) can be named beside them, but is put out only
    where ``select`` says so.
    """
    transform = pipeline.transform
    assert transform.schema_ is not None
    names = [item.name for item in parse_schema(transform.schema_, pipeline.name).fields]
    text = f"cast({c.ORIGINAL}.value AS string)"
    schema = literal(f"{transform.schema_}, {_CORRUPT} string")
    options = f"'mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '{_CORRUPT}'"
    if transform.decode == "json":
        # from_json takes trailing text, duplicate keys and lone surrogates. An array of the record and a number that
        # nobody can guess is a strict document with that number second only if the record is exactly one strict value.
        sentinel = secrets.randbits(62)
        wrapped = f"concat('[', {text}, ',{sentinel}]')"
        strict = f"try_variant_get(try_parse_json({wrapped}), '$[1]', 'bigint') <=> {sentinel}"
        what = "not one JSON object that fits the schema"
    else:
        # RFC 4180: a quote inside quotes is doubled. An empty line has no fields, and from_csv would make it all nulls.
        strict = "true" if len(names) == 1 else f"{text} <> ''"
        what = "not a CSV record that fits the schema"
    parsed = _parser(pipeline, text, schema, options)
    decoded = _project(
        frame,
        [*_quoted(frame.columns), f"is_valid_utf8({text}) AND {strict} AS {_VALID}", f"{parsed} AS {_DECODED}"],
        pipeline,
    )
    fields = [f"{_DECODED}.{quote(name)} AS {quote(name)}" for name in names]
    taken = {"value", *(name.lower() for name in names)}
    fields += [f"{c.ORIGINAL}.{quote(name)} AS {quote(name)}" for name, _ in shape.columns if name not in taken]
    flat = _project(
        decoded,
        [
            *_quoted(frame.columns),
            f"coalesce({_VALID} AND {_DECODED} IS NOT NULL AND {_DECODED}.{_CORRUPT} IS NULL, false) AS {_VALID}",
            *fields,
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
        (f"NOT is_valid_utf8({text})", str(ErrorType.MESSAGE_DESERIALIZATION), "not valid UTF-8"),
        (f"NOT {_VALID}", str(ErrorType.MESSAGE_DESERIALIZATION), what),
    ]
    if transform.decode == "json" and pipeline.error_handling.missing_field_behavior != "null":
        absent = " OR ".join(f"{quote(name)} IS NULL" for name in names)
        wanted = "array(" + ", ".join(literal(name) for name in names) + ")"
        missing = f"({absent}) AND size(array_except({wanted}, json_object_keys({text}))) > 0"
        skip = pipeline.error_handling.missing_field_behavior == "skip"
        verdict = c.FILTERED if skip else str(ErrorType.JSON_PATH_NOT_FOUND)
        checks.append((missing, verdict, "a field of the schema is missing"))
    return flat, names, checks + _null_checks(pipeline, names)


def _parser(pipeline: Pipeline, text: str, schema: str, options: str) -> str:
    """SQL that parses a text as the pipeline says."""
    transform = pipeline.transform
    if transform.decode == "json":
        return f"from_json({text}, {schema}, map({options}))"
    delimiter = literal(transform.delimiter.replace("\\", "\\\\"))
    return f"from_csv({text}, {schema}, map({options}, 'sep', {delimiter}, 'escape', '\"'))"


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
