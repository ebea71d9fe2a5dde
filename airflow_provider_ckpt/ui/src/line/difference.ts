/** What an action changes on a number line. */

import type { PartitionLine, Piece } from "../api/types";
import { type Frame, frameOf, type LineModel, modelOf, type Stretch } from "./model";

export interface Difference {
  readonly before: LineModel | undefined;
  readonly after: LineModel | undefined;
  /** Parts of the line before that are not the same after. */
  readonly left: readonly Stretch[];
  /** Parts of the line after that were not the same before. */
  readonly gained: readonly Stretch[];
}

/** One partition before and after an action, on one scale; undefined where it does not exist. */
export function difference(before: PartitionLine | undefined, after: PartitionLine | undefined): Difference {
  const lines = [before, after].filter((line) => line !== undefined);
  const frame: Frame = lines.length > 0 ? frameOf(lines) : { start: 0n, end: 1n };
  const old = before === undefined ? undefined : modelOf(before, frame);
  const fresh = after === undefined ? undefined : modelOf(after, frame);
  return { before: old, after: fresh, left: parts(old, fresh), gained: parts(fresh, old) };
}

/** The parts of one line that the other has not, neighbours put together. */
function parts(line: LineModel | undefined, other: LineModel | undefined): Stretch[] {
  if (line === undefined) {
    return [];
  }
  const known = new Set(other?.pieces.map(keyOf));
  const found: Stretch[] = [];
  line.pieces.forEach((piece, index) => {
    if (known.has(keyOf(piece))) {
      return;
    }
    const part = { from: line.starts[index] ?? 0, to: line.ends[index] ?? 0 };
    const last = found.at(-1);
    if (last !== undefined && part.from <= last.to) {
      found[found.length - 1] = { from: last.from, to: Math.max(last.to, part.to) };
    } else {
      found.push(part);
    }
  });
  return found;
}

function keyOf(piece: Piece): string {
  return [piece.start, piece.end, piece.fate, piece.batch, piece.batches, piece.attempts].join(" ");
}
