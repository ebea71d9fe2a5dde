"""Warn about keys of a declaration that have no effect, or another effect than their names suggest."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_provider_ckpt.config.characters import for_message, mixed_alphabet_clause
from airflow_provider_ckpt.config.delivery import SAME
from airflow_provider_ckpt.config.fields import Section
from airflow_provider_ckpt.config.installed_connectors import find_connector
from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.config.schedule import DagShape

_PLACE_KEYS = ("connection", "topic", "compression", "table", "path")
"""Keys of ``dead_letter_queue`` that have an effect only with some dead letter stores."""

_NAMING_KEYS = ("connection", "table", "topic", "cursor", "key", "columns")
"""Keys whose values are names. They are searched for letters of different alphabets in one name, probably a mistake."""


def warnings(pipeline: Pipeline) -> list[str]:
    """Return the warnings about a valid declaration, one line each; empty if there are none."""
    return [
        *_policy_warnings(pipeline),
        *_other_destination_warnings(pipeline),
        *_no_effect_warnings(pipeline),
        *_mixed_alphabet_warnings(pipeline),
    ]


def _policy_warnings(pipeline: Pipeline) -> Iterator[str]:
    commit = pipeline.commit_strategy
    if not commit.manual_commit:
        yield (
            "commit_strategy.manual_commit: false settles by timer, every "
            f"{commit.auto_commit_interval_ms} ms, but a position is still committed only after the records "
            "before it have a verdict"
        )
    if _differs_from_default(pipeline.error_handling, "cache_failure_behavior"):
        yield (
            "error_handling.cache_failure_behavior is accepted for compatibility and has no effect: "
            "a transform has no cache"
        )


def _other_destination_warnings(pipeline: Pipeline) -> Iterator[str]:
    """Yield a warning for each key of ``dead_letter_queue`` that has no effect with the declared dead letter store."""
    queue = pipeline.dead_letter_queue
    for key in _PLACE_KEYS:
        if key not in _applying_keys(pipeline) and _differs_from_default(queue, key):
            same = queue.sink == SAME
            where = f"beside the {pipeline.sink.type} target" if same else f"to dead_letter_queue.sink: {queue.sink}"
            yield f"dead_letter_queue.{key} has no effect: dead letters go {where}"


def _applying_keys(pipeline: Pipeline) -> tuple[str, ...]:
    """Return the keys of ``dead_letter_queue`` that have an effect with the declared dead letter store."""
    queue = pipeline.dead_letter_queue
    if queue.sink == SAME:
        sink = find_connector(pipeline.sink.type).sink
        return sink.dead_letter_keys if sink else ()
    store = find_connector(queue.sink).dead_letter_store
    return store.keys if store else ()


def _no_effect_warnings(pipeline: Pipeline) -> Iterator[str]:
    source, decode = pipeline.source, pipeline.transform.decode
    if pipeline.transform.schema_ and not decode and not source.may_lack_columns:
        yield "transform.schema has no effect without transform.decode"
    if (
        _differs_from_default(pipeline.error_handling, "missing_field_behavior")
        and decode != "json"
        and not source.may_lack_columns
    ):
        reason = "CSV is decoded by position" if decode == "csv" else f"a {source.type} source has every column"
        yield f"error_handling.missing_field_behavior has no effect: {reason}"
    if _differs_from_default(pipeline.recovery, "window") and not source.ordered_by_cursor:
        yield f"recovery.window has no effect: a {source.type} source never shows records late"
    if pipeline.dag and pipeline.dag.deferrable is not None and pipeline.dag.shape is DagShape.OPERATOR:
        yield "dag.deferrable has no effect with dag.shape: operator, whose task never defers; write shape: task_group"


def _mixed_alphabet_warnings(pipeline: Pipeline) -> Iterator[str]:
    """Yield a warning for each name of a table, topic or column that mixes Latin with Cyrillic or Greek letters.

    A Cyrillic or Greek letter in such a name is usually a mistake, because it looks like a Latin letter.
    """
    parts = {"source": pipeline.source, "sink": pipeline.sink, "dead_letter_queue": pipeline.dead_letter_queue}
    for where, part in parts.items():
        for key in _NAMING_KEYS:
            value = getattr(part, key, None) or ()
            for name in (value,) if isinstance(value, str) else value:
                found = mixed_alphabet_clause(name)
                if found:
                    yield f"{where}.{key} mixes alphabets in one word: in {for_message(name)} the {found}"


def _differs_from_default(part: Section, key: str) -> bool:
    """Return whether the value of a key in a section differs from the key's default."""
    return bool(getattr(part, key) != type(part).model_fields[key].default)
