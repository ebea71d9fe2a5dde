"""Query parameters that several routes share, and functions that parse them."""

from __future__ import annotations

from typing import Annotated

from fastapi import HTTPException, Query

from airflow_provider_ckpt.core.batch_key import BatchKey

Cursor = Annotated[str | None, Query(max_length=4000)]
Limit = Annotated[int, Query(ge=1, le=200)]
Text = Annotated[str | None, Query(max_length=2000)]
Texts = Annotated[list[str], Query(max_length=50)]
PositionText = Annotated[str | None, Query(pattern="^-?[0-9]{1,19}$")]


def batch_key(name: str) -> BatchKey:
    """Return the key of a batch from its name.

    :param name: the name, such as ``orders-0#17``
    :raises HTTPException: with status 422 if the text is not a batch's name
    """
    try:
        return BatchKey.parse(name)
    except ValueError as error:
        raise HTTPException(422, f"{error}.") from error


def position(text: str | None) -> int | None:
    """Return a position from a query parameter; None without the parameter.

    :param text: the position in decimal digits
    :raises HTTPException: with status 422 if the position does not fit 64 bits
    """
    if text is None:
        return None
    value = int(text)
    if not -(2**63) <= value < 2**63:
        raise HTTPException(422, f"{text} is not a position: it needs more than 64 bits.")
    return value
