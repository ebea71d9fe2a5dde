"""Loading any YAML file soon gives a pipeline, or a few short lines that say where and how the file is wrong."""

from __future__ import annotations

import os
import string
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_provider_ckpt.config.document import Document, NotReadableError
from airflow_provider_ckpt.config.load import MAX_BYTES, MAX_PROBLEMS, build, load, parse
from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.config.warnings import warnings
from airflow_provider_ckpt.core.errors import ConfigError

SECONDS = 5.0
"""Seconds of processor time for the largest declarations that are looked at, on a slow machine."""

GOOD = """\
name: orders
source: {type: files, path: /in}
transform: {decode: json, schema: id bigint}
sink: {type: delta, path: /out}
"""

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + at)}: &{chr(98 + at)} [{', '.join(['*' + chr(97 + at)] * 9)}]\n" for at in range(9)
)

HOSTILE = {
    "aliases of aliases": (LAUGHS, "is too large: 10,000 keys and values"),
    "aliases of aliases, of keys": (LAUGHS.replace("[", "{k: [").replace("]", "]}"), "is too large"),
    "20,000 unknown keys": ("".join(f"k{at}: 1\n" for at in range(20_000)), "too many keys and values: 10,000"),
    "4,000 unknown keys": ("".join(f"k{at}: 1\n" for at in range(4_000)), "and 3,983 more problems"),
    "4,000 wrong values": (f"{GOOD}source.key: [{'[], ' * 4000}]", "unknown key"),
    "open lists": ("[" * 200_000, "nested too deeply"),
    "open mappings": ("{a: " * 60_000, "nested too deeply"),
    "dashes": ("- " * 100_000, "nested too deeply"),
    "question marks": ("? " * 100_000, "nested too deeply"),
    "levels": ("".join(f"{' ' * at}a:\n" for at in range(600)), "nested too deeply"),
    "a text too large": ("a" * (MAX_BYTES + 1), "has 262,145 bytes"),
    "a long key": (f"{GOOD}{'k' * 1000}: 1", "unknown key"),
    "a long value": (f"{GOOD}delivery: {'k' * 200_000}", "is not supported"),
    "a long name": (GOOD.replace("orders", "o" * 100_000), "128 long at most"),
    "a long function": (
        GOOD.replace("decode: json", f"python: {'a.' * 50_000}, decode: json"),
        "transform: python: 'a.a.a",
    ),
    "an alias of itself": ("name: &a [*a]", "contains itself by an alias"),
    "a merge key": (f"{GOOD}retry: {{<<: {{rounds: 1}}}}", "retry.<<: merge keys are not supported"),
    "two documents": (f"{GOOD}---\n{GOOD}", "expected a single document"),
    "a tab": ("name: orders\nsource:\n\ttype: files", "indent with spaces"),
    "a tag": ("name: !!python/object/apply:os.system [ls]", "tag:yaml.org,2002:python/object/apply:os.system is"),
    "a tag of a mapping": ("source: !!set {type, path}", "the tag tag:yaml.org,2002:set is not supported"),
    "a binary": (f"{GOOD}description: !!binary aGVsbG8=", "the tag tag:yaml.org,2002:binary is not supported"),
    "a tag that does not fit": (f"{GOOD}delivery: !!int x", "cannot be read as the int"),
    "a truth value that is none": (f"{GOOD}delivery: !!bool x", "cannot be read as the bool"),
    "a time that is none": (f"{GOOD}delivery: !!timestamp x", "cannot be read as the timestamp"),
    "a day that is none": (f"{GOOD}delivery: 2024-13-45", "cannot be read as the timestamp"),
    "an empty number": (f'{GOOD}delivery: !!int ""', "cannot be read as the int"),
    "minutes": (f"{GOOD}lease: {{ttl: 1:30}}", "lease.ttl: 1:30 would be read as 90; write that"),
    "an octal number": (f"{GOOD}retry: {{rounds: 010}}", "retry.rounds: 010 would be read as 8"),
    "a huge number": (f"{GOOD}retry: {{rounds: {'9' * 5000}}}", "too long for a number"),
    "a huge number in base 60": (f"{GOOD}retry: {{rounds: 1{':59' * 50_000}}}", "too long for a number"),
    "a large number": (f"{GOOD}retry: {{rounds: {'9' * 99}}}", "retry.rounds: must be at most"),
    "no number": (f"{GOOD}retry: {{jitter: .nan}}", "retry.jitter: must be"),
    "infinity": (f"{GOOD}run: {{conf: {{a: .inf}}}}", "run.conf.a: must be text"),
    "a day for a text": (f"{GOOD}run: {{connection: 2024-01-01}}", "must be text (put it in quotes)"),
    "a key that is a list": (f"{GOOD}? [a]\n: b", "a key must be plain text"),
    "a key that is null": (f"{GOOD}~: b", "~: unknown key"),
    "a key given twice": (f"{GOOD}name: b", "name: given twice, first in line 1"),
    "NUL in a path": (GOOD.replace("/in", '"/i\\0n"'), "source.path: holds U+0000"),
    "an escape character": (GOOD.replace("/in", '"/i\\en"'), "source.path: holds U+001B"),
    "a letter from right to left": (GOOD.replace("/in", "/i\u202en"), "U+202E (RIGHT-TO-LEFT OVERRIDE)"),
    "a space of no width in a key": (GOOD.replace("path: /in", "pa\u200bth: /in"), "U+200B (ZERO WIDTH SPACE)"),
    "a line break in a key": (f'{GOOD}"de\\nlivery": x', "the key holds U+000A"),
    "half a character": (f'{GOOD}delivery: "\\ud800"', "U+D800"),
    "an escape of no character": (f'{GOOD}delivery: "\\UFFFFFFFF"', "not valid YAML"),
    "a byte order mark inside": (GOOD.replace("sink", "\ufeffsink"), "U+FEFF"),
    "a Cyrillic letter in a key": (GOOD.replace("path: /in", "p\u0430th: /in"), "U+0430 (CYRILLIC SMALL LETTER A)"),
    "a Cyrillic letter in a name": (GOOD.replace("orders", "\u043erders"), "U+043E (CYRILLIC SMALL LETTER O)"),
    "a Greek letter in a choice": (GOOD.replace("files", "fil\u03b5s"), "U+03B5 (GREEK SMALL LETTER EPSILON)"),
    "an open variable": (GOOD.replace("/in", "'${IN'"), "source.path: has a ${ that is not ${NAME}"),
    "many open variables": (GOOD.replace("/in", "'" + "${a:-" * 40_000 + "'"), "has a ${ that is not ${NAME}"),
    "a variable of an odd name": (GOOD.replace("/in", "'${a b}'"), "has a ${ that is not ${NAME}"),
    "a wrong glob": (GOOD.replace("/in", "/in/**x"), ""),
}


