"""Check that a user's acceptance of changed source columns (``accept_schema``) is still valid when a run applies it.

An acceptance contains the policy and the newest schema version that the user has seen. If either is different now, the
same columns would change the target in another way, so the run refuses the acceptance.
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
    """Return the SHA-256 digest of a policy of schema changes.

    An acceptance stores the digest of the policy that its user has seen.
    """
    return hashlib.sha256(json.dumps(asdict(policy), sort_keys=True).encode()).hexdigest()


def acceptance_note(actor: str, reason: str | None) -> str:
    """Return the note ``accepted by ACTOR: REASON``, which the accepted schema version stores.

    :param actor: the user who accepted the columns
    :param reason: the user's reason
    """
    return f"accepted by {actor}: {reason}"


def other_circumstances(
    action: Action, note: str, versions: Sequence[SchemaVersion], policy: SchemaPolicy
) -> str | None:
    """Return the reason why an acceptance of changed columns is no longer valid, as a sentence; None if it is valid.

    The acceptance is no longer valid if the section ``schema`` has changed since, or if another schema version has
    begun. Versions that result from the acceptance itself do not count: one acceptance may lead to two versions, for
    example first one without a dropped column, then one with a new column.

    :param action: the acceptance
    :param note: the note of this acceptance, as :func:`acceptance_note` returns it
    :param versions: all schema versions of the source partition
    :param policy: the policy that the run's declaration contains now
    """
    if action.policy != policy_digest(policy):
        return "the section schema of the declaration has changed since the columns were accepted."
    later = [found for found in versions if found.number > (action.version or 0)]
    other = next((found for found in later if note not in found.decision[-1:]), None)
    if other is not None:
        return f"schema version {other.number} has begun since the columns were accepted."
    return None
