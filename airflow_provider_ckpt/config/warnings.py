"""Warnings about keys of a declaration that have no effect, or another effect than their names suggest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflow_provider_ckpt.config.characters import for_message, mixed_alphabet_clause
from airflow_provider_ckpt.config.delivery import DeadLetterDestination
from airflow_provider_ckpt.config.fields import Section
from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.config.schedule import DagShape

_DESTINATIONS_OF_KEYS = {
    "connection": (DeadLetterDestination.KAFKA, DeadLetterDestination.POSTGRES, DeadLetterDestination.FILES),
    "topic": (DeadLetterDestination.KAFKA,),
    "compression": (DeadLetterDestination.KAFKA,),
    "table": (DeadLetterDestination.POSTGRES,),
    "path": (DeadLetterDestination.FILES,),
}
"""Keys of ``dead_letter_queue`` that apply only to some destinations, with these destinations."""

_SOURCE_TYPES_OF_KEYS = {
    "table": ("postgres", "jdbc"),
    "path": ("files",),
    "format": ("files",),
    "follow_links": ("files",),
    "topic": ("kafka",),
    "cursor": ("postgres", "jdbc"),
    "key": ("postgres",),
    "columns": ("postgres", "jdbc"),
    "close_wait": ("postgres", "jdbc"),
    "late_rows": ("postgres",),
    "jars": ("jdbc",),
}
"""Keys of ``source`` that apply only to some types of source, with these types."""

_SINK_TYPES_OF_KEYS = {
    "table": ("postgres", "iceberg"),
    "path": ("delta", "files"),
    "topic": ("kafka",),
    "format": ("files",),
    "files_may_go": ("files",),
}
"""Keys of ``sink`` that apply only to some types of sink, with these types."""


_NAMING_KEYS = ("connection", "table", "topic", "cursor", "key", "columns")
"""Keys whose values are names, in which letters of different alphabets are probably a mistake."""


def warnings(pipeline: Pipeline) -> list[str]:
    """Return the warnings about a valid declaration, one line each; empty if there are none."""
    return [
        *_policy_warnings(pipeline),
        *_other_destination_warnings(pipeline),
        *_other_type_warnings("source", pipeline.source, pipeline.source.type, _SOURCE_TYPES_OF_KEYS),
        *_other_type_warnings("sink", pipeline.sink, pipeline.sink.type, _SINK_TYPES_OF_KEYS),
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
    """Yield a warning for each key of ``dead_letter_queue`` that has no effect on the chosen destination."""
    queue = pipeline.dead_letter_queue
    same = queue.sink is DeadLetterDestination.SAME
    destination = DeadLetterDestination.KAFKA if same and pipeline.sink.type == "kafka" else queue.sink
    for key, destinations in _DESTINATIONS_OF_KEYS.items():
        if destination in destinations and not (same and key == "connection"):
            continue
        if _differs_from_default(queue, key):
            where = f"beside the {pipeline.sink.type} target" if same else f"to dead_letter_queue.sink: {queue.sink}"
            yield f"dead_letter_queue.{key} has no effect: dead letters go {where}"


def _other_type_warnings(name: str, part: Section, kind: str, types: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Yield a warning for each key of a section that has no effect on the section's type of source or sink.

    :param name: the section's name: ``source`` or ``sink``
    :param part: the section
    :param kind: the section's type, such as ``kafka``
    :param types: for each key that does not apply to every type, the types to which it applies
    """
    for key, of in types.items():
        if kind not in of and _differs_from_default(part, key):
            yield f"{name}.{key} has no effect on a {kind} {name}"


def _no_effect_warnings(pipeline: Pipeline) -> Iterator[str]:
    source, decode = pipeline.source, pipeline.transform.decode
    if pipeline.transform.schema_ and not decode and not source.is_parquet:
        yield "transform.schema has no effect without transform.decode"
    if (
        _differs_from_default(pipeline.error_handling, "missing_field_behavior")
        and decode != "json"
        and not source.is_parquet
    ):
        reason = "CSV is decoded by position" if decode == "csv" else f"a {source.type} source has every column"
        yield f"error_handling.missing_field_behavior has no effect: {reason}"
    if _differs_from_default(pipeline.recovery, "window") and source.type in ("kafka", "files"):
        yield f"recovery.window has no effect: a {source.type} source never shows records late"
    if pipeline.dag and pipeline.dag.deferrable is not None and pipeline.dag.shape is DagShape.OPERATOR:
        yield "dag.deferrable has no effect with dag.shape: operator, whose task never defers; write shape: task_group"


def _mixed_alphabet_warnings(pipeline: Pipeline) -> Iterator[str]:
    """Yield a warning for each name of a table, topic or column that mixes Latin with Cyrillic or Greek letters.

    Such a letter usually got there by mistake, because it looks like a Latin one.
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
