"""Parse SQL and PL/pgSQL by regular expressions: statements, assignments, calls and literals."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

_TOKEN = re.compile(
    r"(?P<comment>--[^\n]*|/\*.*?\*/)"
    r"|(?P<literal>\b[eE]'(?:[^'\\]|''|\\.)*'|'(?:[^']|'')*'|\$(?P<tag>[A-Za-z_]*)\$.*?\$(?P=tag)\$)"
    r'|(?P<name>"(?:[^"]|"")*")'
    r"|(?P<end>;)|(?P<space>\s+)",
    re.DOTALL,
)
_SIMPLE = re.compile(r'"([a-z_][a-z0-9_$]*)"')
_NAME = r'(?:"(?:[^"]|"")+"|[A-Za-z_][\w$]*)'
_TARGET = rf"{_NAME}(?:\.{_NAME})*(?:\[[^\]]*\])*(?:\.{_NAME})*"
_ASSIGNED = re.compile(
    rf"(?:^|\b(?:begin|then|else|loop|declare)\b|>>)\s*({_TARGET})\s*(?::=|=)\s*(.+)$", re.IGNORECASE | re.DOTALL
)
_DECLARED = re.compile(
    rf"(?:^|\bdeclare )(?!declare\b)\s*({_NAME})\s+[^:='(]+(?:\([^)]*\))?[^:='(]*?(?::=|=|\bdefault\b)\s*(.+)$",
    re.IGNORECASE | re.DOTALL,
)
_INTO = re.compile(
    rf"(?<!insert )(?<!merge )\binto (?:strict )?({_TARGET}(?:\s*,\s*{_TARGET})*)", re.IGNORECASE | re.DOTALL
)
_FOR = re.compile(rf"\bfor(?:each)? ({_TARGET}(?:\s*,\s*{_TARGET})*)(?: slice \d+)? in\b", re.IGNORECASE)
_TYPED = re.compile(
    rf"(?:^|\bdeclare )(?!declare\b)\s*({_NAME}) ((?:date\b|timestamp(?:tz)? ?\(\d\)).*)$", re.IGNORECASE | re.DOTALL
)
"""A declaration by whose type a time is rounded."""

_SELECTED = re.compile(
    rf"\bselect (?:into (?:strict )?{_TARGET}(?:\s*,\s*{_TARGET})* (.+)$|(.+?) into )", re.IGNORECASE | re.DOTALL
)
_RETURNED = re.compile(r"\breturn (.+)$", re.IGNORECASE | re.DOTALL)
_ALIAS = re.compile(rf"({_NAME}) alias for new\b", re.IGNORECASE)
_WORD = re.compile(rf"(?<![\w$.'])(?:(?:new|old)\.)?{_NAME}", re.IGNORECASE)
_CALL = re.compile(rf"(?:({_NAME})\.)?({_NAME})\s*\(")
_LITERAL = re.compile(r"\$([A-Za-z_]*)\$(.*?)\$\1\$|'((?:[^']|'')*)'", re.DOTALL)
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
    :param assigned: names of what it assigns, in lower case: ``new.field``, or a variable without its field
    :param values: assigned expressions as SQL, where they can be separated from the statement
    """

    text: str
    assigned: frozenset[str]
    values: Sequence[str]

    @property
    def words(self) -> frozenset[str]:
        """Names of the variables that it may use."""
        found = {_variable_name(word) for word in _WORD.findall(_LITERAL.sub("''", self.text))}
        return frozenset(found - _KEYWORDS)


class TriggerCode:
    """Body of a trigger function in PL/pgSQL."""

    def __init__(self, body: str) -> None:
        statements = split_statements(body)
        for alias in {name for text in statements for name in _ALIAS.findall(text)}:
            statements = [re.sub(rf"(?<![\w$.]){re.escape(alias)}(?![\w$])", "new", text) for text in statements]
        self._texts = statements

    @cached_property
    def statements(self) -> Sequence[Statement]:
        """All statements, in order."""
        return [_parse_statement(text) for text in self._texts]

    def assignment(self, column: str) -> Sequence[Statement]:
        """Return the statements that may determine a column of the new row; empty if none assigns it."""
        wanted = {f"new.{column.lower()}", "new"}
        found: list[Statement] = []
        while True:
            more = [item for item in self.statements if item not in found and item.assigned & wanted]
            if not more:
                return found
            found += more
            wanted |= {word for item in more for word in item.words}


def split_statements(code: str) -> list[str]:
    """Return the statements of a text, without comments and with single spaces."""
    parts, last = [""], 0
    for token in _TOKEN.finditer(code):
        parts[-1] += code[last : token.start()]
        last = token.end()
        match token.lastgroup:
            case "end":
                parts.append("")
            case "comment" | "space":
                parts[-1] += " "
            case "name":
                simple = _SIMPLE.fullmatch(token[0])
                parts[-1] += simple[1] if simple else token[0]
            case _:
                parts[-1] += token[0]
    parts[-1] += code[last:]
    return [re.sub(r"(?<=[\w\"]) ?\. ?(?=[A-Za-z_\"])", ".", re.sub(r" +", " ", part)).strip() for part in parts]


def string_literals(text: str) -> list[str]:
    """Return the values of the string constants in a text."""
    return [match[2] if match[2] is not None else match[3].replace("''", "'") for match in _LITERAL.finditer(text)]


def called_functions(text: str) -> Iterator[tuple[str | None, str]]:
    """Yield schema (None if it is not named) and name of each function that a text calls."""
    for schema, name in _CALL.findall(_LITERAL.sub("''", text)):
        yield (catalog_name(schema) if schema else None), catalog_name(name)


def call_arguments(text: str, functions: Collection[str]) -> Iterator[str]:
    """Yield the arguments, as one text, of each call of the functions with these names."""
    pattern = rf"(?<![\w$])(?:{'|'.join(functions)})\s*\("
    for match in re.finditer(pattern, text, re.IGNORECASE):
        depth, end = 1, match.end()
        while depth and end < len(text):
            quoted = _LITERAL.match(text, end)
            if quoted:
                end = quoted.end()
                continue
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        yield text[match.end() : end - 1].strip()


def catalog_name(name: str) -> str:
    """Return a name as it is in the catalog: without quotes, or in lower case."""
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()


def _parse_statement(text: str) -> Statement:
    assigned: set[str] = set()
    values: list[str] = []
    if (found := _ASSIGNED.search(text)) or (found := _DECLARED.search(text)):
        name, value = _variable_name(found[1]), found[2].strip()
        if name not in _KEYWORDS - {"new"} and not (name == "new" and value.lower() in _WHOLE_ROWS):
            assigned.add(name)
            values.append(value)
    for pattern in (_INTO, _FOR):
        for names in pattern.findall(text):
            assigned |= {_variable_name(name) for name in re.findall(_TARGET, names)}
    values += [after or before for after, before in _SELECTED.findall(text)]
    if typed := _TYPED.search(text):
        assigned.add(_variable_name(typed[1]))
        values.append(f"{typed[1]}::{typed[2]}")
    if (returned := _RETURNED.search(text)) and returned[1].strip(" ()").lower() not in _WHOLE_ROWS:
        assigned.add("new")
    return Statement(text, frozenset(assigned), values)


def _variable_name(name: str) -> str:
    """Return the name of a variable, or of a field of the new or old row."""
    first, _, rest = name.partition(".")
    row = catalog_name(first.partition("[")[0])
    return f"{row}.{catalog_name(rest.partition('[')[0]).lower()}" if row in ("new", "old") and rest else row
