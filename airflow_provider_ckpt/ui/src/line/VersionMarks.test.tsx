import { ChakraProvider, defaultSystem } from "@chakra-ui/react";
import { cleanup, fireEvent, render, screen, within } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";

import type { PartitionLine, SchemaVersion } from "../api/types";
import { modelOf } from "./model";
import { VersionMarks } from "./VersionMarks";

const VERSION: SchemaVersion = {
  version: 1,
  generation: 1,
  position: "0",
  columns: 2,
  changes: [],
  changes_left_out: 0,
  decision: [],
  actor: "cli",
  run: null,
  at: "2026-11-25T07:42:10Z",
};

const LINE: PartitionLine = {
  partition: "t",
  kind: "source",
  generation: 1,
  base: "0",
  low: "0",
  committed: "0",
  planned_end: "1000",
  bound: null,
  window: { start: "0", end: "1000" },
  bucketed: false,
  pieces: [],
  gaps: [],
  dead_letters: [],
  dead_letters_left_out: false,
  blocked: null,
  schema_versions: [
    VERSION,
    { ...VERSION, version: 2, position: "500", decision: ["column note\u202e (text) is new: the target gets it"] },
    { ...VERSION, version: 3, position: "1000" },
  ],
  schema_versions_left_out: false,
};

function shown(line: PartitionLine, view = { from: 0, to: 1000 }): void {
  render(
    <ChakraProvider value={defaultSystem}>
      <VersionMarks model={modelOf(line)} view={view} />
    </ChakraProvider>,
  );
}

beforeEach(() => {
  vi.spyOn(HTMLElement.prototype, "clientWidth", "get").mockReturnValue(600);
});

afterEach(() => {
  cleanup();
  vi.restoreAllMocks();
});

test("the keyboard enters at one mark and walks to the others, whose cards open", () => {
  shown(LINE);
  const marks = screen.getAllByRole("button");
  expect(marks.map((mark) => mark.getAttribute("aria-label"))).toEqual([
    "Schema version 1 from 0",
    "Schema version 2 from 500",
    "Schema version 3 from 1,000",
  ]);
  expect(marks.map((mark) => mark.tabIndex)).toEqual([0, -1, -1]);
  marks[0]?.focus();
  fireEvent.keyDown(marks[0] as HTMLElement, { key: "ArrowRight" });
  expect(document.activeElement).toBe(marks[1]);
  expect(marks.map((mark) => mark.tabIndex)).toEqual([-1, 0, -1]);
  expect(screen.getByTestId("ckpt-schema-card").textContent).toContain("column note\\u202e (text) is new");
  fireEvent.keyDown(marks[1] as HTMLElement, { key: "End" });
  expect(document.activeElement).toBe(marks[2]);
  fireEvent.keyDown(marks[2] as HTMLElement, { key: "Escape" });
  expect(screen.queryByTestId("ckpt-schema-card")).toBeNull();
});

test("each mark is described by its item of a list that is always there", () => {
  shown(LINE);
  const items = within(screen.getByRole("list", { name: "Schema versions of partition t in view" })).getAllByRole(
    "listitem",
  );
  const described = screen.getAllByRole("button").map((mark) => mark.getAttribute("aria-describedby"));
  expect(described).toEqual(items.map((item) => item.id));
  expect(items[1]?.textContent).toContain("Schema version 2 from 500. No column of the source changed. Decision: ");
});

test("only versions in view have a mark and an item, and those that were left out are named", () => {
  shown({ ...LINE, schema_versions_left_out: true }, { from: 400, to: 600 });
  expect(screen.getAllByRole("button").length).toBe(1);
  expect(screen.getAllByRole("listitem").length).toBe(1);
  expect(screen.getByText(/are left out; zoom in/)).toBeTruthy();
});

test("the first version that appears while the page is open has a mark", () => {
  const page = (line: PartitionLine) => (
    <ChakraProvider value={defaultSystem}>
      <VersionMarks model={modelOf(line)} view={{ from: 0, to: 1000 }} />
    </ChakraProvider>
  );
  const { rerender } = render(page({ ...LINE, schema_versions: [] }));
  expect(screen.queryByRole("group")).toBeNull();
  rerender(page(LINE));
  expect(screen.getAllByRole("button").length).toBe(3);
});
