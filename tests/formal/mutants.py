"""Mutants of the core, the ledger and the fences, each applied alone; the property or test named for it must detect it.

``python -m tests.formal.mutants [NAME…]`` tries them.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from threading import Lock

from tests.formal.mutant import Mutant
from tests.formal.mutants_of_core import OF_CORE
from tests.formal.mutants_of_files_sink import OF_FILES_SINK
from tests.formal.mutants_of_iceberg import OF_ICEBERG
from tests.formal.mutants_of_lake_columns import OF_LAKE_COLUMNS
from tests.formal.mutants_of_ledger import OF_LEDGER
from tests.formal.mutants_of_object_store import OF_OBJECT_STORE
from tests.formal.mutants_of_page import OF_PAGE
from tests.formal.mutants_of_plain import OF_PLAIN
from tests.formal.mutants_of_policy import OF_POLICY
from tests.formal.mutants_of_refresh import OF_REFRESH
from tests.formal.mutants_of_schema_change import OF_SCHEMA_CHANGE
from tests.formal.mutants_of_several_runs import OF_SEVERAL_RUNS
from tests.formal.mutants_of_sinks import OF_SINKS
from tests.formal.mutants_of_sql_columns import OF_SQL_COLUMNS
from tests.formal.mutants_of_warm import OF_WARM
from tests.formal.rewrite import RewriteError
from tests.formal.sandbox import Sandbox, SandboxError

_PARSING = Lock()
"""Held while a source is parsed: Python 3.11's parser of syntax trees is not safe in several threads."""

MUTANTS: Sequence[Mutant] = (
    *OF_SINKS,
    *OF_REFRESH,
    *OF_SCHEMA_CHANGE,
    *OF_LAKE_COLUMNS,
    *OF_SQL_COLUMNS,
    *OF_PAGE,
    *OF_ICEBERG,
    *OF_FILES_SINK,
    *OF_OBJECT_STORE,
    *OF_PLAIN,
    *OF_WARM,
    *OF_POLICY,
    *OF_SEVERAL_RUNS,
    *OF_LEDGER,
    *OF_CORE,
)
"""The slowest first."""


class _Sandboxes:
    """Sandboxes that several threads share."""

    def __init__(self, parent: Path, count: int) -> None:
        self._free: Queue[Sandbox] = Queue()
        for number in range(count):
            place = parent / str(number)
            place.mkdir()
            self._free.put(Sandbox(place))

    @contextmanager
    def one(self) -> Iterator[Sandbox]:
        """A sandbox that nobody else uses meanwhile."""
        sandbox = self._free.get()
        try:
            yield sandbox
        finally:
            self._free.put(sandbox)

    def attempt(self, mutant: Mutant) -> tuple[bool, str]:
        """Return whether a mutant is caught, and what was observed."""
        with self.one() as sandbox:
            try:
                with _PARSING:
                    text = mutant.applied(sandbox.package)
                with sandbox.holding(mutant.file, text):
                    return mutant.caught_in(sandbox)
            except (SandboxError, RewriteError, subprocess.TimeoutExpired) as error:
                return False, f"could not be tried: {error}"

    def sound(self, *tests: str) -> bool:
        """Return whether tests pass on the package as it is."""
        with self.one() as sandbox:
            try:
                return not sandbox.fails(tests)
            except (SandboxError, subprocess.TimeoutExpired):
                return False


def run_all(mutants: Sequence[Mutant], *, log: Callable[[str], None], processes: int = 2) -> dict[str, str | None]:
    """Try every mutant; by name, what caught each, None if nothing did or it could not be tried.

    The tests that are to catch them must also pass on the package as it is; one that does not catches nothing.

    :param log: called with one line about each mutant
    :param processes: how many are tried at a time
    """
    caught: dict[str, str | None] = {}
    with tempfile.TemporaryDirectory(prefix="ckpt-mutants-") as parent, ThreadPoolExecutor(processes) as pool:
        sandboxes = _Sandboxes(Path(parent), processes)
        tests = list(dict.fromkeys(mutant.test for mutant in mutants if mutant.test))
        whole = pool.submit(sandboxes.sound, *tests) if tests else None
        for mutant, (found, detail) in zip(mutants, pool.map(sandboxes.attempt, mutants), strict=True):
            caught[mutant.name] = mutant.catcher if found else None
            log(f"{'caught' if found else 'SURVIVED'}: {mutant.name}; {mutant.catcher}; {detail}")
        if whole is not None and not whole.result():
            sound = dict(zip(tests, pool.map(sandboxes.sound, tests), strict=True))
            for mutant in mutants:
                if not sound.get(mutant.test, True):
                    caught[mutant.name] = None
                    log(f"UNPROVEN: {mutant.name}; {mutant.test} does not pass without the defect")
    return caught


def main(*names: str) -> int:
    """Try all mutants, or those named; 1 if one survives."""
    chosen = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    caught = run_all(chosen, log=lambda line: print(line, flush=True))
    print(f"{sum(found is not None for found in caught.values())} of {len(caught)} caught")
    return int(None in caught.values())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
