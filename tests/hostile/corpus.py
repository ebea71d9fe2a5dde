"""Hostile records by name: bytes that a line of JSON or CSV, or a message, may consist of.

They are written for the schema ``id bigint, name string, x double``. None contains a newline, so that one file can
contain all of them.
"""

from __future__ import annotations

import json

SCHEMA = "id bigint, name string, x double"
MEGABYTE = 1 << 20
GOOD = b'{"id":1,"name":"a","x":1.5}'


def _with(name: bytes = b'"a"', *, id: bytes = b"1", x: bytes = b"1.5", more: bytes = b"") -> bytes:  # noqa: A002
    return b'{"id":' + id + b',"name":' + name + b',"x":' + x + more + b"}"


def _nested(opening: bytes, inside: bytes, closing: bytes, depth: int) -> bytes:
    return opening * depth + inside + closing * depth


GARBAGE = {
    "empty": b"",
    "a space": b" ",
    "white space": b" \t \x0b\x0c ",
    "a carriage return": b"\r",
    "NUL": b"\x00",
    "NULs": b"\x00" * 1000,
    "all bytes but newline": bytes(byte for byte in range(256) if byte != 0x0A),
    "0xff": b"\xff" * 64,
    "BOM alone": b"\xef\xbb\xbf",
    "UTF-16 LE": GOOD.decode().encode("utf-16-le"),
    "UTF-16 with BOM": GOOD.decode().encode("utf-16").replace(b"\n", b""),
    "UTF-32": GOOD.decode().encode("utf-32-be"),
    "Latin-1": b'{"id":1,"name":"caf\xe9","x":1}',
    "gzip header": b"\x1f\x8b\x08\x00\x00\x00\x00\x00",
    "Java serialised": b"\xac\xed\x00\x05t\x00\x01a",
    "a line of U+2028": "{\u2028}".encode(),
    "an open brace": b"{",
    "a closing brace": b"}",
    "quotes": b'"""',
    "a backslash": b"\\",
    "commas": b"," * 1000,
    "CSV": b"1,a,1.5",
    "SQL": b"'; DROP TABLE target; --",
    "a variable": b"${id} $${id} {{ id }}",
}
"""No JSON whatsoever."""

SCALARS = {
    "null": b"null",
    "true": b"true",
    "a number": b"42",
    "a text": b'"text"',
    "an array": b"[1,2,3]",
    "an empty array": b"[]",
    "an array of one record": b"[" + GOOD + b"]",
    "an array of records": b"[" + GOOD + b"," + GOOD + b"]",
}
"""JSON, and no object."""

LAX = {
    "trailing text": GOOD + b" x",
    "a trailing brace": GOOD + b"}",
    "a trailing bracket": GOOD + b"]",
    "a trailing comma": GOOD + b",",
    "trailing NUL": GOOD + b"\x00",
    "trailing form feed": GOOD + b"\x0c",
    "trailing U+2028": GOOD + "\u2028".encode(),
    "trailing BOM": GOOD + b"\xef\xbb\xbf",
    "leading BOM": b"\xef\xbb\xbf" + GOOD,
    "leading NUL": b"\x00" + GOOD,
    "leading vertical tab": b"\x0b" + GOOD,
    "no-break space before": "\u00a0".encode() + GOOD,
    "two records": GOOD + GOOD,
    "two records and a space": GOOD + b" " + GOOD,
    "two records and a CR": GOOD + b"\r" + GOOD,
    "two records and a comma": GOOD + b"," + GOOD,
    "another member behind": GOOD + b',"y":2',
    "closes what it is wrapped in": b"1],[2",
    "closes what it is wrapped in, as records": GOOD + b"],[" + GOOD,
    "closes an object around it": GOOD + b'},"v":{' + GOOD,
    "a comma at the end": _with(more=b","),
    "a comma at the beginning": b"{," + GOOD[1:],
    "two commas": b'{"id":1,,"name":"a","x":1}',
    "no comma": b'{"id":1 "name":"a","x":1}',
    "no colon": b'{"id" 1,"name":"a","x":1}',
    "two colons": b'{"id"::1,"name":"a","x":1}',
    "cut": GOOD[:-1],
    "cut in a text": b'{"id":1,"name":"a',
    "cut in an escape": b'{"id":1,"name":"\\u00',
    "single quotes": GOOD.replace(b'"', b"'"),
    "names without quotes": b'{id:1,name:"a",x:1}',
    "a name that is a number": b'{1:1,"id":1,"name":"a","x":1}',
    "a block comment": b"/*c*/" + GOOD,
    "a line comment": GOOD + b"//c",
    "a comment inside": b'{"id":1/*c*/,"name":"a","x":1}',
    "a hash comment": b"#" + GOOD,
    "a leading zero": _with(id=b"01"),
    "a leading plus": _with(id=b"+1"),
    "a number that ends in a dot": _with(x=b"1."),
    "a number that begins with a dot": _with(x=b".5"),
    "a hexadecimal number": _with(id=b"0x1"),
    "a number with underscores": _with(id=b"1_000"),
    "an exponent without digits": _with(x=b"1e"),
    "minus alone": _with(x=b"-"),
    "NaN": _with(x=b"NaN"),
    "Infinity": _with(x=b"Infinity"),
    "minus Infinity": _with(x=b"-Infinity"),
    "INF": _with(x=b"INF"),
    "plus Infinity": _with(x=b"+Infinity"),
    "True": _with(more=b',"y":True'),
    "undefined": _with(more=b',"y":undefined'),
    "a raw tab in a text": _with(b'"a\tb"'),
    "a raw CR in a text": _with(b'"a\rb"'),
    "a raw NUL in a text": _with(b'"a\x00b"'),
    "an unknown escape": _with(b'"\\x41"'),
    "an escaped quote of the wrong kind": _with(b'"\\\'"'),
    "half an escape": _with(b'"\\u12"'),
    "an escape with capital U": _with(b'"\\U0041"'),
}
"""Almost the record, in a way that lenient parsers take."""

