/**
 * The part of a partition that is shown. Inside of a number line, positions are numbers relative to its origin: 64-bit
 * positions are exact only as bigint, and drawing needs no more digits than a number has.
 */

export interface View {
  readonly from: number;
  readonly to: number;
}

/** Function from a position to its distance from the left edge, in pixels. */
export function scale(view: View, width: number): (at: number) => number {
  const perPosition = width / (view.to - view.from);
  return (at) => (at - view.from) * perPosition;
}

/** The position at a distance from the left edge; at an edge for a distance beyond it. */
export function positionAt(view: View, width: number, pixels: number): number {
  const part = Math.min(1, Math.max(0, pixels / width));
  return Math.round(view.from + part * (view.to - view.from));
}

/** The part between two positions in any order, kept inside of the whole and not empty. */
export function between(one: number, other: number, whole: View): View {
  const from = Math.min(one, other);
  return inside({ from, to: Math.max(from + 1, one, other) }, whole);
}

/** The same part moved so far that it does not leave the whole, and cut to it if it is longer. */
export function inside(view: View, whole: View): View {
  const length = view.to - view.from;
  if (length >= whole.to - whole.from) {
    return whole;
  }
  const from = Math.min(Math.max(view.from, whole.from), whole.to - length);
  return { from, to: from + length };
}

/** A part around a position, by a factor longer (above 1) or shorter (below 1); the position keeps its place. */
export function zoomed(view: View, around: number, factor: number, whole: View): View {
  const from = Math.round(around - (around - view.from) * factor);
  const to = Math.round(around + (view.to - around) * factor);
  return inside({ from, to: Math.max(to, from + 1) }, whole);
}

export function sameView(one: View, other: View): boolean {
  return one.from === other.from && one.to === other.to;
}
