"""Check that an acceptance of changed columns still does what the user was shown when accepting them.

A run refuses it if the declared policy or the newest schema version is not the one of that moment.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict

from airflow_provider_ckpt.core.action import Action
from airflow_provider_ckpt.core.schema_policy import SchemaPolicy
from airflow_provider_ckpt.core.schema_version import SchemaVersion


def policy_digest(policy: SchemaPolicy) -> str:
    """Return the SHA-256 digest of a policy, which the action of an acceptance contains."""
    return hashlib.sha256(json.dumps(asdict(policy), sort_keys=True).encode()).hexdigest()


def acceptance_note(actor: str, reason: str | None) -> str:
    """Return a note on who accepted changed columns and why, ``accepted by ACTOR: REASON``, for the schema version."""
    return f"accepted by {actor}: {reason}"


def other_circumstances(
    action: Action, note: str, versions: Sequence[SchemaVersion], policy: SchemaPolicy
) -> str | None:
    """Return why an acceptance no longer does what its user has seen; None if it does.

    The same columns change the target otherwise under another policy, or after another version. Versions that follow
    the acceptance itself are no others: a new column may get a version after that of a dropped one.

    :param action: the acceptance
    :param note: what :func:`acceptance_note` returns for it
    :param versions: all versions of the source's columns
    :param policy: policy of the run's declaration
    """
    if action.policy != policy_digest(policy):
        return "the section schema of the declaration has changed since the columns were accepted."
    later = [found for found in versions if found.number > (action.version or 0)]
    other = next((found for found in later if note not in found.decision[-1:]), None)
    if other is not None:
        return f"schema version {other.number} has begun since the columns were accepted."
    return None