UNICODE = {
    "a lone high surrogate": _with(b'"\\ud800"'),
    "a lone low surrogate": _with(b'"\\udc00"'),
    "surrogates the wrong way round": _with(b'"\\udc00\\ud800"'),
    "two high surrogates": _with(b'"\\ud800\\ud800"'),
    "a high surrogate and a letter": _with(b'"\\ud83dx"'),
    "a high surrogate at the end of a long text": _with(b'"' + b"a" * 5000 + b'\\ud800"'),
    "a lone surrogate in a name": _with(more=b',"\\ud800":1'),
    "a lone surrogate in a field of no interest": _with(more=b',"y":"\\uDFFF"'),
    "a lone surrogate deep inside": _with(more=b',"y":[{"z":"\\ud800"}]'),
    "an escaped name, twice": b'{"id":1,"\\u0069d":2,"name":"a","x":1}',
    "invalid UTF-8 in a value": _with(b'"\xff"'),
    "invalid UTF-8 in a name": _with(more=b',"\xfe":1'),
    "a continuation byte": _with(b'"\x80"'),
    "cut in a character": _with(b'"\xe2\x82"'),
    "overlong slash": _with(b'"\xc0\xaf"'),
    "overlong NUL": _with(b'"\xc0\x80"'),
    "overlong in three": _with(b'"\xe0\x80\xaf"'),
    "a surrogate in UTF-8": _with(b'"\xed\xa0\x80"'),
    "a pair of surrogates in UTF-8": _with(b'"\xed\xa0\xbd\xed\xb8\x80"'),
    "beyond Unicode": _with(b'"\xf4\x90\x80\x80"'),
    "five bytes": _with(b'"\xf8\x88\x80\x80\x80"'),
}
"""Texts that are none."""

TWICE = {
    "twice the same": b'{"id":1,"id":1,"name":"a","x":1}',
    "twice another": b'{"id":1,"id":2,"name":"a","x":1}',
    "twice, apart": b'{"id":1,"name":"a","x":1,"id":2}',
    "twice, null last": b'{"id":1,"name":"a","x":1,"id":null}',
    "twice, null first": b'{"id":null,"name":"a","x":1,"id":2}',
    "twice, with a space before the colon": b'{"id":1,"id" :2,"name":"a","x":1}',
    "twice instead of another": b'{"id":1,"id":2,"name":"a"}',
    "twice in a field of no interest": _with(more=b',"y":1,"y":2'),
    "twice deep inside": _with(more=b',"y":[{"z":{"q":1,"q":2}}]'),
    "twice the empty name": _with(more=b',"":1,"":2'),
}
"""A name that comes twice: nobody can say which is meant."""

WRONG_VALUES = {
    "text for a number": _with(id=b'"1"'),
    "a fraction for a whole number": _with(id=b"1.5"),
    "an exponent for a whole number": _with(id=b"1e2"),
    "a true for a number": _with(id=b"true"),
    "an object for a number": _with(id=b'{"a":1}'),
    "an array for a number": _with(id=b"[1]"),
    "one more than 64 bits": _with(id=b"9223372036854775808"),
    "one less than 64 bits": _with(id=b"-9223372036854775809"),
    "400 digits": _with(id=b"9" * 400),
    "a double of 400 digits": _with(x=b"9" * 400),
    "1e400": _with(x=b"1e400"),
    "-1e400": _with(x=b"-1e400"),
    "1e309": _with(x=b"1e309"),
    "an exponent of 400 digits": _with(x=b"1e" + b"9" * 400),
    "a number of 100,000 digits": _with(x=b"1" * 100_000),
    "text for a double": _with(x=b'"1.5"'),
    "an empty text for a double": _with(x=b'""'),
    "a missing field": b'{"id":1,"name":"a"}',
    "no field at all": b"{}",
    "names in capitals": b'{"ID":1,"NAME":"a","X":1}',
    "a name with a space": b'{"id ":1,"name":"a","x":1}',
}
"""One strict object, whose values are not what the schema promises."""

