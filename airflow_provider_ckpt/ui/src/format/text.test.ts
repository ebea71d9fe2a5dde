import { expect, test } from "vitest";

import { visible } from "./text";

test("characters that reorder or hide text are shown as escapes", () => {
  expect(visible("safe\u202egnp.exe\u0000\u200b\r")).toBe("safe\\u202egnp.exe\\u0000\\u200b\\u000d");
});

test("all other text stays as it is", () => {
  expect(visible("line\n\tжук 👩‍💻 <b>&amp;</b>")).toBe("line\n\tжук 👩‍💻 <b>&amp;</b>");
});
