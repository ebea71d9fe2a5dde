/** Turns pieces into boxes on the screen: what needs a person is never invisible, and there are no more boxes than pixels. */

import type { Fate } from "../api/types";
import { LOOKS } from "./fates";
import type { LineModel } from "./model";
import { scale, type View } from "./view";

export interface Box {
  readonly x: number;
  readonly width: number;
  readonly fate: Fate;
  /** Index of the piece, or of the weightiest of several that share the box. */
  readonly index: number;
}

/** Least widths in pixels of what must be seen, however small its range is. */
const LEAST: Readonly<Partial<Record<Fate, number>>> = { held: 5, in_flight: 3, rejected: 3, skipped: 2 };

/**
 * Boxes of the pieces in view. Neighbours that are thinner than the pixel that they share become one box with the
 * weightiest fate among them. Weightier boxes come later, so that they are drawn over others.
 */
export function layout(model: LineModel, view: View, width: number): Box[] {
  const x = scale(view, width);
  const boxes: Box[] = [];
  for (const [index, piece] of model.pieces.entries()) {
    const start = model.starts[index] ?? 0;
    const end = model.ends[index] ?? 0;
    if (start < view.to && end > view.from) {
      const left = Math.max(0, x(start));
      push(boxes, { x: left, width: Math.min(width, x(end)) - left, fate: piece.fate, index });
    }
  }
  return boxes
    .map((box) => widened(box, width))
    .sort((one, other) => LOOKS[one.fate].weight - LOOKS[other.fate].weight);
}

/** Add a box, or the box's fate to the last one if both are thinner than the pixel that they share. */
function push(boxes: Box[], box: Box): void {
  const last = boxes.at(-1);
  if (last === undefined || last.width >= 1 || box.width >= 1 || Math.floor(last.x) !== Math.floor(box.x)) {
    boxes.push(box);
    return;
  }
  const { fate, index } = LOOKS[box.fate].weight > LOOKS[last.fate].weight ? box : last;
  boxes[boxes.length - 1] = { x: last.x, width: Math.max(last.width, box.x + box.width - last.x), fate, index };
}

function widened(box: Box, width: number): Box {
  const least = LEAST[box.fate] ?? 1;
  if (box.width >= least) {
    return box;
  }
  return { ...box, x: Math.min(Math.max(0, box.x - (least - box.width) / 2), width - least), width: least };
}

/** The box at a distance from the left edge; of several, the one that is drawn over the others. */
export function boxAt(boxes: readonly Box[], pixels: number): Box | undefined {
  return boxes.findLast((box) => box.x <= pixels && pixels < box.x + box.width);
}