DEEP = {
    "100,000 arrays": _nested(b"[", b"", b"]", 100_000),
    "100,000 arrays in a field": _with(more=b',"y":' + _nested(b"[", b"", b"]", 100_000)),
    "100,000 objects": _nested(b'{"a":', b"1", b"}", 100_000),
    "100,000 objects in a field": _with(more=b',"y":' + _nested(b'{"a":', b"1", b"}", 100_000)),
    "100,000 arrays in the name": _with(_nested(b"[", b"", b"]", 100_000)),
    "100,000 opening brackets": b"[" * 100_000,
    "100,000 opening braces": b'{"a":' * 100_000,
    "2,000 arrays in a field": _with(more=b',"y":' + _nested(b"[", b"", b"]", 2000)),
}
"""Nesting beyond what a parser's stack takes."""

FINE: dict[str, tuple[bytes, dict[str, object]]] = {
    "plain": (GOOD, {"id": 1, "name": "a", "x": 1.5}),
    "spaced": (b' \t{ "id" : 1 ,\r "name":"a" , "x" : 1.5 } \r', {"id": 1, "name": "a", "x": 1.5}),
    "with a field of no interest": (_with(more=b',"y":[1,{"z":null}]'), {"id": 1, "name": "a", "x": 1.5}),
    "with an empty name": (_with(more=b',"":1'), {"id": 1, "name": "a", "x": 1.5}),
    "with names that differ in case": (_with(more=b',"ID":2,"Name":"b"'), {"id": 1, "name": "a", "x": 1.5}),
    "a NUL that is escaped": (_with(b'"a\\u0000b"'), {"id": 1, "name": "a\x00b", "x": 1.5}),
    "a pair of surrogates": (_with(b'"\\ud83d\\ude00"'), {"id": 1, "name": "\U0001f600", "x": 1.5}),
    "a noncharacter": (_with('"\uffff\ufffe"'.encode()), {"id": 1, "name": "\uffff\ufffe", "x": 1.5}),
    "a BOM in a text": (_with('"\ufeff"'.encode()), {"id": 1, "name": "\ufeff", "x": 1.5}),
    "U+2028 in a text": (_with('"\u2028"'.encode()), {"id": 1, "name": "\u2028", "x": 1.5}),
    "a form feed that is escaped": (_with(b'"\\f\\b\\/"'), {"id": 1, "name": "\f\b/", "x": 1.5}),
    "the largest whole number": (_with(id=b"9223372036854775807"), {"id": 2**63 - 1, "name": "a", "x": 1.5}),
    "the least whole number": (_with(id=b"-9223372036854775808"), {"id": -(2**63), "name": "a", "x": 1.5}),
    "minus nothing": (_with(id=b"-0", x=b"-0.0"), {"id": 0, "name": "a", "x": -0.0}),
    "1e-400, which is nothing": (_with(x=b"1e-400"), {"id": 1, "name": "a", "x": 0.0}),
    "the largest double": (_with(x=b"1.7976931348623157e308"), {"id": 1, "name": "a", "x": 1.7976931348623157e308}),
    "the least double": (_with(x=b"5e-324"), {"id": 1, "name": "a", "x": 5e-324}),
    "a double of 300 digits": (_with(x=b"1" * 300), {"id": 1, "name": "a", "x": float("1" * 300)}),
    "nulls": (_with(b"null", id=b"null", x=b"null"), {"id": None, "name": None, "x": None}),
    "a text that looks like JSON": (_with(b'"{}]\\"}"'), {"id": 1, "name": '{}]"}', "x": 1.5}),
    "a long text": (_with(b'"' + b"a" * 100_000 + b'"'), {"id": 1, "name": "a" * 100_000, "x": 1.5}),
    "300 arrays in a field": (_with(more=b',"y":' + _nested(b"[", b"", b"]", 300)), {"id": 1, "name": "a", "x": 1.5}),
    "1,000 fields": (
        json.dumps({"id": 1, "name": "a", "x": 1.5} | {f"f{n}": n for n in range(1000)}).encode(),
        {"id": 1, "name": "a", "x": 1.5},
    ),
}
"""Odd, and all right: with the row that each becomes."""

BAD: dict[str, bytes] = {
    **GARBAGE,
    **SCALARS,
    **LAX,
    **UNICODE,
    **TWICE,
    **WRONG_VALUES,
    **DEEP,
}
"""Every record that is to be dead-lettered."""


def large() -> dict[str, bytes]:
    """Records of ten megabytes and more; the first two are fine, the third has a name that is too long."""
    return {
        "ten megabytes of text": _with(b'"' + b"a" * (10 * MEGABYTE) + b'"'),
        "ten megabytes in a field of no interest": _with(more=b',"y":"' + b"b" * (10 * MEGABYTE) + b'"'),
        "ten megabytes of a name": _with(more=b',"' + b"k" * (10 * MEGABYTE) + b'":1'),
        "ten megabytes of a number": _with(x=b"1" * (10 * MEGABYTE)),
        "ten megabytes of brackets": b"[" * (10 * MEGABYTE),
        "ten megabytes of nothing": b"\x00" * (10 * MEGABYTE),
        "ten megabytes, cut": b'{"id":1,"name":"' + b"a" * (10 * MEGABYTE),
    }
