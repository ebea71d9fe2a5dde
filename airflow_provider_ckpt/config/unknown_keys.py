"""Reject an unknown key of a declaration with an error that names the nearest known key (semantics, section 7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from airflow_provider_ckpt.config.characters import for_message, non_ascii_clause
from airflow_provider_ckpt.config.connector_section import ConnectorSection
from airflow_provider_ckpt.config.typed_sections import model_for, models_of_all_types

KeyPath = tuple[str | int, ...]
"""Path of a value in a declaration: keys and list indexes, from the top, such as ``("retry", "jitter")``."""


def unknown_key_text(model: type[BaseModel], path: KeyPath, data: object) -> str:
    """Return the text of the error for an unknown key, with the nearest known key or, if none is near, all known keys.

    If no known key of this section resembles the key, but another section has it, the text names its path there. If
    only other types of source or sink have the key, the text names these types.

    :param model: the model of the whole declaration
    :param path: path of the unknown key
    :param data: the whole declaration
    """
    owner = _model_at(model, path[:-1], data) or model
    key = for_message(path[-1])
    if issubclass(owner, ConnectorSection) and "type" in _value_at(data, path[:-1]):
        kind, others = _value_at(data, path[:-1])["type"], models_of_all_types(owner.side)
        having = [name for name, other in others.items() if path[-1] in other.model_fields]
        if having:
            return f"a {for_message(kind)} {owner.side} has no such key, only {_listed(having)}; leave it out"
    elsewhere = [dotted for dotted in _dotted_keys(model, data) if dotted.rpartition(".")[2] == key]
    known = list(_keys(owner))
    if elsewhere and not get_close_matches(key, known, 1, 0.8):
        return f"unknown key here; did you mean {elsewhere[0]}?"
    return f"unknown key; {suggestion(key, known)}{non_ascii_clause(key)}"


def suggestion(word: str, known: Sequence[str]) -> str:
    """Return the end of an error message that suggests the most similar known word, or names all known words.

    For example: ``did you mean jitter?`` or, if no word is similar, ``known here: name, source, sink``.

    :param word: the misspelt word
    :param known: the known words
    """
    by_form = {_normalized(name): name for name in known}
    close = get_close_matches(_normalized(word), by_form, 1)
    return f"did you mean {by_form[close[0]]}?" if close else f"known here: {', '.join(known)}"


def _normalized(word: str) -> str:
    return word.lower().replace("-", "_")


def _keys(model: type[BaseModel]) -> Iterator[str]:
    return (field.alias or name for name, field in model.model_fields.items())


def _dotted_keys(model: type[BaseModel], data: object, prefix: str = "") -> Iterator[str]:
    """Yield every key that a model and its nested sections allow, as a dotted path such as ``retry.jitter``.

    :param model: the model of a section or of the whole declaration
    :param data: what the user wrote there; it only determines the types of source and sink, and so their models
    :param prefix: path of the model with a dot at its end; empty for the whole declaration
    """
    for key in _keys(model):
        yield prefix + key
        part = _model_at(model, (key,), data)
        if part:
            yield from _dotted_keys(part, _value_at(data, (key,)), f"{prefix}{key}.")


def annotation_at(model: type[BaseModel], path: KeyPath, data: object) -> Any:
    """Return the type annotation of the key at a path; None if there is no such key.

    :param model: the model of the whole declaration
    :param path: path of the key
    :param data: the whole declaration, which determines the types of source and sink
    """
    owner = _model_at(model, path[:-1], data)
    for name, field in owner.model_fields.items() if owner else ():
        if (field.alias or name) == path[-1]:
            return field.annotation
    return None


def _model_at(model: type[BaseModel], path: KeyPath, data: object) -> type[BaseModel] | None:
    """Return the model of the section at a path, such as ``Retry`` for ``("retry",)``; None if there is no section.

    :param model: the model of the whole declaration
    :param path: path of the section
    :param data: the whole declaration, which determines the types of source and sink
    """
    if not path:
        return model
    parent = annotation_at(model, path[:-1], data) if len(path) > 1 else None
    annotation = get_args(parent)[1] if get_origin(parent) is dict else annotation_at(model, path, data)
    if get_origin(annotation) is dict:  # its keys are names that the user chooses
        return None
    kinds = (annotation, *get_args(annotation))  # an optional part is a union with None
    found = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
    if found is not None and issubclass(found, ConnectorSection):
        return model_for(found, _value_at(data, path))
    return found


def _value_at(data: object, path: KeyPath) -> Any:
    """Return the mapping at a path of a declaration; an empty mapping if there is none."""
    for key in path:
        data = data.get(key, {}) if isinstance(data, Mapping) else {}
    return data if isinstance(data, Mapping) else {}


def _listed(kinds: Sequence[str]) -> str:
    """Return types as a list for a sentence, such as ``jdbc and postgres``."""
    return " and ".join(filter(None, [", ".join(kinds[:-1]), kinds[-1]]))
