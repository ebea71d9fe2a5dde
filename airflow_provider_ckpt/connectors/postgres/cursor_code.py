"""Find the code that fills the cursor column of new rows: defaults, generated columns, triggers, and their functions.

The code belongs to the table's owner, so it is parsed and not executed. The only exceptions are expressions of
constants that yield the name of a sequence: the server evaluates them if their functions are known and their values
cannot become long.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from airflow_provider_ckpt.config.characters import for_message
from airflow_provider_ckpt.connectors.postgres.constant_expressions import evaluate_constants
from airflow_provider_ckpt.connectors.postgres.origin_tables import OriginColumn
from airflow_provider_ckpt.connectors.postgres.sequence_catalog import array_text, find_sequences, sequences_of_tables
from airflow_provider_ckpt.connectors.postgres.sql_code import (
    TriggerCode,
    call_arguments,
    called_functions,
    split_statements,
    string_literals,
)
from airflow_provider_ckpt.connectors.postgres.table import Fetch

_MAX_CODE = 256 * 1024
"""Greatest length of a default's or function's code that is parsed, in characters.

For longer code it is not known which values it may give the cursor (:attr:`.CursorAssignment.unreadable`).
"""

_MAX_CALLED = 4 * _MAX_CODE
"""Greatest total length of the functions that one default or trigger calls, in characters; see :data:`_MAX_CODE`."""

_DEFAULTS = """
WITH RECURSIVE cursor (oid, number) AS (SELECT * FROM unnest({0}::oid[], {1}::int[])), typed (oid) AS (
    SELECT a.atttypid FROM pg_catalog.pg_attribute a JOIN cursor ON a.attrelid = cursor.oid AND a.attnum = cursor.number
  UNION
    SELECT t.typbasetype FROM typed JOIN pg_catalog.pg_type t ON t.oid = typed.oid WHERE t.typtype = 'd'
)
SELECT pg_catalog.pg_get_expr(f.adbin, f.adrelid), a.attgenerated <> '' FROM pg_catalog.pg_attrdef f
JOIN cursor ON f.adrelid = cursor.oid AND f.adnum = cursor.number
JOIN pg_catalog.pg_attribute a ON a.attrelid = f.adrelid AND a.attnum = f.adnum
UNION
SELECT t.typdefault, false FROM typed JOIN pg_catalog.pg_type t ON t.oid = typed.oid WHERE t.typdefault IS NOT NULL
"""
_TRIGGERS = f"""
SELECT DISTINCT t.tgname::text, c.relname::text, n.nspname::text, l.lanname::text,
       pg_catalog.left(p.prosrc, {_MAX_CODE + 1}),
       pg_catalog.encode(t.tgargs, 'escape'), t.tgrelid::bigint
FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
JOIN pg_catalog.pg_language l ON l.oid = p.prolang
JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE t.tgrelid = ANY ({{0}}::oid[]) AND NOT t.tgisinternal AND t.tgtype & 3 = 3 AND t.tgtype & 20 <> 0
  AND t.tgenabled NOT IN ('D', 'R')
"""
"""Query of the enabled row triggers before an insert or update, with the code of their functions."""

_FUNCTIONS = f"""
SELECT n.nspname::text, p.proname::text, l.lanname::text, pg_catalog.left(
           CASE WHEN l.lanname = 'sql' AND p.prosrc = '' THEN pg_catalog.pg_get_functiondef(p.oid) ELSE p.prosrc END,
           {_MAX_CODE + 1}),
       p.provolatile::text = 'v',
       EXISTS (SELECT FROM pg_catalog.pg_proc b WHERE b.proname = p.proname
               AND b.pronamespace = 'pg_catalog'::regnamespace)
FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
JOIN pg_catalog.pg_language l ON l.oid = p.prolang
WHERE p.proname = ANY ({{0}}::text[]) AND n.nspname NOT IN ('pg_catalog', 'information_schema')
"""
_MAX_DEPTH = 5
"""Greatest depth of nested function calls to which called functions are read; deeper ones are ignored."""

_MAX_EVALUATIONS = 100
"""Greatest number of expressions of constants that are evaluated for one default or trigger.