def told(text: str) -> list[str]:
    """The lines of the error of a text, none where it is a pipeline. They are few, short, plain, and come soon."""
    started = time.process_time()
    try:
        parse(text, "my.yaml")
        lines = []
    except ConfigError as error:
        lines = error.message.split("\n")
    assert time.process_time() - started < SECONDS
    assert len(lines) <= MAX_PROBLEMS + 1
    for line in lines:
        assert line.startswith("my.yaml:")
        assert len(line) <= 503
        assert line.isprintable()
        assert not any(word in line for word in ("Error", "Traceback", "Exception", "object at 0x", "__"))
    return lines


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_yaml_is_told_in_a_few_lines(name: str) -> None:
    text, wanted = HOSTILE[name]
    lines = told(text)
    assert any(wanted in line for line in lines) or not wanted, lines


def test_a_byte_order_mark_at_the_beginning_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(GOOD, "utf-8-sig")
    assert load(file).name == "orders"


@pytest.mark.parametrize("value", ["null", "Null", '"null"'])
def test_null_as_the_docs_write_it_is_a_behavior(value: str) -> None:
    of_yaml = parse(f"{GOOD}error_handling: {{missing_field_behavior: {value}}}")
    of_python = build({**parse(GOOD).document(), "error_handling": {"missing_field_behavior": None}})
    assert of_yaml.document() == of_python.document()
    assert of_yaml.error_handling.missing_field_behavior == "null"


