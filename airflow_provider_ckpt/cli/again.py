"""``airflow ckpt rewind`` and ``replay range``: reading once more what the checkpoint has passed."""

from __future__ import annotations

from argparse import Namespace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.cli.acting import act_in, batch_keys, document, table
from airflow_provider_ckpt.cli.command import command
from airflow_provider_ckpt.cli.person import who, why
from airflow_provider_ckpt.core.acts import Act, ActKind
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.ranges import Range

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.ledger import Ledger


@command(table)
def rewind(args: Namespace) -> dict[str, Any]:
    """Begin a new generation at an earlier position; stored if a run holds the lease, and applied by the next one."""
    from airflow_provider_ckpt.ledger_location import open_ledger

    reason = why(args, required_by="rewind")
    with open_ledger(args.ledger) as ledger:
        return carried_out(ledger, args, Act(ActKind.REWIND, positions=_positions(args, ledger)), reason)


@command(table)
def replay_range(args: Namespace) -> dict[str, Any]:
    """Add a side partition that reads a stretch once more; the checkpoint stays."""
    from airflow_provider_ckpt.ledger_location import open_ledger

    reason = why(args)
    with open_ledger(args.ledger) as ledger:
        try:
            spans = ((_partition(args, ledger), Range(args.start, args.end)),)
        except ValueError as error:
            raise ConfigError(f"{error}.", hint="--from is the first position, --to the first one left out.") from error
        before = set(ledger.partitions(args.pipeline))
        result = carried_out(ledger, args, Act(ActKind.REPLAY, spans=spans), reason)
        made = sorted(set(ledger.partitions(args.pipeline)) - before)
        if made:
            result["next"] = f"the next run reads it, as partition {', '.join(made)}"
        return result


def carried_out(ledger: Ledger, args: Namespace, act: Act, why: str | None) -> dict[str, Any]:
    """Carry an act out behind the sink's fence, or store it for the holder of the lease."""
    from airflow_provider_ckpt.cli.setup import setup_of
    from airflow_provider_ckpt.replication.people import carry_out_or_store

    if args.dry_run:
        return act_in(ledger, args, act, why=why)
    result = carry_out_or_store(setup_of(args, ledger), act, who=who(), why=why)
    return document(ledger, args, result, why=why)


def _positions(args: Namespace, ledger: Ledger) -> dict[str, int]:
    """Where each partition is to begin again.

    :raises ConfigError: unless just one of the three ways to say it was chosen, and it names a place
    """
    ways = [name for name in ("to_position", "to_time", "to_batch") if getattr(args, name) is not None]
    if len(ways) != 1:
        raise ConfigError("say how far to rewind: one of --to-position, --to-time and --to-batch.")
    if args.to_position is not None:
        return {_partition(args, ledger): args.to_position}
    if args.to_time is not None:
        return _at_time(args, ledger)
    return _of_batch(args, ledger)


def _at_time(args: Namespace, ledger: Ledger) -> dict[str, int]:
    """Where the checkpoint stood then, or where it stands now if that is before."""
    at = moment(args.to_time)
    chosen = {_partition(args, ledger)} if args.partition else set(_sources(ledger, args.pipeline))
    now = {part["id"]: part["committed"] for part in ledger.status(args.pipeline)["partitions"]}
    then = ledger.positions_at(args.pipeline, at)
    return {name: min(position, now[name]) for name, position in then.items() if name in chosen}


def _of_batch(args: Namespace, ledger: Ledger) -> dict[str, int]:
    from airflow_provider_ckpt.cli.setup import setup_of
    from airflow_provider_ckpt.replication.people import position_of_batch

    (key,) = batch_keys([args.to_batch])
    if args.partition not in (None, key.source):
        raise ConfigError(f"{key} is a batch of partition {key.source!r}, not {args.partition!r}.")
    return position_of_batch(setup_of(args, ledger), key)


def _partition(args: Namespace, ledger: Ledger) -> str:
    """The source partition that is meant: the one that was named, or the only one.

    :raises ConfigError: if there are several and none was named, or there is none of that name
    """
    sources = _sources(ledger, args.pipeline)
    known = ", ".join(sources[:10]) or "none yet"
    if args.partition is None and len(sources) != 1:
        raise ConfigError(
            f"it has {len(sources)} partitions.", pipeline=args.pipeline, hint=f"Name one with --partition: {known}."
        )
    name: str = args.partition or sources[0]
    if name not in sources:
        raise ConfigError(f"there is no source partition {name!r}.", pipeline=args.pipeline, hint=f"Known: {known}.")
    return name


def _sources(ledger: Ledger, pipeline: str) -> list[str]:
    """The partitions of the source, without the side partitions that re-read a stretch of one.

    :raises ConfigError: if the ledger does not know the pipeline
    """
    partitions = ledger.status(pipeline)["partitions"]
    return [part["id"] for part in partitions if part["ends_at"] is None]


def moment(text: str) -> datetime:
    """A point in time as a person writes it.

    :raises ConfigError: if it cannot be read
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{text!r} is no point in time.", hint="Write it as 2026-01-31T18:00:00+01:00; without a zone it is UTC."
        ) from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
