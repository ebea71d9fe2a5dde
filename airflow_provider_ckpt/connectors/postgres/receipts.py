"""Build SQL statements on the sink's bookkeeping tables in the target's schema: fence, receipts, dead letters, replays.

The keys of the rows include ledger and pipeline, so several pipelines and ledgers share the tables.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from airflow_provider_ckpt.connectors.postgres.client import quote

FENCE = "ckpt_sink_fence"
RECEIPT = "ckpt_sink_receipt"
DEAD_LETTER = "ckpt_sink_dead_letter"
REPLAY = "ckpt_sink_replay"
TABLES = (FENCE, RECEIPT, DEAD_LETTER)
ALL_TABLES = (*TABLES, REPLAY)
SWAP = "swap:target"
"""Key of the row among the replays that names the table by which a refresh has replaced the target."""

LATER_COLUMNS = ((RECEIPT, "positions"), (RECEIPT, "added"), (FENCE, "target_snapshot"))
"""Pairs of table and column that later versions of the package added, so that older tables may lack them."""

CREATION_LOCK = int.from_bytes(
    hashlib.sha256(b"airflow-provider-ckpt sink bookkeeping").digest()[:8], "big", signed=True
)
"""Key of the advisory lock that a session takes while it creates the tables.

Concurrent CREATE TABLE IF NOT EXISTS statements can fail otherwise.
"""

DEAD_LETTER_COLUMNS = (
    "ledger", "pipeline", "generation", "partition", "seq", "attempt", "epoch", "position", "key", "value",
    "error_type", "error", "sqlstate", "headers",
)  # fmt: skip

_RECEIPT_COLUMNS = (
    "generation, partition, seq, range_start, range_end, verdict, epoch, attempt, "
    "read, delivered, filtered, dead_lettered, at, bound, positions"
)


@dataclass(frozen=True, slots=True)
class BookkeepingTables:
    """Bookkeeping tables of one schema, and the SQL statements on them.

    Statements bind their values at ``{0}``, ``{1}`` …, see :data:`~.table.Fetch`; each docstring names these values
    in order.

    :param schema: name of the schema, which is the target's
    """

    schema: str

    @property
    def place(self) -> str:
        """Place of the fence for messages, such as ``the schema public``."""
        return f"the schema {self.schema}"

    def table(self, name: str) -> str:
        """Return the SQL name of a bookkeeping table, with braces doubled, since statements are templates.

        :param name: one of :data:`ALL_TABLES`
        """
        return f"{quote(self.schema)}.{quote(name)}".replace("{", "{{").replace("}", "}}")

    @property
    def create(self) -> str:
        """Statements that create those tables, columns and indexes that do not exist."""
        return f"""
            CREATE TABLE IF NOT EXISTS {self.table(FENCE)} (
                ledger text NOT NULL, pipeline text NOT NULL, epoch bigint NOT NULL,
                at timestamptz NOT NULL DEFAULT clock_timestamp(),
                PRIMARY KEY (ledger, pipeline)
            );
            CREATE TABLE IF NOT EXISTS {self.table(RECEIPT)} (
                ledger text NOT NULL, pipeline text NOT NULL, generation int NOT NULL, partition text NOT NULL,
                seq bigint NOT NULL, range_start bigint NOT NULL, range_end bigint NOT NULL, verdict text NOT NULL,
                epoch bigint NOT NULL, attempt int NOT NULL, read bigint NOT NULL, delivered bigint NOT NULL,
                filtered bigint NOT NULL, dead_lettered bigint NOT NULL,
                at timestamptz NOT NULL DEFAULT clock_timestamp(), bound bigint, positions text,
                PRIMARY KEY (ledger, pipeline, generation, partition, seq),
                CHECK (range_start < range_end), CHECK (read = delivered + filtered + dead_lettered)
            );
            ALTER TABLE {self.table(RECEIPT)} ADD COLUMN IF NOT EXISTS positions text;
            CREATE INDEX IF NOT EXISTS {quote(f"{RECEIPT}_known")}
                ON {self.table(RECEIPT)} (ledger, pipeline, partition, generation, range_end);
            ALTER TABLE {self.table(RECEIPT)} ADD COLUMN IF NOT EXISTS added bigint;
            ALTER TABLE {self.table(FENCE)} ADD COLUMN IF NOT EXISTS target_snapshot jsonb;
            CREATE TABLE IF NOT EXISTS {self.table(DEAD_LETTER)} (
                ledger text NOT NULL, pipeline text NOT NULL, generation int NOT NULL, partition text NOT NULL,
                seq bigint NOT NULL, attempt int NOT NULL, epoch bigint NOT NULL, position bigint NOT NULL,
                key bytea, value bytea, error_type text NOT NULL, error text NOT NULL, sqlstate text,
                headers jsonb NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp()
            );
            CREATE INDEX IF NOT EXISTS {quote(f"{DEAD_LETTER}_batch")}
                ON {self.table(DEAD_LETTER)} (ledger, pipeline, generation, partition, seq);
            CREATE TABLE IF NOT EXISTS {self.table(REPLAY)} (
                ledger text NOT NULL, pipeline text NOT NULL, partition text NOT NULL, replay jsonb NOT NULL,
                at timestamptz NOT NULL DEFAULT clock_timestamp(),
                PRIMARY KEY (ledger, pipeline, partition)
            );
        """

    @property
    def claim(self) -> str:
        """Statement that claims a receipt, and locks the fence row until the transaction ends.

        Bound values: ledger, pipeline, epoch, generation, partition, seq, range start and end, verdict, attempt, the
        four counts (read, delivered, filtered, dead-lettered), time, bound, positions. It fails with SQLSTATE 23502
        (the epoch is NULL) if the fence has another epoch, and with 23505 if the batch has a receipt already.
        """
        return f"""
            INSERT INTO {self.table(RECEIPT)} (ledger, pipeline, epoch, generation, partition, seq, range_start,
                range_end, verdict, attempt, read, delivered, filtered, dead_lettered, at, bound, positions)
            VALUES ({{0}}, {{1}}, (
                    SELECT epoch FROM {self.table(FENCE)}
                    WHERE ledger = {{0}} AND pipeline = {{1}} AND epoch = {{2}} FOR SHARE
                ), {{3}}, {{4}}, {{5}}, {{6}}, {{7}}, {{8}}, {{9}}, {{10}}, {{11}}, {{12}}, {{13}}, {{14}}, {{15}},
                {{16}})"""

    @property
    def update_counts(self) -> str:
        """Statement that corrects the counts of a receipt claimed in the same transaction.

        Bound values: ledger, pipeline, generation, partition, seq, then the numbers of delivered, filtered and
        dead-lettered records.
        """
        return f"""
            UPDATE {self.table(RECEIPT)}
            SET delivered = {{5}}::bigint, filtered = {{6}}::bigint, dead_lettered = {{7}}::bigint
            WHERE ledger = {{0}}::text AND pipeline = {{1}}::text AND generation = {{2}}::int
              AND partition = {{3}}::text AND seq = {{4}}::bigint
            RETURNING 1"""

    def store_added(self, added: str) -> str:
        """Return the statement that stores in a batch's receipt the number of rows that the batch added to the target.

        Bound values: ledger, pipeline, generation, partition, seq.

        :param added: SQL expression of that number
        """
        return f"""
            UPDATE {self.table(RECEIPT)} SET added = {added}
            WHERE ledger = {{0}}::text AND pipeline = {{1}}::text AND generation = {{2}}::int
              AND partition = {{3}}::text AND seq = {{4}}::bigint"""

    @property
    def receipt(self) -> str:
        """Query of the receipt of one batch. Bound values: ledger, pipeline, generation, partition, seq."""
        return f"""
            SELECT {_RECEIPT_COLUMNS} FROM {self.table(RECEIPT)}
            WHERE ledger = {{0}}::text AND pipeline = {{1}}::text AND generation = {{2}}::int
              AND partition = {{3}}::text AND seq = {{4}}::bigint"""

    @property
    def partitions(self) -> str:
        """Query of the partitions that have receipts, with one index lookup for each.

        Bound values: ledger, pipeline.
        """
        least = (
            f"SELECT min(partition) FROM {self.table(RECEIPT)} WHERE ledger = {{0}}::text AND pipeline = {{1}}::text"
        )
        return f"""
            WITH RECURSIVE found (name) AS (
                ({least}) UNION ALL SELECT ({least} AND partition > found.name) FROM found WHERE found.name IS NOT NULL
            )
            SELECT name FROM found WHERE name IS NOT NULL"""

    @property
    def receipts(self) -> str:
        """Query of a partition's receipts that the ledger does not know.

        Bound values: ledger, pipeline, partition, and the generation and position up to which the ledger knows all
        receipts.
        """
        return f"""
            SELECT {_RECEIPT_COLUMNS} FROM {self.table(RECEIPT)}
            WHERE ledger = {{0}}::text AND pipeline = {{1}}::text AND partition = {{2}}::text
              AND (generation, range_end) > ({{3}}::int, ({{4}})::bigint)"""

    @property
    def receipts_of_generation(self) -> str:
        """Query of all receipts of a partition's generation. Bound values: ledger, pipeline, generation, partition."""
        return f"""
            SELECT {_RECEIPT_COLUMNS} FROM {self.table(RECEIPT)}
            WHERE ledger = {{0}}::text AND pipeline = {{1}}::text AND generation = {{2}}::int
              AND partition = {{3}}::text"""

    @property
    def batches_without_receipt(self) -> str:
        """Query that returns, of the given batches, those that have no receipt.

        Bound values: ledger, pipeline, and the batches as a JSON array of ``[generation, partition, seq]``.
        """
        return f"""
            SELECT (wanted ->> 0)::int, wanted ->> 1, (wanted ->> 2)::bigint
            FROM pg_catalog.jsonb_array_elements({{2}}::jsonb) AS wanted
            WHERE NOT EXISTS (
                SELECT FROM {self.table(RECEIPT)}
                WHERE ledger = {{0}}::text AND pipeline = {{1}}::text AND generation = (wanted ->> 0)::int
                  AND partition = wanted ->> 1 AND seq = (wanted ->> 2)::bigint
            )"""

    @property
    def dead_letters(self) -> str:
        """Query of an attempt's dead letters, in a fixed order.

        Bound values: ledger, pipeline, generation, partition, seq, attempt, epoch.
        """
        return f"""
            SELECT position, key, value, error_type, error, sqlstate, headers, at FROM {self.table(DEAD_LETTER)}
            WHERE ledger = {{0}}::text AND pipeline = {{1}}::text AND generation = {{2}}::int
              AND partition = {{3}}::text AND seq = {{4}}::bigint AND attempt = {{5}}::int AND epoch = {{6}}::bigint
            ORDER BY position, error_type, value, key, error, headers"""

    @property
    def store_replay(self) -> str:
        """Statement that stores a replay: the list of dead letters that a side partition sends again.

        It replaces a replay that is stored for the same partition. Such a replay exists only if the ledger was restored
        to a time before it, and nothing of it was sent: otherwise the ledger would know the side partition from
        receipts. Bound values: ledger, pipeline, partition, replay as JSON text.
        """
        return f"""
            INSERT INTO {self.table(REPLAY)} (ledger, pipeline, partition, replay)
            VALUES ({{0}}::text, {{1}}::text, {{2}}::text, {{3}}::jsonb)
            ON CONFLICT (ledger, pipeline, partition) DO UPDATE SET replay = excluded.replay, at = clock_timestamp()
            RETURNING 1"""

    @property
    def replays(self) -> str:
        """Query of the stored replays of the given side partitions.

        Bound values: ledger, pipeline, ids of the partitions.
        """
        return f"""
            SELECT partition, replay FROM {self.table(REPLAY)}
            WHERE ledger = {{0}}::text AND pipeline = {{1}}::text AND partition = ANY ({{2}}::text[])"""

    @property
    def stored_file_lists(self) -> str:
        """Query of lists of discovered source files, which are stored in the table of replays.

        Bound values: ledger, pipeline, smallest ordinal of a list's first file.
        """
        return f"""
            SELECT replay FROM {self.table(REPLAY)}
            WHERE ledger = {{0}}::text AND pipeline = {{1}}::text
              AND CASE WHEN left(partition, 6) = 'files:' THEN split_part(partition, ':', 2)::bigint >= {{2}}::bigint
                       ELSE false END"""

    @property
    def swapped_table(self) -> str:
        """Query of the first oid of a target that refreshes have replaced by other tables, and of its oid now.

        Bound values: ledger, pipeline.
        """
        return f"""
            SELECT (replay ->> 'first')::bigint, (replay ->> 'now')::bigint FROM {self.table(REPLAY)}
            WHERE ledger = {{0}}::text AND pipeline = {{1}}::text AND partition = '{SWAP}'"""

    @property
    def claim_schema_version(self) -> str:
        """Statement that claims the receipt of a schema version, and locks the fence row until the transaction ends.

        It returns no row if the fence has another epoch, or the version has a receipt. Bound values: ledger, pipeline,
        epoch, name of the receipt (``schema:…``), version as JSON text.
        """
        return f"""
            INSERT INTO {self.table(REPLAY)} (ledger, pipeline, partition, replay)
            SELECT ledger, pipeline, {{3}}::text, {{4}}::jsonb FROM {self.table(FENCE)}
            WHERE ledger = {{0}}::text AND pipeline = {{1}}::text AND epoch = {{2}}::bigint FOR SHARE
            ON CONFLICT (ledger, pipeline, partition) DO NOTHING RETURNING 1"""

    @property
    def schema_versions(self) -> str:
        """Query of the schema versions that have a receipt, in the table of replays. Bound values: ledger, pipeline."""
        return f"""
            SELECT replay FROM {self.table(REPLAY)}
            WHERE ledger = {{0}}::text AND pipeline = {{1}}::text AND left(partition, 7) = 'schema:'"""

    @property
    def fence_epoch(self) -> str:
        """Query of the epoch of a pipeline's fence; no row if it was never raised. Bound values: ledger, pipeline."""
        return f"SELECT epoch FROM {self.table(FENCE)} WHERE ledger = {{0}}::text AND pipeline = {{1}}::text"

    @property
    def lock_fence(self) -> str:
        """Query like :attr:`fence_epoch` that also locks the fence's row until the transaction ends.

        Bound values: ledger, pipeline.
        """
        return f"{self.fence_epoch} FOR SHARE"

    @property
    def raise_fence(self) -> str:
        """Statement that raises the fence to an epoch but never lowers it; it waits for the lock of the fence's row.

        It returns a row only if it raised the fence. Bound values: ledger, pipeline, epoch.
        """
        return f"""
            INSERT INTO {self.table(FENCE)} AS f (ledger, pipeline, epoch)
            VALUES ({{0}}::text, {{1}}::text, {{2}}::bigint)
            ON CONFLICT (ledger, pipeline) DO UPDATE SET epoch = excluded.epoch, at = clock_timestamp()
            WHERE f.epoch < excluded.epoch RETURNING epoch"""

    @property
    def store_target_snapshot(self) -> str:
        """Statement that stores a snapshot of the target in the fence's row, if the fence has the given epoch.

        The snapshot describes the target's state (see :mod:`~.restored_target`). Bound values: ledger, pipeline, epoch,
        snapshot as JSON text.
        """
        return f"""
            UPDATE {self.table(FENCE)} SET target_snapshot = {{3}}::jsonb
            WHERE ledger = {{0}}::text AND pipeline = {{1}}::text AND epoch = {{2}}::bigint RETURNING 1"""

    @property
    def target_snapshot(self) -> str:
        """Query of the stored snapshot of the target, and of a boolean: whether any receipt counts delivered rows.

        The query returns no row if there is no snapshot. Bound values: ledger, pipeline.
        """
        return f"""
            SELECT target_snapshot, EXISTS (
                SELECT FROM {self.table(RECEIPT)}
                WHERE ledger = {{0}}::text AND pipeline = {{1}}::text AND delivered > 0
            ) FROM {self.table(FENCE)}
            WHERE ledger = {{0}}::text AND pipeline = {{1}}::text AND target_snapshot IS NOT NULL"""

    @property
    def fences(self) -> str:
        """Query of all ledgers that have a fence for a pipeline, with the fences' epochs. Bound values: pipeline."""
        return f"SELECT ledger, epoch FROM {self.table(FENCE)} WHERE pipeline = {{0}}::text"
