"""All specifications that :mod:`tests.formal.specification` checks."""

from __future__ import annotations

from collections.abc import Sequence

from tests.formal.object_store_model import OBJECT_STORE
from tests.formal.refresh_model import REFRESH
from tests.formal.schema_change_model import SCHEMA_CHANGE
from tests.formal.specification import Specification

SPECIFICATIONS: Sequence[Specification] = (OBJECT_STORE, REFRESH, SCHEMA_CHANGE)
"""All of them."""
