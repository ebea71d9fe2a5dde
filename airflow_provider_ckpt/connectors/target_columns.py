"""Refuse a batch's columns if the target table lacks one, requires another, or cannot store all values without loss."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from airflow_provider_ckpt.core.errors import ConfigError


def refuse_unknown_columns(target: str, names: Sequence[str], known: Collection[str], pipeline: str) -> None:
    """Raise ConfigError if a target lacks columns of the rows.

    :param target: schema and name of the target, for the message
    :param names: names of the rows' columns
    :param known: names of the target's columns
    :param pipeline: the pipeline's name, for the message
    """
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigError(
            f"target {target} has no column {', '.join(unknown)}; it has {', '.join(known)}",
            pipeline=pipeline,
            hint="Name the target's columns in transform.select, or add them to the target.",
        )


def refuse_required_columns(target: str, names: Sequence[str], required: Sequence[str], pipeline: str) -> None:
    """Raise ConfigError if a target requires columns that the rows do not have.

    :param target: schema and name of the target, for the message
    :param names: names of the rows' columns
    :param required: names of the required columns that the rows do not have; empty if there are none
    :param pipeline: the pipeline's name, for the message
    """
    if required:
        raise ConfigError(
            f"target {target} requires {', '.join(required)} (NOT NULL, no default); the rows have {', '.join(names)}",
            pipeline=pipeline,
            hint="Add the columns to transform.select, or give them a default.",
        )


def refuse_losses(target: str, losses: Sequence[str], pipeline: str) -> None:
    """Raise ConfigError if a target cannot store all values of the rows without loss.

    :param target: schema and name of the target, for the message
    :param losses: part of the error message for each column that cannot store all values, such as ``n is bigint in the
        rows and integer in the target``; empty if there is none
    :param pipeline: the pipeline's name, for the message
    """
    if losses:
        raise ConfigError(
            f"target {target} cannot store all values of the rows without loss: {'; '.join(losses)}",
            pipeline=pipeline,
            hint="To accept the loss, write an explicit cast in transform.select.",
        )