The values of further ones count as unknown.
"""

_MAX_QUOTED = 200
"""Greatest length of code that a message quotes, in characters."""

_SEQUENCE_FUNCTIONS = ("nextval", "currval")
_CONSTANT = re.compile(r"[\s(]*+'([^']*+(?:''[^']*+)*)'(?:::[\w.]++|[\s)]++)*")
_NAME = re.compile(r'(?:"(?:[^"]|"")+"|[A-Za-z_][\w$]*+)(?:\.(?:"(?:[^"]|"")+"|[A-Za-z_][\w$]*+))?')
_MAX_NAME = 200
"""Length in characters from which on a text is not taken for the name of a sequence."""

_OPAQUE = re.compile(r"\b(?:lastval|current_setting)\s*+\(|\b(?:from|returning|execute)\b", re.IGNORECASE)
_INSERTED = re.compile(
    r'\binsert into ((?:"[^"]*+(?:""[^"]*+)*"|[\w$]++)(?:\.(?:"[^"]*+(?:""[^"]*+)*"|[\w$]++))?)', re.IGNORECASE
)
_RETURNING = re.compile(r"\breturning\b", re.IGNORECASE)
_NAMES_TABLE = re.compile(r"\btg_(?:table|rel)", re.IGNORECASE)
_EXECUTES = re.compile(r"\bexecute\b", re.IGNORECASE)
_TRIGGER_VARIABLE = re.compile(
    r"(?<![\w$.])(?:tg_table_name|tg_relname|tg_table_schema|tg_name|tg_argv\[[0-9]++\])(?![\w$])", re.IGNORECASE
)
_READABLE = frozenset({"sql", "plpgsql"})
_CLOCK_TRIGGERS = frozenset({"moddatetime"})
"""C trigger functions that set a column to the time of the transaction."""

_SEQUENCE_TRIGGERS = frozenset({"autoinc"})
"""C trigger functions whose arguments name sequences."""


class _TooLongError(Exception):
    """Error of code that exceeds :data:`_MAX_CODE` or :data:`_MAX_CALLED`.

    Its text is the part of a message that follows the name of the code, such as ``is longer than 256 KiB``.
    """


@dataclass(frozen=True, slots=True)
class CursorAssignment:
    """A default, generated column or trigger that gives the cursor its value in new or updated rows.

    :param label: description of this code for messages, such as ``trigger t of public.orders``
    :param texts: SQL texts of the code that determines the value, with those of the functions that it calls
    :param values: SQL expressions in this code whose results may be the cursor's value
    :param own: whether the code is a single expression that calls only functions of the server, none of a user
    :param trigger: whether the code is a trigger
    :param generated: whether the code is a generated column's expression, which computes the cursor from other columns
    :param sequences: oids of the sequences from which the value may come
    :param unreadable: reason why the possible values cannot be known, as the part of a message that follows ``label``,
        such as ``is written in plpython3u``; None if they can be known
    """

    label: str
    texts: Sequence[str]
    values: Sequence[str]
    own: bool = False
    trigger: bool = False
    generated: bool = False
    sequences: frozenset[int] = frozenset()
    unreadable: str | None = None


def cursor_assignments(fetch: Fetch, columns: Sequence[OriginColumn]) -> Sequence[CursorAssignment]:
    """Return all code that fills one of the given columns in new or updated rows.

    :param fetch: runs a query on the source database and returns its rows
    :param columns: the columns of the relations from which the cursor's values come
    """
    return [*_defaults(fetch, columns), *_triggers(fetch, columns)]


def _defaults(fetch: Fetch, columns: Sequence[OriginColumn]) -> Iterator[CursorAssignment]:
    oids, numbers = array_text(item.relation for item in columns), array_text(item.number for item in columns)
    for text, generated in fetch(_DEFAULTS, [oids, numbers]):
        label = f"its {'expression' if generated else 'default'}"
        try:
            _check_length(text)
            found, unreadable = _with_called_functions(fetch, [text])
        except _TooLongError as error:
            yield CursorAssignment(label, [], [], generated=generated, unreadable=str(error))
            continue
        assignment = CursorAssignment(
            f"{label} {_quote(text)}",
            found,
            found,
            own=len(found) == 1 and unreadable is None,
            generated=generated,
            unreadable=unreadable,
        )
        yield _with_sequences(fetch, assignment, [])


def _triggers(fetch: Fetch, columns: Sequence[OriginColumn]) -> Iterator[CursorAssignment]:
    names = {(item.relation, item.name) for item in columns}
    oids = array_text(sorted({item.relation for item in columns}))
    seen: set[tuple[str, ...]] = set()
    for trigger, table, schema, language, body, encoded, oid in fetch(_TRIGGERS, [oids]):
        same = (body, encoded, *((schema, table) if _NAMES_TABLE.search(body) else ()))
        passed = [part for part in encoded.split("\\000") if part]
        for column in sorted(name for relation, name in names if relation == oid):
            if (column, *same) in seen:  # the same trigger of another partition
                continue
            seen.add((column, *same))
            assignment = CursorAssignment(f"trigger {trigger} of {schema}.{table}", [], [], trigger=True)
            try:
                _check_length(body)
                if language == "plpgsql":
                    variables = {
                        "tg_table_name": table,
                        "tg_relname": table,
                        "tg_table_schema": schema,
                        "tg_name": trigger,
                    } | {f"tg_argv[{index}]": part for index, part in enumerate(passed)}
                    yield from _trigger_code(fetch, assignment, TriggerCode(body), column, variables, passed)
                elif column in (*passed, *re.findall(r"[\w$]+", body)) and body not in _CLOCK_TRIGGERS:
                    known = find_sequences(fetch, _valid_names(passed)) if body in _SEQUENCE_TRIGGERS else frozenset()
                    reason = None if known else f"is written in {language}"
                    yield replace(assignment, sequences=known, unreadable=reason)
            except _TooLongError as error:
                yield replace(assignment, unreadable=str(error))


def _trigger_code(
    fetch: Fetch,
    assignment: CursorAssignment,
    code: TriggerCode,
    column: str,
    variables: dict[str, str],
    passed: Sequence[str],
) -> Iterator[CursorAssignment]:
    """Yield the assignment of a trigger to a column, if the trigger gives the column its value; else nothing.

    :param fetch: runs a query on the source database and returns its rows
    :param assignment: description of the trigger, still without its code
    :param code: the body of the trigger's function
    :param column: name of the column
    :param variables: values of PL/pgSQL's special variables in this trigger, by name, such as ``tg_table_name``
    :param passed: the arguments of the trigger
    :raises _TooLongError: if the functions that the code calls are too long
    """
    statements = code.assigning_statements(column)
    if not statements:
        return
    texts, unreadable = _with_called_functions(fetch, [item.text for item in statements])
    if not _uses_sequence(texts) and any(_OPAQUE.search(text) for text in texts):
        texts, unreadable = _with_called_functions(fetch, [item.text for item in code.statements])
    values, _ = _with_called_functions(fetch, [value for item in statements for value in item.values])
    told_texts = [_substitute(text, variables) for text in texts]
    found = replace(assignment, texts=told_texts, values=values, unreadable=unreadable)
    found = _with_sequences(fetch, found, passed)
    if any(column in (*passed, *re.findall(r"[\w$]+", text)) for text in texts):
        yield found
    else:  # no text names this column, so the code assigns a whole row
        yield replace(found, values=[], unreadable=None)


def _with_sequences(fetch: Fetch, assignment: CursorAssignment, passed: Sequence[str]) -> CursorAssignment:
    """Return an assignment with the sequences that its code names added or, if they cannot be known, the reason.

    :param fetch: runs a query on the source database and returns its rows
    :param assignment: the code that fills the cursor
    :param passed: the arguments of the trigger; empty for other code
    """
    texts = [
        *assignment.texts,
        *(inner for text in assignment.texts for inner in string_literals(text) if _uses_sequence([inner])),
    ]
    given: set[str] = set()
    unknown = [text for text in texts if _EXECUTES.search(text)][:1]
    evaluations = 0
    for argument in dict.fromkeys(call for text in texts for call in call_arguments(text, _SEQUENCE_FUNCTIONS)):
        name: str | None = None
        if constant := _CONSTANT.fullmatch(argument):
            name = constant[1].replace("''", "'")
        elif evaluations < _MAX_EVALUATIONS:
            evaluations += 1
            name = evaluate_constants(fetch, argument)
        if name is None or not _valid_names([name]):
            unknown.append(argument)
        else:
            given.add(name)
    numbered = [name for text in texts for name in _numbering_table(text)]
    sequences = find_sequences(fetch, _valid_names(given)) | sequences_of_tables(fetch, numbered)
    if not unknown:
        return replace(assignment, sequences=sequences)
    mentioned = sequences | find_sequences(
        fetch, _valid_names([*passed, *(constant for text in texts for constant in string_literals(text))])
    )
    if mentioned:
        return replace(assignment, sequences=mentioned)
    reason = assignment.unreadable or f"takes it from an expression known only at run time ({_quote(unknown[0])})"
    return replace(assignment, unreadable=reason)


def _with_called_functions(fetch: Fetch, texts: Sequence[str]) -> tuple[list[str], str | None]:
    """Return SQL texts together with the statements of the functions that they call, to a depth of five calls.

    :param fetch: runs a query on the source database and returns its rows
    :param texts: the SQL texts
    :return: all texts; and, if a called function is not written in SQL or PL/pgSQL, the part of a message about it,
        such as ``calls public.f, which is written in c``; else None
    :raises _TooLongError: if one of these functions, or all together, are too long
    """
    found, unreadable = list(texts), None
    seen: set[tuple[str, str, str]] = set()
    length = 0
    for _ in range(_MAX_DEPTH):
        called = {call for text in texts for call in called_functions(text)}
        if not called:
            break
        rows = fetch(_FUNCTIONS, [array_text(sorted({name for _, name in called}))])
        texts = []
        for schema, name, language, body, volatile, hidden in rows:
            if ((schema, name) not in called and (None, name) not in called) or (schema, name, body) in seen:
                continue
            seen.add((schema, name, body))
            overshadowed = hidden and (schema, name) not in called
            if language not in _READABLE:
                if volatile and not overshadowed:
                    unreadable = f"calls {schema}.{name}, which is written in {language}"
            elif len(body) <= _MAX_CODE and length + len(body) <= _MAX_CALLED:
                length += len(body)
                texts += split_statements(body)
            elif not overshadowed:
                most, what = (
                    (_MAX_CODE, "is") if len(body) > _MAX_CODE else (_MAX_CALLED, "with its other functions is")
                )
                raise _TooLongError(f"calls {schema}.{name}, which {what} longer than {most >> 10} KiB")
        found += texts
    return found, unreadable


def _check_length(code: str) -> None:
    if len(code) > _MAX_CODE:
        raise _TooLongError(f"is longer than {_MAX_CODE >> 10} KiB")


def _quote(code: str) -> str:
    """Return code on one line and truncated, to be quoted in a message."""
    return for_message(" ".join(code.split()), _MAX_QUOTED)


def _numbering_table(text: str) -> list[str]:
    """Return the name of the table into which a statement inserts a row to obtain a number (``INSERT … RETURNING``).

    The number then comes from the sequences of that table.

    :param text: the statement
    :return: a list of the one name; empty for any other statement
    """
    inserted = _INSERTED.search(text)
    return [inserted[1]] if inserted and _RETURNING.search(text, inserted.end()) else []


def _substitute(text: str, variables: dict[str, str]) -> str:
    """Return an SQL text in which constants replace the special variables of a trigger function.

    A variable whose value is too long to be the name of a sequence is left as it is.

    :param text: the SQL text
    :param variables: values of the variables, by name in lower case
    """

    def constant(found: re.Match[str]) -> str:
        value = variables.get(found[0].lower())
        return found[0] if value is None or len(value) >= _MAX_NAME else "'" + value.replace("'", "''") + "'"

    return _TRIGGER_VARIABLE.sub(constant, text)


def _uses_sequence(texts: Iterable[str]) -> bool:
    return any(True for text in texts for _ in call_arguments(text, _SEQUENCE_FUNCTIONS))


def _valid_names(texts: Iterable[str]) -> list[str]:
    return [text for text in texts if len(text) < _MAX_NAME and _NAME.fullmatch(text)]
