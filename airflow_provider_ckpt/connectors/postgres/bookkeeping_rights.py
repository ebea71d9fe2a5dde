"""Refuse to run if row level security hides the bookkeeping (fence, receipts, dead letters) from the sink's user.

Such a user would see empty tables, as if all receipts were lost.
"""

from __future__ import annotations

from airflow_provider_ckpt.connectors.postgres.receipts import ALL_TABLES, BookkeepingTables
from airflow_provider_ckpt.connectors.postgres.table import Fetch
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.core.errors import ConfigError

_POLICIES = """
SELECT c.relname::text, current_user::text, p.polname IS NOT NULL,
       coalesce(pg_catalog.pg_get_expr(p.polqual, p.polrelid), 'true'),
       coalesce(p.polname ~ '^ckpt_[0-9a-f]{{16}}$', false)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_policy p ON p.polrelid = c.oid AND p.polpermissive AND p.polcmd IN ('*', 'r') AND EXISTS (
    SELECT FROM unnest(p.polroles) AS r (oid)
    WHERE CASE r.oid WHEN 0 THEN true ELSE pg_catalog.pg_has_role(r.oid, 'USAGE') END
)
WHERE n.nspname = {0}::text AND c.relname = ANY ({1}::text[]) AND c.relkind = 'r'
  AND CASE WHEN pg_catalog.has_table_privilege(c.oid, 'SELECT') THEN pg_catalog.row_security_active(c.oid) END
ORDER BY c.relname
"""
"""Query of the row level security policies by which the sink's user may read the bookkeeping tables.

The result also has one row for each table without a policy that applies to the user.
"""


def refuse_hidden_bookkeeping(
    fetch: Fetch, bookkeeping: BookkeepingTables, context: SinkContext, connection: str
) -> None:
    """Raise ConfigError if row level security hides the bookkeeping of this pipeline from the sink's user.

    :param fetch: runs a query and returns its rows
    :param bookkeeping: the bookkeeping tables; those that do not exist are ignored
    :param context: identity of the run, of which only the pipeline's name is used
    :param connection: id of the Airflow connection, for the message
    :raises ConfigError: with the role, the tables and the command that prints the needed statements
    """
    visible: dict[str, bool] = {}
    role = ""
    for table, role, exists, condition, is_own in fetch(_POLICIES, [bookkeeping.schema, list(ALL_TABLES)]):  # noqa: B007
        shows = exists and (not is_own or _admits(fetch, condition, context.pipeline))
        visible[table] = visible.get(table, False) or shows
    hidden = [table for table, is_visible in visible.items() if not is_visible]
    if hidden:
        raise ConfigError(
            f"row level security hides {', '.join(f'{bookkeeping.schema}.{table}' for table in hidden)} of pipeline "
            f"{context.pipeline} from role {role!r}, the user of connection {connection!r}: no policy of these tables "
            "admits the role to the pipeline's rows. Nothing was sent.",
            pipeline=context.pipeline,
            hint=f"As the owner of the tables, run the script that `airflow ckpt db roles sink {bookkeeping.schema} "
            f"--writer {role} --pipeline {context.pipeline}` prints. Give --table and --pipeline for all other targets "
            "and pipelines of that role as well: the script revokes rights that it does not list.",
        )


def _admits(fetch: Fetch, condition: str, pipeline: str) -> bool:
    """Return whether a policy that ``airflow ckpt db roles sink`` created lets the sink's user see a pipeline's rows.

    :param fetch: runs a query and returns its rows
    :param condition: SQL condition of the policy, in which only the column ``pipeline`` occurs
    :param pipeline: name of the pipeline
    """
    escaped = condition.replace("{", "{{").replace("}", "}}")
    return bool(fetch(f"SELECT {escaped} FROM (SELECT {{0}}::text AS pipeline) AS row", [pipeline])[0][0])
