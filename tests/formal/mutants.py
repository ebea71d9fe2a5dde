"""Deliberate defects, one at a time, in the real core, ledger and fences: each must be caught by what is named for it.

``python -m tests.formal.mutants [NAME…]`` tries them.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

from tests.formal.mutant import Mutant
from tests.formal.mutants_of_core import OF_CORE
from tests.formal.mutants_of_files_sink import OF_FILES_SINK
from tests.formal.mutants_of_iceberg import OF_ICEBERG
from tests.formal.mutants_of_ledger import OF_LEDGER
from tests.formal.mutants_of_plain import OF_PLAIN
from tests.formal.mutants_of_policy import OF_POLICY
from tests.formal.mutants_of_sinks import OF_SINKS
from tests.formal.sandbox import Sandbox, SandboxError

MUTANTS: Sequence[Mutant] = (*OF_SINKS, *OF_ICEBERG, *OF_FILES_SINK, *OF_PLAIN, *OF_POLICY, *OF_LEDGER, *OF_CORE)
"""The slowest first."""


def run_all(mutants: Sequence[Mutant], *, tell: Callable[[str], None], processes: int = 2) -> dict[str, str | None]:
    """Try them; by name, what caught each, None if nothing did.

    Before that the tests that are to catch them must pass on the package as it is.

    :raises SandboxError: if a mutant could not be tried at all
    """
    caught: dict[str, str | None] = {}
    with tempfile.TemporaryDirectory(prefix="ckpt-mutants-") as parent, ThreadPoolExecutor(processes) as pool:
        sandboxes: Queue[Sandbox] = Queue()
        for number in range(processes):
            sandboxes.put(Sandbox(_made(Path(parent) / str(number))))

        def attempt(mutant: Mutant) -> tuple[bool, str]:
            sandbox = sandboxes.get()
            try:
                with sandbox.replaced(mutant.file, mutant.old, mutant.new):
                    return mutant.caught_in(sandbox)
            except SandboxError as error:
                raise SandboxError(f"{mutant.name}: {error}") from error
            finally:
                sandboxes.put(sandbox)

        def sound(tests: list[str]) -> bool:
            sandbox = sandboxes.get()
            try:
                return not sandbox.fails(tests)
            finally:
                sandboxes.put(sandbox)

        tests = list(dict.fromkeys(mutant.test for mutant in mutants if mutant.test))
        whole = pool.submit(sound, tests) if tests else None
        for mutant, (found, told) in zip(mutants, pool.map(attempt, mutants), strict=True):
            caught[mutant.name] = mutant.catcher if found else None
            tell(f"{'caught' if found else 'SURVIVED'}: {mutant.name}; {mutant.catcher}; {told}")
        if whole is not None and not whole.result():
            raise SandboxError("a test that is to catch a mutant fails without one")
    return caught


def _made(place: Path) -> Path:
    place.mkdir()
    return place


def main(*names: str) -> int:
    """Try all mutants, or those named; 1 if one survives."""
    chosen = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    caught = run_all(chosen, tell=lambda line: print(line, flush=True))
    print(f"{sum(found is not None for found in caught.values())} of {len(caught)} caught")
    return int(None in caught.values())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
