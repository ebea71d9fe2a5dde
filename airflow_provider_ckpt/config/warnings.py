"""Warnings about keys of a declaration that have no effect, or another effect than their names suggest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflow_provider_ckpt.config.characters import mixed_alphabets, shown
from airflow_provider_ckpt.config.delivery import LetterPlace, Part
from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.config.schedule import Shape

_OF_A_PLACE = {
    "connection": (LetterPlace.KAFKA, LetterPlace.POSTGRES, LetterPlace.FILES),
    "topic": (LetterPlace.KAFKA,),
    "compression": (LetterPlace.KAFKA,),
    "table": (LetterPlace.POSTGRES,),
    "path": (LetterPlace.FILES,),
}
"""Keys of ``dead_letter_queue`` that apply only to some destinations."""

_OF_A_SOURCE = {
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
"""Keys of ``source`` that apply only to some types."""

_OF_A_SINK = {
    "table": ("postgres", "iceberg"),
    "path": ("delta", "files"),
    "topic": ("kafka",),
    "format": ("files",),
    "files_may_go": ("files",),
}
"""Keys of ``sink`` that apply only to some types."""


_NAMES = ("connection", "table", "topic", "cursor", "key", "columns")
"""Keys whose values are names."""


def warnings(pipeline: Pipeline) -> list[str]:
    """Return the warnings about a declaration, one line each."""
    return [
        *_of_policy(pipeline),
        *_of_another_place(pipeline),
        *_of_another_type("source", pipeline.source, pipeline.source.type, _OF_A_SOURCE),
        *_of_another_type("sink", pipeline.sink, pipeline.sink.type, _OF_A_SINK),
        *_without_effect(pipeline),
        *_of_mixed_alphabets(pipeline),
    ]


def _of_policy(pipeline: Pipeline) -> Iterator[str]:
    commit = pipeline.commit_strategy
    if not commit.manual_commit:
        yield (
            "commit_strategy.manual_commit: false settles by timer, every "
            f"{commit.auto_commit_interval_ms} ms; work is never committed before its verdict here, "
            "so it guarantees more than its name says"
        )
    if _chosen(pipeline.error_handling, "cache_failure_behavior"):
        yield (
            "error_handling.cache_failure_behavior is kept for compatibility and has no effect: "
            "there are no lookups here"
        )


def _of_another_place(pipeline: Pipeline) -> Iterator[str]:
    """Yield warnings about keys of a dead letter destination that is not used."""
    queue = pipeline.dead_letter_queue
    same = queue.sink is LetterPlace.SAME
    place = LetterPlace.KAFKA if same and pipeline.sink.type == "kafka" else queue.sink
    for key, places in _OF_A_PLACE.items():
        if place in places and not (same and key == "connection"):
            continue
        if _chosen(queue, key):
            where = f"beside the {pipeline.sink.type} target" if same else f"to dead_letter_queue.sink: {queue.sink}"
            yield f"dead_letter_queue.{key} has no effect: dead letters go {where}"


def _of_another_type(name: str, part: Part, kind: str, types: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Yield warnings about keys of a source or sink of another type."""
    for key, of in types.items():
        if kind not in of and _chosen(part, key):
            yield f"{name}.{key} has no effect on a {kind} {name}"


def _without_effect(pipeline: Pipeline) -> Iterator[str]:
    source, decode = pipeline.source, pipeline.transform.decode
    if pipeline.transform.schema_ and not decode and not source.columnar:
        yield "transform.schema has no effect without transform.decode"
    if _chosen(pipeline.error_handling, "missing_field_behavior") and decode != "json" and not source.columnar:
        why = "CSV is decoded by position" if decode == "csv" else f"a {source.type} source has every column"
        yield f"error_handling.missing_field_behavior has no effect: {why}"
    if _chosen(pipeline.recovery, "window") and source.type in ("kafka", "files"):
        yield f"recovery.window has no effect: a {source.type} source shows no record late"
    if pipeline.dag and pipeline.dag.deferrable is not None and pipeline.dag.shape is Shape.OPERATOR:
        yield "dag.deferrable has no effect on shape: operator, which waits in place; write shape: task_group"


def _of_mixed_alphabets(pipeline: Pipeline) -> Iterator[str]:
    """Yield warnings about names that look like others: a Cyrillic letter in a Latin word makes a different name."""
    parts = {"source": pipeline.source, "sink": pipeline.sink, "dead_letter_queue": pipeline.dead_letter_queue}
    for where, part in parts.items():
        for key in _NAMES:
            value = getattr(part, key, None) or ()
            for name in (value,) if isinstance(value, str) else value:
                found = mixed_alphabets(name)
                if found:
                    yield f"{where}.{key} mixes alphabets in one word: in {shown(name)} the {found}"


def _chosen(part: Part, key: str) -> bool:
    """Return whether a key differs from its default; a stored declaration does not show which keys were written."""
    return bool(getattr(part, key) != type(part).model_fields[key].default)
