"""Program inside a sandbox: run a search, or some tests, on the sandbox's copy of the package.

``python -m tests.formal.inside PLACE search CONFIGURATION`` prints the violated properties as JSON; ``python -m
tests.formal.inside PLACE test NODE…`` has the exit status of pytest.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import airflow_provider_ckpt

_WRONG_PACKAGE = 99


def main(place: str, what: str, *names: str) -> int:
    """Do it, if it is really the sandbox's package that is imported."""
    if not Path(airflow_provider_ckpt.__file__).is_relative_to(place):
        print(f"{airflow_provider_ckpt.__file__} is not in {place}", file=sys.stderr)
        return _WRONG_PACKAGE
    if what == "search":
        from tests.formal.configurations import SMALL
        from tests.formal.search import search

        print(json.dumps(sorted(search(names[0], SMALL[names[0]]).broken)))
        return 0
    import pytest

    return pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--rootdir", place, *names])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
