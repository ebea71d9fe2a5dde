"""Apply the transform as SQL projections: decoding, ``where`` and ``select``, with a verdict for every record.

No record is dropped, and none can fail the batch: an expression that would raise an error is evaluated "under try" and
yields null. Nondeterministic expressions are refused: they may be evaluated more than once, and a record that is read
again must give the same result. Expressions that need other records, such as aggregates, are refused too, since they
would destroy the order of the lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import ErrorType
from airflow_provider_ckpt.spark import columns as c
from airflow_provider_ckpt.spark.sql import cannot_raise, enclosed, literal, quote
from airflow_provider_ckpt.spark.transform import determinism, original_columns, out_of_range_times
from airflow_provider_ckpt.spark.transform.declared_columns import check_outputs, check_where
from airflow_provider_ckpt.spark.transform.decode import decode, has_short_decimals, parser_sql, raw_column
from airflow_provider_ckpt.spark.transform.null_values import null_value_checks
from airflow_provider_ckpt.spark.transform.projection import error_class, project, quoted
from airflow_provider_ckpt.spark.transform.record_check import RecordCheck
from airflow_provider_ckpt.spark.transform.refused_columns import refused_column_checks
from airflow_provider_ckpt.spark.transform.try_expressions import VALUE, try_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.connectors.source_protocol import RecordShape

_WANTED, _JUDGED = "__wanted", "__judged"


def apply(frame: DataFrame, pipeline: Pipeline, shape: RecordShape) -> DataFrame:
    """Return the records with their verdicts and, if they are to be delivered, the values of the output columns.

    A verdict (:data:`VERDICT`) is null for a record to deliver, else ``filtered`` or an error. The control columns are
    described in ``spark/columns.py``.

    :param frame: data frame with the control columns, then the source's columns; marker rows are passed on
    :param pipeline: the pipeline's declaration
    :param shape: names and types of the source's columns
    :return: control columns, :data:`VERDICT`, :data:`ORIGINAL`, then the output columns
    :raises ConfigError: if Spark cannot use an expression of the transform
    """
    transform = pipeline.transform
    carried = pipeline.source.read_by_spark
    original = original_columns.packed_sql(shape, raw_column if transform.decode else quote, included=carried)
    frame, names, checks = _input_columns(frame, pipeline, shape)
    outputs = _outputs(pipeline, names, shape)

    tried = {name: f"__tried_{at}" for at, (name, e) in enumerate(outputs.items()) if not cannot_raise(e)}
    select = {at: (name, outputs[name]) for name, at in tried.items()}
    judged = _with_verdicts(frame, pipeline, checks, refused_column_checks(shape), select)

    deliver = f"{c.MARKER} IS NULL AND {c.VERDICT} IS NULL"
    rejected = f"{c.VERDICT} IS NOT NULL AND {c.VERDICT} <> '{c.FILTERED}'"
    with_originals = f"{c.MARKER} IS NULL" if carried else rejected
    placeholder = original_columns.placeholder_sql(shape, included=carried)
    values = {
        name: f"{tried[name]}.{VALUE}" if name in tried else f"CASE WHEN {deliver} THEN {enclosed(e)} END"
        for name, e in outputs.items()
    }
    return project(
        judged,
        [
            *quoted(c.CONTROL),
            c.VERDICT,
            f"CASE WHEN {with_originals} THEN {original} ELSE {placeholder} END AS {c.ORIGINAL}",
            *(f"{value} AS {quote(name)}" for name, value in values.items()),
        ],
        pipeline,
    )


def _outputs(pipeline: Pipeline, names: list[str], shape: RecordShape) -> dict[str, str]:
    """Return the SQL expression of each output column, by column name.

    :param pipeline: the pipeline's declaration
    :param names: columns to output if the pipeline has no ``select``: unchanged, or as null if the policy of schema
        changes refuses the column
    :param shape: names and types of the source's columns
    """
    null = {name: f"CAST(NULL AS {kind})" for name, (kind, _) in shape.refused.items()}
    return dict(pipeline.transform.select or {name: null.get(name, quote(name)) for name in names})


def _with_verdicts(
    frame: DataFrame,
    pipeline: Pipeline,
    checks: Sequence[RecordCheck],
    last: Sequence[RecordCheck],
    select: Mapping[str, tuple[str, str]],
) -> DataFrame:
    """Return the records with a verdict column, and a temporary column with the value of each ``select`` expression.

    :param frame: data frame with the control columns, then the columns that expressions may use
    :param pipeline: the pipeline's declaration
    :param checks: checks that a record must pass before ``where`` and ``select`` are evaluated for it
    :param last: checks of the records that ``where`` keeps
    :param select: by temporary column name, the name of an output column and its expression, which may raise an error
    """
    where = pipeline.transform.where
    trials = {_WANTED: (f"{c.MARKER} IS NULL", _as_boolean(where))} if where else {}
    trials |= {at: (f"{c.MARKER} IS NULL AND {_JUDGED} IS NULL", e) for at, (_, e) in select.items()}
    columns = dict(zip(trials, try_columns(frame, trials, pipeline), strict=True))

    before = _branches(checks)
    if where:
        before.append(
            f"WHEN {_WANTED} IS NULL THEN {_verdict_sql(ErrorType.FILTER_EVALUATION, f'where failed: {where}')}"
        )
        before.append(f"WHEN NOT coalesce({_WANTED}.{VALUE}, false) THEN {literal(c.FILTERED)}")
    before += _branches(last)
    after = [f"WHEN {_JUDGED} IS NOT NULL THEN {_JUDGED}"]
    for at, (name, expression) in select.items():
        failed = _verdict_sql(ErrorType.TRANSFORM_EVALUATION, f"select {name} failed: {expression}")
        after.append(f"WHEN {at} IS NULL THEN {failed}")
    first = [columns.pop(_WANTED)] if where else []
    judged, verdict = f"{_first_verdict(before)} AS {_JUDGED}", f"{_first_verdict(after)} AS {c.VERDICT}"
    return project(frame, ["*", *first, judged, *columns.values(), verdict], pipeline)


def _branches(checks: Sequence[RecordCheck]) -> list[str]:
    """Return a ``WHEN … THEN …`` branch for each check, with the verdict of a record that fails it."""
    return [f"WHEN {check.failed} THEN {_verdict_sql(check.verdict, check.message)}" for check in checks]


def _as_boolean(where: str) -> str:
    """Return SQL that casts the condition ``transform.where`` to a boolean."""
    return f"CAST({enclosed(where)} AS BOOLEAN)"


def _first_verdict(branches: list[str]) -> str:
    """Return a SQL ``CASE`` that yields the first verdict that applies to a record; null if none applies.

    Marker rows, which end batches, get null too.

    :param branches: ``WHEN … THEN …`` branches in the order in which they apply
    """
    return " ".join(["CASE", f"WHEN {c.MARKER} IS NOT NULL THEN CAST(NULL AS string)", *branches, "END"])


def _verdict_sql(kind: str, message: str) -> str:
    """Return a verdict as a SQL literal, such as ``'Processing a field is null'``; ``filtered`` has no message.

    :param kind: error type, or ``filtered``
    :param message: message of the error
    """
    return literal(kind if kind == c.FILTERED else f"{kind} {message}")


def check(frame: DataFrame, pipeline: Pipeline, shape: RecordShape) -> StructType:
    """Return the output columns of a transform; raise an error if it contains an expression that is not allowed.

    :param frame: empty data frame with the control columns, then the source's columns
    :param pipeline: the pipeline's declaration
    :param shape: names and types of the source's columns
    :raises ConfigError: if an expression does not parse, names an unknown column, is nondeterministic, or needs other
        records
    """
    frame, names, _ = _input_columns(frame, pipeline, shape)
    where = {"where": pipeline.transform.where} if pipeline.transform.where else {}
    select = {f"select.{name}": expression for name, expression in (pipeline.transform.select or {}).items()}
    wanted = where | select
    for name, expression in wanted.items():
        found = determinism.varying_part(expression, frame.columns)
        if found:
            raise error_class(f"transform.{name}")(
                f"transform.{name} depends on {found}, which is not the same whenever it is evaluated: {expression}",
                pipeline=pipeline.name,
                hint="A record that is read again must give the same result; take such values from the source.",
            )
    if wanted and not determinism.all_deterministic(frame, wanted.values()):
        for name, expression in wanted.items():
            key = f"transform.{name}"
            for form in (expression, f"{enclosed(expression)} AS checked"):
                project(frame, [form], pipeline, key, analyse=True)
            problem = determinism.why_refused(frame, expression)
            if problem:
                what, hint = problem
                raise error_class(key)(f"{key} {what}: {expression}", pipeline=pipeline.name, hint=hint)
    if pipeline.transform.where:
        checked = project(
            frame, [f"{enclosed(pipeline.transform.where)} AS checked"], pipeline, "transform.where", analyse=True
        )
        check_where(checked.schema.fields[0].dataType, pipeline.name, pipeline.transform.where)
    outputs = [f"{enclosed(e)} AS {quote(name)}" for name, e in _outputs(pipeline, names, shape).items()]
    given = project(frame, outputs, pipeline, analyse=True).schema
    if select:
        check_outputs(given, pipeline.name, "transform.select")
    return given


def frames_without_try(
    frame: DataFrame, pipeline: Pipeline, shape: RecordShape, kind: ErrorType
) -> Iterator[DataFrame]:
    """Yield data frames that evaluate the failed step for a rejected record again, without suppressing errors.

    Executing one of them makes Spark raise the error that the transform suppressed.

    :param frame: data frame with the rejected record only: control columns, then the source's columns
    :param pipeline: the pipeline's declaration
    :param shape: names and types of the source's columns
    :param kind: error type of the record, which shows the step that failed: decoding, ``where`` or ``select``
    """
    transform = pipeline.transform
    if kind is ErrorType.MESSAGE_DESERIALIZATION and transform.decode:
        text = "cast(value AS string)"
        parsed = parser_sql(pipeline, text, literal(transform.schema_ or ""), "'mode', 'FAILFAST'")
        bearable = has_short_decimals(frame.sparkSession, pipeline, text)
        parsed = f"CASE WHEN {bearable} THEN {parsed} END" if bearable else parsed
        yield project(frame, [f"{parsed} AS checked"], pipeline)
    frame, _, _ = _input_columns(frame, pipeline, shape)
    if kind is ErrorType.FILTER_EVALUATION and transform.where:
        yield project(frame, [f"{_as_boolean(transform.where)} AS checked"], pipeline)
    if kind is ErrorType.TRANSFORM_EVALUATION:
        for expression in (transform.select or {}).values():
            yield project(frame, [f"{enclosed(expression)} AS checked"], pipeline)


def _input_columns(
    frame: DataFrame, pipeline: Pipeline, shape: RecordShape
) -> tuple[DataFrame, list[str], list[RecordCheck]]:
    """Decode the records if the pipeline declares it, and collect the checks that each record must pass.

    :param frame: data frame with the control columns, then the source's columns
    :param pipeline: the pipeline's declaration
    :param shape: names and types of the source's columns
    :return: data frame with the columns that expressions may use; names of the columns that are output if the pipeline
        has no ``select``; the checks
    """
    if pipeline.transform.decode:
        frame, names, checks = decode(frame, pipeline, shape)
        taken = {name.lower() for name in names}
        checks += [check for name, check in _time_checks(pipeline, shape, raw_column) if name.lower() not in taken]
    else:
        names = [name for name, _ in shape.outputs]
        checks = [*_text_checks(pipeline, shape), *(check for _, check in _time_checks(pipeline, shape, quote))]
    return frame, names, [*checks, *null_value_checks(pipeline, names)]


def _text_checks(pipeline: Pipeline, shape: RecordShape) -> list[RecordCheck]:
    """Return, for each text column of a source of files, a check that the text is valid UTF-8.

    Other sources need no such check, since databases do not contain invalid text.

    :param pipeline: the pipeline's declaration
    :param shape: names and types of the source's columns
    """
    texts = [name for name, kind in shape.columns if kind == "string"] if pipeline.source.may_lack_columns else []
    return [
        RecordCheck(
            f"NOT is_valid_utf8({quote(name)})", ErrorType.MESSAGE_DESERIALIZATION, f"{name} is not valid UTF-8"
        )
        for name in texts
    ]


def _time_checks(
    pipeline: Pipeline, shape: RecordShape, column: Callable[[str], str]
) -> Iterator[tuple[str, RecordCheck]]:
    """Yield the name of each source column with dates or times, and a check that Spark can represent its value.

    :param pipeline: the pipeline's declaration
    :param shape: names and types of the source's columns
    :param column: function that returns SQL for the source column of a name
    """
    for found in out_of_range_times.time_range_checks(pipeline, shape):
        yield found.name, RecordCheck(found.failed(column(found.name)), ErrorType.SERIALIZATION, found.message)
