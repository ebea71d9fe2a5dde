import { afterEach, expect, test } from "vitest";

import { clock, duration, instantOf, moment, zone } from "./times";

afterEach(() => localStorage.clear());

test("times are in the zone that Airflow's menu stores", () => {
  localStorage.setItem("timezone", JSON.stringify("Asia/Tokyo"));
  expect(zone()).toBe("Asia/Tokyo");
  expect(moment("2026-11-25T23:30:00Z")).toBe("2026-11-26 08:30:00");
});

test.each(["no JSON", '"Nowhere/Land"', "7"])("a stored zone that is none, %s, is left out", (stored) => {
  localStorage.setItem("timezone", stored);
  expect(zone()).toBe(Intl.DateTimeFormat().resolvedOptions().timeZone);
});

test("a time of today has no date", () => {
  const now = new Date("2026-11-25T12:00:00Z");
  expect(clock("2026-11-25T07:42:10Z", now, "UTC")).toBe("07:42");
  expect(clock("2026-11-24T07:42:10Z", now, "UTC")).toBe("2026-11-24 07:42");
});

test("durations have at most two units", () => {
  expect([0.03, 38, 2_460, 7_500, 180_000].map(duration)).toEqual(["30 ms", "38 s", "41 min", "2 h 5 min", "2 d 2 h"]);
});

test("a time that is typed in is one of the user's zone, also beside a change of the clock", () => {
  expect(instantOf("2026-07-01T12:00", "Europe/Berlin")).toBe("2026-07-01T10:00:00.000Z");
  expect(instantOf("2026-10-25T04:00", "Europe/Berlin")).toBe("2026-10-25T03:00:00.000Z");
  expect(instantOf("2026-03-29T03:30", "Europe/Berlin")).toBe("2026-03-29T01:30:00.000Z");
});