def test_no_behavior_at_all_is_not_null() -> None:
    assert told(f"{GOOD}error_handling:\n  missing_field_behavior:\n") == [
        "my.yaml:6: error_handling.missing_field_behavior: is empty; write error, null or skip"
    ]


@pytest.mark.parametrize(
    ("transform", "said"),
    [
        ("select: {a: id, A: id}", "transform.select: a and A differ only in case"),
        ("select: {}", "transform.select: is empty; leave it out"),
        ("select: {a: ' '}", "transform.select: 'a' has no name or no expression; write name: expression"),
        ("select: {'': id}", "transform.select: '' has no name or no expression"),
        ("where: ' '", "transform.where: is empty"),
        ("max_record_bytes: yes", "transform.max_record_bytes: must be a number, not true or false"),
        ("max_record_bytes: 0", "transform.max_record_bytes: must be at least 1"),
        ("delimiter: ab", 'transform.delimiter: must be one character, such as ";" or "\\t"'),
        ("delimiter: '\"'", 'transform.delimiter: must be one character, such as ";" or "\\t"'),
        ("python: 'a:b', returns: ' '", "transform.returns: is empty"),
    ],
)
def test_a_transform_that_cannot_be_meant_is_refused_by_its_key_and_line(transform: str, said: str) -> None:
    (line,) = told(GOOD.replace("schema: id bigint", f"schema: id bigint, {transform}"))
    assert line.startswith(f"my.yaml:3: {said}"), line


def test_a_column_that_is_named_twice_or_not_at_all_is_refused_by_its_key_and_line() -> None:
    tables = (
        "name: orders\nsource: {type: postgres, connection: c, table: t, cursor: id, columns: [a, b, a]}\n"
        "sink: {type: postgres, connection: c, table: u, mode: upsert, key: ['']}\n"
    )
    assert told(tables) == [
        "my.yaml:2: source.columns: names a twice; leave one out",
        "my.yaml:3: sink.key: holds an empty name; leave it out",
    ]


def test_a_word_of_two_alphabets_is_told_and_one_of_another_is_not() -> None:
    def into(table: str) -> Pipeline:
        return parse(GOOD.replace("{type: delta, path: /out}", f"{{type: postgres, connection: c, table: {table}}}"))

    mixed, other = into("\u043erders"), into("\u0437\u0430\u043a\u0430\u0437\u044b_2")

    assert [line for line in warnings(mixed) if "alphabets" in line] == [
        "sink.table mixes alphabets in one word: in \u043erders the '\u043e' is U+043E (CYRILLIC SMALL LETTER O)"
    ]
    assert not [line for line in warnings(other) if "alphabets" in line]


def test_a_schema_of_nothing_is_refused_by_its_key_and_line() -> None:
    (line,) = told(GOOD.replace("id bigint", "' '"))
    assert line.startswith("my.yaml:3: transform.schema: is empty")


def test_a_control_character_separates_fields_where_it_is_meant() -> None:
    text = GOOD.replace("decode: json", 'decode: csv, delimiter: "\\x01"')
    assert parse(text).transform.delimiter == "\x01"


@pytest.mark.parametrize("delimiter", ["\0", "\ud800"])
def test_a_delimiter_that_no_ledger_can_keep_is_refused_by_its_key(delimiter: str) -> None:
    data = parse(GOOD).document()
    data["transform"] |= {"decode": "csv", "delimiter": delimiter}

    with pytest.raises(ConfigError, match=r"pipeline: transform\.delimiter: "):
        build(data)


