"""Register the page *Replication* and its API with Airflow, by the plugin ``CkptPlugin``.

Airflow finds the plugin by the entry point ``airflow.plugins``, and imports it in every process. So this module imports
neither FastAPI nor SQLAlchemy, and creates the application only when the API server asks for it.
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Any

from airflow.plugins_manager import AirflowPlugin

_BUNDLE = Path(__file__).parent / "ui" / "bundle"
_FILE = "page.umd.js"
_STATIC = "ckpt/static"
_NAME = "Replication"


class CkptPlugin(AirflowPlugin):
    """Plugin for the page *Replication*.

    Airflow shows the page in its navigation, and on the pages of DAGs, DAG runs and task instances.
    """

    name = "ckpt"

    @cached_property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """Registration of the application with the API and the page's files, mounted under ``/ckpt``."""
        from airflow_provider_ckpt.api.app import PREFIX, create_app

        return [{"app": create_app(), "url_prefix": PREFIX, "name": "Ckpt"}]

    @cached_property
    def react_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """Registrations of this provider's page in Airflow's UI: navigation, DAG, DAG run and task instance.

        Addresses are relative, so that the page also works below a base path.
        """
        digest = hashlib.sha256((_BUNDLE / _FILE).read_bytes()).hexdigest()[:16]
        shared = {
            "name": _NAME,
            "bundle_url": f"{_STATIC}/{_FILE}?v={digest}",
            "icon": f"{_STATIC}/icon.svg",
            "icon_dark_mode": f"{_STATIC}/icon-dark.svg",
        }
        places = {"nav": "replication", "dag": "ckpt-dag", "dag_run": "ckpt-run", "task_instance": "ckpt-task"}
        return [
            shared | {"destination": place, "url_route": route} | ({"category": "browse"} if place == "nav" else {})
            for place, route in places.items()
        ]
