"""Parse SQL and PL/pgSQL by regular expressions: statements, assignments, calls and literals.

The code comes from the source database, so the time to parse it must be linear in its length. To achieve this, a
regular expression either consumes the text that it has scanned, or scans no further than to where its next match can
begin.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

_QUOTED = r"'[^']*+(?:''[^']*+)*'"
_QUOTED_NAME = r'"[^"]*+(?:""[^"]*+)*"'
_DOLLARS = r"\$[A-Za-z_]*+\$"
_TOKEN = re.compile(
    r"(?P<line>--[^\n]*+)|(?P<comment>/\*)"
    rf"|(?P<literal>\b[eE]'[^'\\]*+(?:(?:''|\\.)[^'\\]*+)*'|{_QUOTED})|(?P<dollars>{_DOLLARS})"
    rf"|(?P<name>{_QUOTED_NAME})|(?P<end>;)|(?P<space>\s++)",
    re.DOTALL,
)
_LITERAL = re.compile(rf"{_QUOTED}|{_DOLLARS}")
_LITERAL_OR_PARENTHESIS = re.compile(rf"[()]|{_QUOTED}|{_DOLLARS}")
_CLOSING = re.compile(rf"(?=({_DOLLARS}|\*/))")
_SIMPLE = re.compile(r'"([a-z_][a-z0-9_$]*)"')
_NAME = rf"(?:{_QUOTED_NAME}|[A-Za-z_][\w$]*+)"
_TARGET = rf"{_NAME}(?:\.{_NAME}|\[[^\[\]]*+\])*"
_TARGETS = rf"{_TARGET}(?:\s*+,\s*+{_TARGET})*"
_ASSIGNED = re.compile(
    rf"(?:^|\b(?:begin|then|else|loop|declare)\b|>>)\s*+({_TARGET})\s*+(?::=|=)\s*+(.+)", re.IGNORECASE | re.DOTALL
)
_DECLARATION = (
    rf"(?!declare\b)\s*+({_NAME})\s++"
    r"(?:[^:='(]+?(?:\([^()]*+\)[^:='(]*?)?(?::=|=|\bdefault\b)\s*+(.+)|[^:='(]++)"
)
"""Pattern of a variable's declaration, with its initial value if it has one."""

_DECLARED = re.compile(rf"\bdeclare {_DECLARATION}", re.IGNORECASE | re.DOTALL)
"""Pattern of the first declaration of a block, whose DECLARE may follow the beginning of another block."""

_DECLARED_NEXT = re.compile(_DECLARATION, re.IGNORECASE | re.DOTALL)
"""Pattern of a further declaration of a block, at the beginning of a statement."""

_INTO = re.compile(rf"(?<!insert )(?<!merge )\binto (?:strict )?({_TARGETS})", re.IGNORECASE | re.DOTALL)
_CURSOR = re.compile(
    rf"(?:(?:^|\bdeclare )(?!declare\b)\s*+({_NAME}) (?:(?:no )?scroll )?cursor|\bopen ({_NAME}))\b", re.IGNORECASE
)
"""Pattern of the declaration or opening of a PL/pgSQL cursor, whose query gives values to the targets of FETCH."""

_FOR = re.compile(rf"\bfor(?:each)? ({_TARGETS})(?: slice \d++)? in\b", re.IGNORECASE)
_TYPED = re.compile(
    rf"(?:^|\bdeclare )(?!declare\b)\s*+({_NAME}) ((?:date\b|timestamp(?:tz)? ?\(\d\)).*)", re.IGNORECASE | re.DOTALL
)
"""Pattern of a variable's declaration whose type rounds a time, such as ``date``."""

_SELECTED = re.compile(rf"\bselect (?:into (?:strict )?{_TARGETS} (.+)|(.+?) into |.+)", re.IGNORECASE | re.DOTALL)
"""Pattern of a query whose result is assigned to variables.

Any other query is matched to its end and skipped, since it assigns nothing.
"""