def test_a_nul_that_yaml_writes_as_a_delimiter_is_refused_by_its_key_and_line() -> None:
    (line,) = told(GOOD.replace("decode: json", 'decode: csv, delimiter: "\\0"'))
    assert line.startswith("my.yaml:3: transform.delimiter: must be one character")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"transform": {"where": "a = '\0'"}}, "transform.where: holds U+0000"),
        ({"transform": {"select": {"a\x01": "id"}}}, "transform.select.aU+0001: the key holds U+0001"),
        ({"source": {"columns": ["id", "\x1b"]}}, "source.columns.1: holds U+001B"),
        ({"run": {"conf": {"spark.x": "\u202e"}}}, "run.conf.spark.x: holds U+202E (RIGHT-TO-LEFT OVERRIDE)"),
    ],
)
def test_plain_data_may_hold_no_other_characters_than_yaml(changes: dict[str, dict[str, Any]], said: str) -> None:
    data = parse(GOOD).document()
    for part, keys in changes.items():
        data[part] |= keys

    with pytest.raises(ConfigError) as raised:
        build(data)

    assert said in raised.value.message


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a\0b.yaml", "is not a path of a file: it contains U+0000"),
        ("\ud800.yaml", "is not a path of a file: it contains U+D800"),
        ("a" * 5000, "cannot be read: File name too long"),
        ("loop.yaml", "cannot be read: Too many levels of symbolic links"),
        ("pipe.yaml", "is not a regular file; a pipeline is declared in a YAML file"),
        ("folder.yaml", "is a directory; a pipeline is declared in a YAML file"),
        ("large.yaml", "has 262,146 bytes; a declaration has 262,144 at most"),
        ("missing.yaml", "cannot be read: No such file or directory"),
        ("utf-16.yaml", "is not UTF-8 text: invalid start byte at byte 0; save the file as UTF-8"),
    ],
)
def test_a_path_that_holds_no_declaration_is_told_in_a_line(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "loop.yaml").symlink_to(tmp_path / "loop.yaml")
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "large.yaml").write_bytes(b"#" * (MAX_BYTES + 2))
    (tmp_path / "utf-16.yaml").write_text(GOOD, "utf-16")

    with pytest.raises(ConfigError) as caught:
        load(f"{tmp_path}/{name}")

    assert caught.value.message.endswith(said)
    assert len(caught.value.message) < 600
    assert caught.value.message.isprintable()


WORDS = st.sampled_from(
    [
        *GOOD.split(),
        "...",
        "1:30",
        "0x",
        ".inf",
        "${",
        "\\x00",
        *"{}[]:,|>'#~\"\n\t\u202e",
        "&a",
        "*a",
        "<<:",
        "!!int",
        "!!binary",
        "- ",
        "? ",
        "\n  ",
        "%YAML 1.1",
        "---",
    ]
)
FIELDS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)),
    max_leaves=12,
)


@given(st.one_of(st.lists(WORDS, max_size=40).map(" ".join), st.text(), st.text(string.printable)))
@example("a: &a [*a, *a]\nb: *a")
@example("{? {a: b}: c}")
@settings(max_examples=400)
def test_any_text_gives_a_pipeline_or_a_few_lines(text: str) -> None:
    told(text)
    told(GOOD + text)


@given(st.sampled_from(sorted(Pipeline.model_fields)), FIELDS)
@settings(max_examples=400)
def test_any_data_gives_a_pipeline_or_a_few_lines(key: str, value: object) -> None:
    data = {**parse(GOOD).document(), key: value}
    try:
        build(data)
        said = ""
    except ConfigError as error:
        said = error.message
    assert len(said.split("\n")) <= MAX_PROBLEMS + 1
    assert len(said) <= 503 * (MAX_PROBLEMS + 1)


MARKS = "\n :-?{}[],&*!|>'\"%@`#\\\tab01~=\r\ufeff\x85\u2028"


@given(st.sampled_from(sorted(HOSTILE)), st.lists(st.tuples(st.integers(0, 400), st.sampled_from(MARKS)), max_size=4))
def test_a_text_that_libyaml_takes_means_the_same_without_it(name: str, changes: list[tuple[int, str]]) -> None:
    text = HOSTILE[name][0][:1000]
    for at, mark in changes:
        text = text[:at] + mark + text[at + 1 :]
    with pytest.MonkeyPatch.context() as patch:
        fast = read(text)
        patch.setattr(yaml, "__with_libyaml__", False)
        slow = read(text)

    # libyaml takes some texts that PyYAML does not, as YAML says: "key:<tab>value", a plain text that begins with "?".
    assert fast == slow or "not valid YAML" in str(slow)


def read(text: str) -> object:
    """The data of a text and the lines of its faults, or what is wrong with it."""
    try:
        document = Document(text, {})
    except NotReadableError as error:
        return f"{error.line}: {error.problem}"
    return repr(document.data), document.faults
