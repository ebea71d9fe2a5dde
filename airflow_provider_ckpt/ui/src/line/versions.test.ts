import { expect, test } from "vitest";

import type { SchemaVersion } from "../api/types";
import { factsOf, titleOf, versionMarks } from "./versions";

const FIRST: SchemaVersion = {
  version: 1,
  generation: 1,
  position: "9007199254740993",
  columns: 2,
  changes: [],
  changes_left_out: 0,
  decision: [],
  actor: "cli:host:1:2",
  run: null,
  at: "2026-11-25T07:42:10Z",
};

test("versions that are too near to each other share a mark, and those out of view have none", () => {
  const versions = [1, 2, 3, 4, 5].map((version) => ({ ...FIRST, version }));
  const marks = versionMarks(versions, [-40, 10, 23, 24, 700], 600);
  expect(marks.map((mark) => [mark.x, mark.versions.map((item) => item.version)])).toEqual([
    [10, [2, 3]],
    [24, [4]],
  ]);
});

test("a title has all digits of the position, and the generation only if the line is of another", () => {
  expect(titleOf(FIRST, 1)).toBe("Schema version 1 from 9,007,199,254,740,993");
  expect(titleOf(FIRST, 2)).toBe("Schema version 1 from 9,007,199,254,740,993, in generation 1");
});

test("the first version has its number of columns and the actor", () => {
  const [changes, recorded] = factsOf(FIRST);
  expect(changes).toBe("First version, with 2 columns.");
  expect(recorded).toMatch(/^Recorded by cli:host:1:2 at 2026-11-2\d \d\d:\d\d:10 /);
});

test("each kind of change is told with types, and the decision and the run follow", () => {
  const change = { before: "integer", after: "bigint", new_name: null };
  const [changes, decision, recorded] = factsOf({
    ...FIRST,
    version: 2,
    changes: [
      { ...change, kind: "added", column: "a", before: null },
      { ...change, kind: "dropped", column: "b", after: null },
      { ...change, kind: "retyped", column: "c" },
      { ...change, kind: "renamed", column: "d", new_name: "e", after: "integer" },
      { ...change, kind: "renamed", column: "f", new_name: "g" },
      { ...change, kind: "replaced", column: "h" },
    ],
    changes_left_out: 1200,
    decision: ["the target gets it", "kept"],
    run: { dag_id: "shop", run_id: "manual__1", task_id: "replicate", map_index: -1 },
  });
  expect(changes).toBe(
    "Changed: column a (bigint) added; column b (integer) dropped; column c retyped from integer to bigint; " +
      "column d renamed to e; column f renamed to g, retyped from integer to bigint; " +
      "column h (integer) replaced by another of its name (bigint); 1,200 more.",
  );
  expect(decision).toBe("Decision: the target gets it; kept.");
  expect(recorded).toContain("Recorded by run manual__1 of DAG shop at ");
});

test("a version without a change of the source says so", () => {
  expect(factsOf({ ...FIRST, version: 2 })[0]).toBe("No column of the source changed.");
});
