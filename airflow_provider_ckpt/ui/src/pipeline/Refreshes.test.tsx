import { ChakraProvider, defaultSystem } from "@chakra-ui/react";
import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";

import type { PipelineDetail, Refresh } from "../api/types";
import { nextOf, Refreshes } from "./Refreshes";

const STAGING: Refresh = {
  partition: "table",
  generation: 4,
  state: "staging",
  since: "2026-11-25T07:42:10Z",
  positions: 80_000,
  staged_positions: 31_200,
  staged_batches: 312,
  open_batches: 6,
  held_batches: 0,
  skipped_batches: 0,
  hold: null,
};

const HELD: Refresh = {
  ...STAGING,
  state: "held",
  staged_positions: 80_000,
  open_batches: 0,
  hold: { batch: "table#7@4", reason: "the refresh has no rows", since: "2026-11-25T08:00:00Z" },
};

function shown(refreshes: readonly Refresh[], more: Partial<PipelineDetail> = {}) {
  const detail = { refreshes, may_act: true, lease: { held: true }, ...more } as unknown as PipelineDetail;
  const onWish = vi.fn();
  render(
    <ChakraProvider value={defaultSystem}>
      <Refreshes detail={detail} onWish={onWish} />
    </ChakraProvider>,
  );
  return onWish;
}

afterEach(cleanup);

test("a refresh that is staged says how far it is, in positions and batches, of which generation and since when", () => {
  shown([STAGING]);
  const region = screen.getByRole("region", { name: "Refresh of table" });
  expect(region.textContent).toContain("31,200 of 80,000 positions staged (39 %); 312 batches staged, 6 open");
  expect(region.textContent).toContain("generation 4");
  expect(region.querySelector("time")?.getAttribute("datetime")).toBe(STAGING.since);
  expect(screen.getByRole("progressbar").getAttribute("aria-valuenow")).toBe("39");
  expect(screen.queryByRole("button")).toBeNull();
});

test("a table without rows is staged as a whole", () => {
  shown([{ ...STAGING, state: "staged", positions: 0, staged_positions: 0 }]);
  expect(screen.getByRole("progressbar").getAttribute("aria-valuetext")).toBe("0 of 0 positions staged (100 %)");
});

test("a held publication has its reason and both remedies, each for exactly that batch", () => {
  const onWish = shown([HELD]);
  expect(screen.getByText("Held because the refresh has no rows")).toBeTruthy();
  expect(screen.getByText(/Release the batch, and the next run publishes/)).toBeTruthy();
  fireEvent.click(screen.getByRole("button", { name: "Release table#7@4…" }));
  fireEvent.click(screen.getByRole("button", { name: "Skip table#7@4…" }));
  expect(onWish.mock.calls).toEqual([
    [{ kind: "release", batches: ["table#7@4"] }],
    [{ kind: "skip", batches: ["table#7@4"] }],
  ]);
});

test("who may not act sees the reason and no buttons", () => {
  shown([HELD], { may_act: false });
  expect(screen.getByText("Held because the refresh has no rows")).toBeTruthy();
  expect(screen.queryByRole("button")).toBeNull();
});

test.each([
  [HELD, true, /publication is held/],
  [{ ...STAGING, held_batches: 2 }, false, /^2 batches are held/],
  [{ ...STAGING, skipped_batches: 1 }, true, /^Rows were skipped/],
  [{ ...STAGING, state: "released" as const }, false, /was released/],
  [STAGING, false, /the next run begins a new refresh/],
  [{ ...STAGING, state: "staged" as const }, true, /publishes it next/],
  [STAGING, true, /^$/],
])("what comes next is told, case %#", (refresh, isRunning, expected) => {
  expect(nextOf(refresh, isRunning)).toMatch(expected);
});
