import { expect, test } from "vitest";

import { bytes, compact, many, percent, position, range, rate, START } from "./numbers";

test("positions keep all of their digits", () => {
  expect(position(9_007_199_254_740_993n)).toBe("9,007,199,254,740,993");
  expect(range(START, 5n)).toBe("[start, 5)");
});

test("a percentage is 100 or 0 only if nothing or everything is missing", () => {
  expect([0, 0.001, 0.614, 0.9999, 1].map(percent)).toEqual(["0 %", "1 %", "61 %", "99 %", "100 %"]);
});

test("quantities are short and have their units", () => {
  expect([18_204, 999, 1_234_567].map(compact)).toEqual(["18.2K", "999", "1.23M"]);
  expect([0, 0.25, 2_100].map(rate)).toEqual(["0/s", "0.25/s", "2,100/s"]);
  expect([12, 1_500_000].map(bytes)).toEqual(["12 B", "1.50 MB"]);
  expect([many(1, "batch", "batches"), many(2, "batch", "batches")]).toEqual(["1 batch", "2 batches"]);
});
