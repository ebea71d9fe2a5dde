/** The number line of a partition as it is drawn: the API's answer with its positions as numbers from an origin. */

import type { PartitionLine, Piece } from "../api/types";
import { START } from "../format/numbers";
import type { View } from "./view";

export interface Stretch {
  readonly from: number;
  readonly to: number;
}

export interface LineModel {
  readonly line: PartitionLine;
  /** The position that is 0 in this model. */
  readonly origin: bigint;
  readonly whole: View;
  readonly pieces: readonly Piece[];
  /** Where each piece begins and ends, by its index. */
  readonly starts: Float64Array;
  readonly ends: Float64Array;
  readonly gaps: readonly Stretch[];
  readonly deadLetters: readonly Stretch[];
  readonly committed: number;
  readonly low: number;
  readonly plannedEnd: number;
  readonly bound: number | undefined;
  /** Where each schema version of the answer begins. */
  readonly versions: readonly number[];
}

/** The positions that are drawn, exactly. */
export interface Frame {
  readonly start: bigint;
  readonly end: bigint;
}

/**
 * The model of an answer of the API.
 *
 * @param frame the positions to draw; by default, those that the answer describes
 */
export function modelOf(line: PartitionLine, frame: Frame = frameOf([line])): LineModel {
  const origin = frame.start;
  const span = Number(frame.end - origin);
  const at = (position: string) => Math.min(span, Math.max(0, Number(BigInt(position) - origin)));
  const stretch = (range: { start: string; end: string }) => ({ from: at(range.start), to: at(range.end) });
  return {
    line,
    origin,
    whole: { from: 0, to: span },
    pieces: line.pieces,
    starts: Float64Array.from(line.pieces, (piece) => at(piece.start)),
    ends: Float64Array.from(line.pieces, (piece) => at(piece.end)),
    gaps: line.gaps.map(stretch),
    deadLetters: line.dead_letters.map(stretch),
    committed: at(line.committed),
    low: at(line.low),
    plannedEnd: at(line.planned_end),
    bound: line.bound === null ? undefined : at(line.bound),
    versions: line.schema_versions.map((version) => at(version.position)),
  };
}

/**
 * The positions that some answers describe. What begins at the start of all positions is cut, or it would leave no room
 * for the rest.
 */
export function frameOf(lines: readonly PartitionLine[]): Frame {
  const end = lines.map((line) => BigInt(line.window.end)).reduce(greater);
  const known = lines.flatMap((line) => [
    ...[line.window.start, line.committed, line.low, line.planned_end],
    ...line.pieces.flatMap((piece) => [piece.start, piece.end]),
  ]);
  const starts = lines.map((line) => BigInt(line.window.start));
  if (!starts.includes(START)) {
    const start = starts.reduce(less);
    return { start, end: end > start ? end : start + 1n };
  }
  const first = known
    .map(BigInt)
    .filter((position) => position !== START)
    .reduce(less, end);
  const margin = greater((end - first) / 12n, 1n);
  return { start: first - margin, end: greater(end, first + 1n) };
}

function less(one: bigint, other: bigint): bigint {
  return one < other ? one : other;
}

function greater(one: bigint, other: bigint): bigint {
  return one > other ? one : other;
}

/** The exact position that a number of the model stands for. */
export function exact(model: LineModel, at: number): bigint {
  return model.origin + BigInt(Math.round(at));
}

/** Index of the piece that holds a position; of several in one bucket, the first. */
export function pieceAt(model: LineModel, at: number): number | undefined {
  const found = model.starts.findIndex((start, index) => start <= at && at < (model.ends[index] ?? 0));
  return found < 0 ? undefined : found;
}

/** Names of the batches whose pieces lie in a part of the line, at least in part. */
export function batchesIn(model: LineModel, part: View): string[] {
  return model.pieces.flatMap((piece, index) => {
    const meets = (model.starts[index] ?? 0) < part.to && (model.ends[index] ?? 0) > part.from;
    return meets && piece.batch !== null ? [piece.batch] : [];
  });
}
