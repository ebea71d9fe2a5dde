/** What became of a range, and how it looks: a colour and a motif, so that colour is never the only sign. */

import type { Fate } from "../api/types";

export interface Look {
  /** Word of the legend and of screen readers. */
  readonly label: string;
  /** Token of Chakra's palette; it follows the dark mode. */
  readonly colour: string;
  /** SVG path that is repeated over the range, in a tile of 8 × 8; empty for a plain area. */
  readonly motif: string;
  readonly strokeWidth: number;
  /** Letter that is drawn where there is room. */
  readonly letter: string;
  /** Which fate is seen where there is no room for all: that of the highest weight. */
  readonly weight: number;
}

/** Side of the tile in which motifs are drawn, in pixels. */
export const TILE = 8;

export const LOOKS: Readonly<Record<Fate, Look>> = {
  settled: { label: "settled", colour: "blue.muted", motif: "", strokeWidth: 0, letter: "", weight: 0 },
  delivered: { label: "delivered", colour: "green.solid", motif: "", strokeWidth: 0, letter: "", weight: 1 },
  sent: {
    label: "sent, outcome unknown",
    colour: "purple.solid",
    motif: "M0 4H8",
    strokeWidth: 1.5,
    letter: "?",
    weight: 2,
  },
  skipped: { label: "skipped", colour: "pink.solid", motif: "M0 0L8 8", strokeWidth: 1.5, letter: "s", weight: 3 },
  planned: { label: "planned", colour: "gray.emphasized", motif: "M3 4H5", strokeWidth: 2, letter: "", weight: 4 },
  rejected: {
    label: "rejected",
    colour: "red.solid",
    motif: "M1 1L7 7M7 1L1 7",
    strokeWidth: 1.5,
    letter: "x",
    weight: 5,
  },
  in_flight: {
    label: "in flight",
    colour: "cyan.solid",
    motif: "M2 1L5 4L2 7",
    strokeWidth: 1.5,
    letter: "",
    weight: 6,
  },
  held: {
    label: "held",
    colour: "orange.solid",
    motif: "M-2 2L2 -2M0 8L8 0M6 10L10 6",
    strokeWidth: 3,
    letter: "H",
    weight: 7,
  },
};

export const FATES = Object.keys(LOOKS) as readonly Fate[];

/** Whether the checkpoint waits for ranges of this fate. */
export function isOpen(fate: Fate): boolean {
  return fate === "held" || fate === "in_flight" || fate === "planned";
}

/** The CSS variable of a token, with which SVG is painted. */
export function paint(token: string): string {
  return `var(--chakra-colors-${token.replace(".", "-")})`;
}
