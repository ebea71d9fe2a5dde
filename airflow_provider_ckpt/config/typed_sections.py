"""Validate the sections ``source`` and ``sink`` by the pydantic model that the connector of their ``type`` provides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, SerializeAsAny, TypeAdapter, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from airflow_provider_ckpt.config.characters import for_message, non_ascii_clause
from airflow_provider_ckpt.config.connector_section import ConnectorSection
from airflow_provider_ckpt.config.installed_connectors import (
    ConnectorError,
    UnknownTypeError,
    find_connector,
    installed_connectors,
    types_with,
)
from airflow_provider_ckpt.config.sink import SinkSection
from airflow_provider_ckpt.config.source import SourceSection

Side = Literal["source", "sink"]


def section_model(side: Side, kind: str) -> type[ConnectorSection]:
    """Return the model of the section ``source`` or ``sink`` for a type.

    :param side: name of the section
    :param kind: the type, such as ``kafka``
    :raises UnknownTypeError: if there is no such type of source or sink
    :raises ConnectorError: if its connector is broken, or two distributions claim the type
    """
    found = getattr(find_connector(kind), side)
    if found is None:
        raise UnknownTypeError(f"the connector of type {kind} has no {side}")
    model: type[ConnectorSection] = found.section
    return model


def model_for(model: type[ConnectorSection], data: object) -> type[ConnectorSection]:
    """Return the model by which the data of a section is validated: that of the data's ``type``.

    :param model: base class of the section's models
    :param data: the section's data
    :return: ``model`` itself if the data names no known type, or the type's connector is broken
    """
    kind = data.get("type") if isinstance(data, Mapping) else None
    try:
        return section_model(model.side, kind) if isinstance(kind, str) else model
    except ConnectorError:
        return model


def models_of_all_types(side: Side) -> dict[str, type[ConnectorSection]]:
    """Return the model of every installed type of source or sink, by type; broken connectors are left out.

    :param side: name of the section
    """
    found = ((kind, getattr(connector, side)) for kind, connector in installed_connectors())
    return {kind: part.section for kind, part in found if part is not None}


def unknown_type_text(value: object, known: Sequence[str]) -> str:
    """Return the text of the error for a type that is not installed, with the supported values.

    :param value: the value of the key ``type``
    :param known: the supported values
    """
    word = for_message(value)
    given = "an empty value" if value is None else f"'{word}'"
    close = get_close_matches(word, known, 1)
    remedy = (
        f"did you mean {close[0]}?"
        if close
        else "for another one, install the distribution with its connector (pip install)"
    )
    return f"{given} is not supported; supported: {', '.join(known)}{non_ascii_clause(word)}; {remedy}"


def _validate(data: object, side: Side) -> object:
    """Return the section that a mapping declares, as an instance of the model of its type.

    Data that is not a mapping is returned unchanged: it is an instance of a model already, or pydantic reports it as an
    error.

    :param data: the section's data
    :param side: name of the section
    :raises ValidationError: if the type is missing or not supported, or the data is invalid
    """
    if not isinstance(data, Mapping):
        return data
    if "type" not in data:
        raise _error(side, [_missing_type(data), *_unknown_keys(side, data)])
    kind = data["type"]
    try:
        model = section_model(side, kind) if isinstance(kind, str) else None
    except UnknownTypeError:
        model = None
    if model is None:
        text = unknown_type_text(kind, types_with(side))
        raise _error(side, [_detail("connector_type", text, kind)])
    return model.model_validate(_without_defaults_of_other_types(side, model, data))


def _without_defaults_of_other_types(
    side: Side, model: type[ConnectorSection], data: Mapping[Any, Any]
) -> Mapping[Any, Any]:
    """Return the data of a section without keys of other types that have no effect: null, empty or default values.

    Declarations that were stored when all types shared one model contain such keys.

    :param side: name of the section
    :param model: the model of the section's type
    :param data: the section's data
    """
    foreign = [key for key in data if key not in model.model_fields]
    if not foreign:
        return data
    others = models_of_all_types(side).values()
    silent = {key for key in foreign if any(_has_no_effect(other, key, data[key]) for other in others)}
    return {key: value for key, value in data.items() if key not in silent}


def _has_no_effect(model: type[ConnectorSection], key: object, value: object) -> bool:
    """Return whether a key with a value has no effect: the value is null, empty, or the default in Python or JSON form.

    :param model: the model of a type
    :param key: name of a key; the result is False if the model does not have this key
    :param value: the value
    """
    field = model.model_fields.get(key) if isinstance(key, str) else None
    if field is None or value in (None, [], ()):
        return field is not None
    if field.is_required():
        return False
    default = field.get_default(call_default_factory=True)
    stored = TypeAdapter[Any](field.rebuild_annotation()).dump_python(default, mode="json")
    return value in (default, stored)


def _missing_type(data: Mapping[Any, Any]) -> InitErrorDetails:
    return {"type": "missing", "loc": ("type",), "input": data}


def _unknown_keys(side: Side, data: Mapping[Any, Any]) -> list[InitErrorDetails]:
    """Return an error for each key that no type has, for a section whose ``type`` is missing.

    :param side: name of the section
    :param data: the section's data
    """
    known = {key for model in models_of_all_types(side).values() for key in model.model_fields}
    return [{"type": "extra_forbidden", "loc": (key,), "input": data[key]} for key in data if key not in known]


def _detail(kind: Literal["connector_type"], text: str, given: object) -> InitErrorDetails:
    return {"type": PydanticCustomError(kind, "{text}", {"text": text}), "loc": ("type",), "input": given}


def _error(side: Side, details: list[InitErrorDetails]) -> ValidationError:
    return ValidationError.from_exception_data(side, details)


AnySourceSection = Annotated[SerializeAsAny[SourceSection], BeforeValidator(partial(_validate, side="source"))]
"""Annotation of a pipeline's section ``source``: pydantic validates and serialises it by the model of its ``type``."""

AnySinkSection = Annotated[SerializeAsAny[SinkSection], BeforeValidator(partial(_validate, side="sink"))]
"""Annotation of a pipeline's section ``sink``: pydantic validates and serialises it by the model of its ``type``."""
