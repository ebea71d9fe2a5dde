import { ChakraProvider, defaultSystem } from "@chakra-ui/react";
import { cleanup, render, screen, within } from "@testing-library/react";
import { MemoryRouter } from "react-router-dom";
import { afterEach, expect, test } from "vitest";

import type { DatabaseRow } from "../api/types";
import { DatabaseTable } from "./DatabaseTable";

const SHOP: DatabaseRow = {
  name: "shop",
  health: "blocked",
  by_health: { blocked: 2, lag_growing: 0, dead_letters: 1, draining: 0, stopped: 0, well: 297 },
  tables: 300,
  done: 290,
  behind: 10,
  held: 2,
  failed: 1,
  running: 4,
  dead_letters: 1234,
  planned_at: null,
};

function shown(rows: readonly DatabaseRow[], leftOut = 0): void {
  render(
    <ChakraProvider value={defaultSystem}>
      <MemoryRouter initialEntries={["/plugin/replication"]}>
        <DatabaseTable leftOut={leftOut} rows={rows} />
      </MemoryRouter>
    </ChakraProvider>,
  );
}

afterEach(cleanup);

test("a database shows the sums of its tables under their headings", () => {
  shown([SHOP]);
  const headings = screen.getAllByRole("columnheader").map((cell) => cell.textContent);
  const cells = within(screen.getByRole("table")).getAllByRole("cell");
  const values = Object.fromEntries(headings.map((heading, at) => [heading, cells[at]?.textContent]));
  expect(values).toMatchObject({ Tables: "300", Done: "290", Behind: "10", Held: "2", Failed: "1", Running: "4" });
  expect(values).toMatchObject({ "Dead letters": "1,234", "Planned since": "not all planned" });
});

test("a database leads to its tables, and each kind of health to those that have it", () => {
  shown([SHOP]);
  const links = screen.getAllByRole("link").map((link) => link.getAttribute("href"));
  const at = "/plugin/replication/databases/shop";
  expect(links).toEqual([at, `${at}?health=blocked`, `${at}?health=dead_letters`, `${at}?health=well`]);
});

test("databases beyond the first hundred are counted", () => {
  shown([SHOP], 7);
  expect(screen.getByText("7 more are not shown; search for their names.")).toBeTruthy();
});
