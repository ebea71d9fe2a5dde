"""Model of the user who is signed in."""

from __future__ import annotations

from airflow_provider_ckpt.api.models.fields import ApiModel


class Me(ApiModel):
    """The user who sent the request.

    :param id: id of the user in Airflow
    :param name: name of the user; the audit log stores it as ``airflow:NAME``
    :param administrator: whether the user is an administrator, who may edit the Airflow connection of the ledger.
        Administrators may also see and act on pipelines that no DAG has planned
    """

    id: str
    name: str
    administrator: bool