_RETURNED = re.compile(r"\breturn (.+)", re.IGNORECASE | re.DOTALL)
_ALIAS = re.compile(rf"({_NAME})( alias for new\b)?", re.IGNORECASE)
_UNQUALIFIED = re.compile(rf"(?<![\w$.]){_NAME}")
_WORD = re.compile(rf"(?<![\w$.'])(?:(?:new|old)\.)?{_NAME}", re.IGNORECASE)
_CALL = re.compile(rf"({_NAME}(?:\.{_NAME})*)\s*+(\()?")
# fmt: off
_KEYWORDS = frozenset({
    "if", "elsif", "while", "when", "select", "perform", "return", "raise", "update", "insert", "delete", "case",
    "for", "foreach", "with", "execute", "exit", "else", "then", "begin", "end", "loop", "declare", "into", "strict",
    "from", "where", "and", "or", "not", "null", "is", "in", "as", "new", "old", "on", "by", "values", "set",
    "returning",
})
# fmt: on
_WHOLE_ROWS = frozenset({"new", "old", "null"})


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of PL/pgSQL, with the text before it (``IF … THEN``).

    :param text: the statement, without comments
    :param assigned: names of the variables that the statement assigns, in lower case: ``new.field`` for a field of the
        new row, or a variable without its field
    :param values: SQL expressions whose values the statement assigns, as far as patterns find them in the statement
    """

    text: str
    assigned: frozenset[str]
    values: Sequence[str]

    @property
    def words(self) -> frozenset[str]:
        """Names in the statement that may be variables which it uses, written as in ``assigned``."""
        found = {_variable_name(word) for word in _WORD.findall(_without_literals(self.text))}
        return frozenset(found - _KEYWORDS)


class TriggerCode:
    """Body of a trigger function in PL/pgSQL, parsed on demand.

    :param body: source code of the function's body
    """

    def __init__(self, body: str) -> None:
        statements = split_statements(body)
        aliases = {name for text in statements for name, alias in _ALIAS.findall(text) if alias}
        if aliases:
            statements = [
                _UNQUALIFIED.sub(lambda found: "new" if found[0] in aliases else found[0], text) for text in statements
            ]
        self._texts = statements

    @cached_property
    def statements(self) -> Sequence[Statement]:
        """All statements of the body, in order."""
        return [_parse_statement(text) for text in self._texts]

    def assigning_statements(self, column: str) -> Sequence[Statement]:
        """Return the statements that may determine the value of a column of the new row.

        These are the statements that assign it, and those that assign variables that such statements use. The result is
        empty if no statement assigns the column.

        :param column: name of the column
        """
        assigning: dict[str, list[int]] = {}
        for number, statement in enumerate(self.statements):
            for name in statement.assigned:
                assigning.setdefault(name, []).append(number)
        found: dict[int, Statement] = {}
        known: set[str] = set()
        wanted = {f"new.{column.lower()}", "new"}
        while wanted:
            known |= wanted
            more = {number for name in wanted for number in assigning.get(name, ()) if number not in found}
            found |= {number: self.statements[number] for number in sorted(more)}
            wanted = {word for number in more for word in found[number].words} - known
        return list(found.values())


def split_statements(code: str) -> list[str]:
    """Split SQL or PL/pgSQL code at semicolons into statements, without comments and with single spaces."""
    statements: list[str] = []
    parts: list[str] = []
    closings = _Closings(code)
    copied, at = 0, 0
    while token := _TOKEN.search(code, at):
        at = token.end()
        kind, text = token.lastgroup, token[0]
        if kind in ("comment", "dollars"):
            end = closings.after("*/" if kind == "comment" else text, at)
            if end is None:  # never closed, so neither a comment nor a literal
                at = token.start() + 1
                continue
            at, text = end, code[token.start() : end]
        parts.append(code[copied : token.start()])
        copied = at
        match kind:
            case "end":
                statements.append("".join(parts))
                parts = []
            case "line" | "comment" | "space":
                parts.append(" ")
            case "name":
                simple = _SIMPLE.fullmatch(text)
                parts.append(simple[1] if simple else text)
            case _:
                parts.append(text)
    statements.append("".join(parts) + code[copied:])
    texts = (re.sub(r"(?<=[\w\"]) ?\. ?(?=[A-Za-z_\"])", ".", re.sub(r" ++", " ", part)).strip() for part in statements)
    return [text for text in texts if text]


def string_literals(text: str) -> list[str]:
    """Return the values of all string constants in an SQL text, in order."""
    return [value for _, _, value in _literals(text)]


def called_functions(text: str) -> Iterator[tuple[str | None, str]]:
    """Yield the schema (None if the call does not name it) and the name of each function that an SQL text calls."""
    for names, call in _CALL.findall(_without_literals(text)):
        if call:
            *schema, name = (catalog_name(part) for part in re.findall(_NAME, names)[-2:])
            yield (schema[0] if schema else None), name


def call_arguments(text: str, functions: Collection[str]) -> Iterator[str]:
    """Yield the arguments of each call of one of the given functions, as one text for each call.

    A call inside the arguments of another is not yielded. If a parenthesis is never closed, the arguments extend to the
    end of the text.

    :param text: SQL code
    :param functions: names of the functions, in any letter case
    """
    call = re.compile(rf"(?<![\w$])(?:{'|'.join(functions)})\s*+\(", re.IGNORECASE)
    closings = _Closings(text)
    at = 0
    while found := call.search(text, at):
        depth, at = 1, found.end()
        while depth and (token := _LITERAL_OR_PARENTHESIS.search(text, at)):
            at = token.end()
            if token[0] in "()":
                depth += 1 if token[0] == "(" else -1
            elif token[0].startswith("$"):
                at = closings.after(token[0], at) or token.start() + 1
        end, at = (len(text), len(text)) if depth else (at - 1, at)
        yield text[found.end() : end].strip()


def catalog_name(name: str) -> str:
    """Return an SQL identifier as the catalog stores it: without its quotes, or in lower case if it has none.

    :param name: the identifier as it is written in SQL
    """
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()


def _parse_statement(text: str) -> Statement:
    assigned: set[str] = set()
    values: list[str] = []
    declared = next((match for match in _DECLARED.finditer(text) if match[2]), None)
    for found in (_ASSIGNED.search(text) or _DECLARED_NEXT.match(text), declared):
        if found is None or not found[2]:
            continue
        name, value = _variable_name(found[1]), found[2].strip()
        if name not in _KEYWORDS - {"new"} and not (name == "new" and value.lower() in _WHOLE_ROWS):
            assigned.add(name)
            values.append(value)
    for pattern in (_INTO, _FOR):
        for names in pattern.findall(text):
            assigned |= {_variable_name(name) for name in re.findall(_TARGET, names)}
    values += [after or before for after, before in _SELECTED.findall(text) if after or before]
    assigned |= {catalog_name(declared or opened) for declared, opened in _CURSOR.findall(text)}
    if typed := _TYPED.search(text):
        assigned.add(_variable_name(typed[1]))
        values.append(f"{typed[1]}::{typed[2]}")
    if (returned := _RETURNED.search(text)) and returned[1].strip(" ()").lower() not in _WHOLE_ROWS:
        assigned.add("new")
    return Statement(text, frozenset(assigned), values)


def _variable_name(name: str) -> str:
    """Return the name of a variable without its field; for the new or old row with its field, such as ``new.id``."""
    first, _, rest = name.partition(".")
    row = catalog_name(first.partition("[")[0])
    return f"{row}.{catalog_name(rest.partition('[')[0]).lower()}" if row in ("new", "old") and rest else row


class _Closings:
    """Positions at which the dollar quotes and comments of one text end, found by a single scan.

    :param text: SQL code
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._last = {found[1]: found.start() for found in _CLOSING.finditer(text)}

    def after(self, closing: str, at: int) -> int | None:
        """Return the index after the first occurrence of a closing mark at or after an index; None if there is none.

        :param closing: the mark: ``*/`` or a dollar quote
        :param at: index in the text at which to begin
        """
        return self._text.index(closing, at) + len(closing) if self._last.get(closing, -1) >= at else None


def _literals(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield start index, end index and value of each string constant in an SQL text."""
    closings = _Closings(text)
    at = 0
    while found := _LITERAL.search(text, at):
        quotes, end = found[0], found.end()
        if quotes.startswith("'"):
            yield found.start(), end, quotes[1:-1].replace("''", "'")
            at = end
        elif (closed := closings.after(quotes, end)) is not None:
            yield found.start(), closed, text[end : closed - len(quotes)]
            at = closed
        else:
            at = found.start() + 1


def _without_literals(text: str) -> str:
    """Return an SQL text in which an empty string constant replaces each string constant."""
    parts, last = [], 0
    for start, end, _ in _literals(text):
        parts += [text[last:start], "''"]
        last = end
    return "".join(parts) + text[last:]
