"""Reject an unknown key of a declaration with an error that names the nearest known key (semantics, section 7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel

from airflow_provider_ckpt.config.characters import for_message, non_ascii_clause

KeyPath = tuple[str | int, ...]
"""Path of a value in a declaration: keys and list indexes, from the top, such as ``("retry", "jitter")``."""


def unknown_key_text(model: type[BaseModel], path: KeyPath) -> str:
    """Return the text of the error for an unknown key, with the nearest known key, or all keys that are known there.

    A key that another section knows is named with the path of that section.

    :param model: the model of the whole declaration
    :param path: path of the unknown key
    """
    owner = _model_at(model, path[:-1]) or model
    key = for_message(path[-1])
    elsewhere = [dotted for dotted in _dotted_keys(model) if dotted.rpartition(".")[2] == key]
    known = list(_keys(owner))
    if elsewhere and not get_close_matches(key, known, 1, 0.8):
        return f"unknown key here; did you mean {elsewhere[0]}?"
    return f"unknown key; {suggestion(key, known)}{non_ascii_clause(key)}"


def suggestion(word: str, known: Sequence[str]) -> str:
    """Return the clause ``did you mean …?`` with the known word nearest to a misspelt one; without one, list all."""
    by_form = {_normalized(name): name for name in known}
    close = get_close_matches(_normalized(word), by_form, 1)
    return f"did you mean {by_form[close[0]]}?" if close else f"known here: {', '.join(known)}"


def _normalized(word: str) -> str:
    return word.lower().replace("-", "_")


def _keys(model: type[BaseModel]) -> Iterator[str]:
    return (field.alias or name for name, field in model.model_fields.items())


def _dotted_keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield every key of a model and of its nested sections as a dotted path, such as ``retry.jitter``.

    :param model: the model of a section or of the whole declaration
    :param prefix: path of the model with a dot at its end; empty for the whole declaration
    """
    for key in _keys(model):
        yield prefix + key
        part = _model_at(model, (key,))
        if part:
            yield from _dotted_keys(part, f"{prefix}{key}.")


def annotation_at(model: type[BaseModel], path: KeyPath) -> Any:
    """Return the type annotation of the key at a path; None if there is no such key."""
    owner = _model_at(model, path[:-1])
    for name, field in owner.model_fields.items() if owner else ():
        if (field.alias or name) == path[-1]:
            return field.annotation
    return None


def _model_at(model: type[BaseModel], path: KeyPath) -> type[BaseModel] | None:
    """Return the model of the section at a path, such as ``Retry`` for ``("retry",)``; None if it is not a section."""
    if not path:
        return model
    found = annotation_at(model, path)
    kinds = (found, *get_args(found))  # an optional part is a union with None
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
