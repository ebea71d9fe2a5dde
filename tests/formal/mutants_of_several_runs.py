"""Defects in what runs of several tables in one process share: the renewal of their leases."""

from __future__ import annotations

from collections.abc import Sequence

from tests.formal.mutant import Mutant

_LEDGER = "tests/integration/ledger/test_group_renewal.py"
_THREAD = "tests/unit/replication/run/test_lease_renewal.py"

OF_SEVERAL_RUNS: Sequence[Mutant] = (
    Mutant(
        "a group's renewal extends a lease of another epoch",
        "ledger/store/lease.py",
        "",
        '("pipeline", "epoch", "owner")',
        '("pipeline", "owner")',
        test=f"{_LEDGER}::test_each_lease_is_decided_as_if_it_were_alone[sqlite]",
    ),
    Mutant(
        "a group's renewal extends a lease of another owner",
        "ledger/store/lease.py",
        "",
        '("pipeline", "epoch", "owner")',
        '("pipeline", "epoch")',
        test=f"{_LEDGER}::test_each_lease_is_decided_as_if_it_were_alone[sqlite]",
    ),
    Mutant(
        "a group's renewal waits for a command of one pipeline",
        "ledger/store/lease.py",
        "_renewal",
        "found.with_for_update(of=tables.lease, skip_locked=True)",
        "found.with_for_update(of=tables.lease)",
        test=f"{_LEDGER}::test_a_command_in_progress_delays_the_renewal_of_its_own_lease_alone[postgresql]",
    ),
    Mutant(
        "a lease that is locked counts as renewed",
        "ledger/store/lease.py",
        "renew_all",
        "Renewal(lost, frozenset(others) - lost.keys())",
        "Renewal(lost)",
        test=f"{_LEDGER}::test_a_takeover_in_progress_is_told_once_it_is_committed[postgresql]",
    ),
    Mutant(
        "a group's renewal gives SQLite's leases the time of now",
        "ledger/store/lease.py",
        "_renewal",
        'sa.func.strftime("%Y-%m-%d %H:%M:%f", "now", seconds)',
        'sa.func.strftime("%Y-%m-%d %H:%M:%f", "now")',
        test=f"{_LEDGER}::test_each_lease_is_extended_by_its_own_ttl[sqlite]",
    ),
    Mutant(
        "each lease is renewed by a statement of its own",
        "ledger/commands/runs.py",
        "RunCommands.renew_all",
        "return lease_store.renew_all(connection, leases)",
        "return [lease_store.renew_all(connection, [lease]) for lease in leases][-1]",
        test=f"{_LEDGER}::test_the_leases_of_fifty_tables_take_one_statement[sqlite]",
    ),
    Mutant(
        "a lost lease is told to every run of the process",
        "replication/run/lease_renewal.py",
        "LeaseRenewals._renew",
        "result.lost.get(renewal.lease)",
        "next(iter(result.lost.values()), None)",
        test=f"{_THREAD}::test_a_lost_lease_is_told_to_its_own_run_alone",
    ),
    Mutant(
        "the loss of a lease is told to nobody",
        "replication/run/lease_renewal.py",
        "LeaseRenewals._renew",
        "None if result is None else result.lost.get(renewal.lease)",
        "None",
        test=f"{_THREAD}::test_a_lost_lease_is_told_to_its_own_run_alone",
    ),
    Mutant(
        "a locked lease is renewed only in the next round",
        "replication/run/lease_renewal.py",
        "LeaseRenewals._renew",
        "renewal.interval * (_LOCKED_SHARE if locked else 1)",
        "renewal.interval",
        test=f"{_THREAD}::test_a_locked_lease_is_renewed_soon_and_alone",
    ),
    Mutant(
        "leases that were acquired one after the other are renewed one after the other",
        "replication/run/lease_renewal.py",
        "LeaseRenewals._wait_until_due",
        "found.due <= now + found.interval / 2",
        "found.due <= now",
        test=f"{_THREAD}::test_leases_that_were_acquired_at_different_times_are_renewed_together",
    ),
    Mutant(
        "an unreachable ledger ends the renewal of all leases",
        "replication/run/lease_renewal.py",
        "LeaseRenewals._renew",
        "Exception",
        "StaleEpochError",
        test=f"{_THREAD}::test_a_ledger_that_fails_only_delays_the_renewals",
    ),
    Mutant(
        "a lease is released while its renewal is in progress",
        "replication/run/lease_renewal.py",
        "LeaseRenewals.remove",
        "while renewal in self._in_progress:\n    self._changed.wait()",
        "",
        test=f"{_THREAD}::test_a_renewal_that_was_stopped_is_no_longer_in_progress",
    ),
    Mutant(
        "each table in progress renews its own lease",
        "engines/several_runs.py",
        "run_several",
        "replace(setup, renewals=renewals[setup.ledger], most_lanes=most_lanes)",
        "replace(setup, most_lanes=most_lanes)",
        test="tests/integration/replication/test_group_of_tables.py"
        "::test_a_run_whose_lease_is_lost_stops_and_the_other_goes_on",
    ),
)
