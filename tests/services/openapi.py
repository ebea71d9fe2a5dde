"""Write the OpenAPI document of the page's API, from which the page's TypeScript types are generated.

``python -m tests.services.openapi`` writes it to ``airflow_provider_ckpt/ui/openapi.json``.
"""

from __future__ import annotations

import json
from pathlib import Path

FILE = Path(__file__).parents[2] / "airflow_provider_ckpt" / "ui" / "openapi.json"


def document() -> str:
    """Return the OpenAPI document as it is committed."""
    from airflow_provider_ckpt.api.app import create_app

    return json.dumps(create_app().openapi(), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    FILE.write_text(document())
