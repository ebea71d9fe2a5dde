"""Change and fill a source while workers replicate it and are killed; then compare the target with the model."""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from airflow_provider_ckpt.ledger.ledger import Ledger
from tests.chaos.schema_storm import worker
from tests.chaos.schema_storm.model import Evidence, Source, faults
from tests.chaos.schema_storm.targets import REPORTS, TARGETS
from tests.chaos.schema_storm.worker import Death, Defect, Orders
from tests.services.ledgers import new_ledger_database
from tests.services.mariadb import MariaDbServer
from tests.services.postgres import PostgresServer, sqlalchemy_url

_AT_STATEMENT = (Death.BEFORE_ALTER, Death.AFTER_ALTER)
"""Further deaths, if a statement changes the columns of the target."""

_DEATHS = (
    Death.NEVER,
    Death.BEFORE_WAVE,
    *(death for death in Death if death is not Death.NEVER and death not in _AT_STATEMENT),
)
"""Deaths from which that of a worker is drawn; that before a wave, which leaves planned batches, is there twice."""

_PATIENCE = 120.0
"""Seconds after which a worker that has not ended is taken for stuck."""


def storm(
    server: PostgresServer,
    folder: Path,
    *,
    rounds: int,
    seed: int,
    defect: Defect | None = None,
    sink: str = "postgres",
    deaths: Sequence[Death] = _DEATHS,
    mariadb: MariaDbServer | None = None,
) -> dict[str, Any]:
    """Run a storm; return the faults that the model found, and what happened.

    :param server: for the databases of source and ledger
    :param folder: for the workers' log, and for a target that is no table of a database
    :param rounds: number of workers, most of which die
    :param seed: of all choices
    :param defect: rule that is broken in every worker
    :param sink: the target, one of the keys of :data:`~.targets.TARGETS`
    :param deaths: deaths from which that of each worker is drawn
    :param mariadb: for the database of the target, if that is ``mysql``
    """
    random = Random(seed)
    url = sqlalchemy_url(new_ledger_database(server))
    dsn = server.new_database()
    connections = {} if mariadb is None else {REPORTS: mariadb.connection(mariadb.new_database(), REPORTS)}
    target = TARGETS[sink](dsn, folder, connections)
    source = Source(dsn, target, random)
    source.create()
    log = folder / "errors"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([worker.__name__])
    befell: Counter[str] = Counter()
    drawn = (*deaths, *_AT_STATEMENT) if target.altering else deaths
    for number in range(rounds):
        whole = number in (0, rounds - 1)  # the target has the columns of the first version, and the last run ends
        if not whole:
            for _ in range(random.randint(0, 2)):
                source.change()
        source.insert(random.randint(5, 20))
        death = Death.NEVER if whole else random.choice(drawn)
        orders = Orders(dsn, sink, folder, url, log, death, defect, connections)
        process = context.Process(target=worker.work, args=(orders,))
        process.start()
        if not whole and random.random() < 0.5:  # while it works
            time.sleep(random.uniform(0, 0.4))
            source.change()
            source.insert(random.randint(1, 10))
        process.join(_PATIENCE)
        assert process.exitcode is not None, "a worker is stuck"
        befell[f"{death.value}: {process.exitcode}"] += 1
        if process.exitcode == 0:
            source.widened.clear()
    with Ledger.open(url) as ledger:
        versions = ledger.schema_versions("orders", "public.items")
        evidence = Evidence(versions, *target.receipts(ledger.sink_id("orders")))
    return {
        "sink": sink,
        "seed": seed,
        "rounds": rounds,
        "rows": len(source.values),
        "changes": source.changes,
        "versions": len(evidence.versions),
        "kills": sum(number for name, number in befell.items() if name.endswith("-9")),
        "befell": dict(befell),
        "errors": log.read_text().splitlines() if log.exists() else [],
        "faults": list(faults(source, evidence)),
    }
