import { ChakraProvider, defaultSystem } from "@chakra-ui/react";
import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";

import { AccountedBadge } from "./AccountedBadge";

const { useAccounted } = vi.hoisted(() => ({ useAccounted: vi.fn() }));
vi.mock("../api/queries", () => ({ useAccounted }));

const AUDIT = { ok: true, checked_at: "2026-11-25T08:00:00Z", gaps: [], violations: [] };

function shown(found: object) {
  useAccounted.mockReturnValue({ data: { ...AUDIT, ...found }, error: null });
  render(
    <ChakraProvider value={defaultSystem}>
      <AccountedBadge pipeline="orders" />
    </ChakraProvider>,
  );
  return screen.getByTestId("ckpt-accounted").textContent;
}

afterEach(cleanup);

test("a gap is named with its positions; its records were never read, so they are not read again", () => {
  const text = shown({ ok: false, gaps: [{ partition: "public.orders", start: 10, end: 20 }] });

  expect(text).toContain("1 gap");
  expect(text).toContain("public.orders");
  expect(text).toContain("After Recover, the next run reads the records that were never read.");
  expect(text).not.toContain("again");
});

test("a pipeline that lost nothing gets no advice", () => {
  const text = shown({});

  expect(text).toContain("every position accounted for");
  expect(text).not.toContain("Recover");
});
