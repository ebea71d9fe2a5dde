import { expect, test } from "vitest";

import { asHex, asText, decode, indented } from "./content";

test("JSON is indented without a change of its numbers or keys", () => {
  const text = '{"id":12345678901234567890,"a":[],"b":{"c":[1.0,"x, {\\"y\\"}"]},"id":1}';
  expect(indented(text)).toBe(
    '{\n  "id": 12345678901234567890,\n  "a": [],\n  "b": {\n    "c": [\n      1.0,\n      "x, {\\"y\\"}"\n    ]\n  },\n  "id": 1\n}',
  );
});

test("text that ends in the middle of JSON is indented as far as it goes", () => {
  expect(indented('{"a": "long te')).toBe('{\n  "a": "long te');
});

test("any bytes have a hex dump", () => {
  expect(asHex(decode("AP9oZWxsbyB3b3JsZCE8Yj4="))).toBe(
    "000000  00 ff 68 65 6c 6c 6f 20  77 6f 72 6c 64 21 3c 62  ..hello world!<b\n" +
      "000010  3e                                                >",
  );
});

test("bytes that are no text are replaced, not lost", () => {
  expect(asText(Uint8Array.of(0x61, 0xff, 0x62))).toBe("a\ufffdb");
});
