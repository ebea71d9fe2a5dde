/** The number line in words: for tooltips, for screen readers, and for its caption. */

import type { PartitionLine, Piece } from "../api/types";
import { count, many, percent, position, range } from "../format/numbers";
import { LOOKS } from "./fates";

/** One piece: its range, what became of it, and what is known of its batches. */
export function describePiece(piece: Piece): string {
  const facts = [`${piece.batch ?? LOOKS[piece.fate].label} ${range(BigInt(piece.start), BigInt(piece.end))}`];
  if (piece.batch !== null) {
    facts.push(LOOKS[piece.fate].label);
  }
  if (piece.batches !== null && piece.batch === null) {
    facts.push(many(piece.batches, "batch", "batches"));
  }
  if (piece.rejected) {
    facts.push(`${count(piece.rejected)} rejected`);
  }
  if (piece.skipped) {
    facts.push(`${count(piece.skipped)} skipped`);
  }
  if (piece.attempts > 0) {
    facts.push(many(piece.attempts, "attempt"));
  }
  if (piece.error_type !== null) {
    facts.push(`error ${piece.error_type}`);
  }
  return facts.join(", ");
}

/** The share of a partition that the checkpoint has passed; undefined while the source's end is not known. */
export function progressOf(
  line: Pick<PartitionLine, "base" | "committed" | "bound" | "planned_end">,
): number | undefined {
  const end = BigInt(line.bound ?? line.planned_end);
  const base = BigInt(line.base);
  const length = end - base;
  return length <= 0n || base === -(2n ** 63n) ? undefined : Number(BigInt(line.committed) - base) / Number(length);
}

/** What a screen reader says of a partition as a whole. */
export function summary(line: PartitionLine): string {
  const part = progressOf(line);
  const sentences = [
    `Checkpoint at ${position(BigInt(line.committed))}${part === undefined ? "" : `, ${percent(part)}`}, planned to ` +
      `${position(BigInt(line.planned_end))}${line.bound === null ? "" : `, source's end ${position(BigInt(line.bound))}`}.`,
  ];
  if (line.blocked !== null) {
    sentences.push(`${line.blocked.batch} is ${LOOKS[line.blocked.state].label}${blocking(line)}.`);
  }
  if (line.gaps.length > 0) {
    sentences.push(`${many(line.gaps.length, "gap")} that nothing accounts for.`);
  }
  return sentences.join(" ");
}

/** What the first unresolved batch holds up; empty if nothing waits for it. */
export function blocking(line: PartitionLine): string {
  const { blocked } = line;
  if (blocked === null || blocked.batches === 0) {
    return "";
  }
  return ` and blocks ${many(blocked.batches, "resolved batch", "resolved batches")} of ${many(blocked.positions, "position")}`;
}
