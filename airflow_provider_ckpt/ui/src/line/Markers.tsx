import type { Blocked, PartitionLine } from "../api/types";
import { count, many } from "../format/numbers";
import { paint } from "./fates";
import type { Box } from "./layout";
import { BAND, MARKS } from "./sizes";

interface MarkersProps {
  readonly line: PartitionLine;
  readonly x: (at: number) => number;
  readonly width: number;
  readonly low: number;
  readonly committed: number;
  readonly bound: number | undefined;
  /** Box of the batch that blocks the checkpoint, if it is in view. */
  readonly blocking: Box | undefined;
}

interface Label {
  readonly text: string;
  readonly x: number;
  readonly strong?: boolean;
}

/** Half of the estimated width of a character of a label, in pixels. */
const HALF_CHARACTER = 3.1;

/** Checkpoint, low watermark, the source's end and what blocks the checkpoint: lines across the band, labels above it. */
export function Markers({ line, x, width, low, committed, bound, blocking }: MarkersProps) {
  const shown = (at: number) => x(at) >= -1 && x(at) <= width + 1;
  const labels: Label[] = [];
  if (shown(committed)) {
    labels.push({ text: "checkpoint", x: x(committed), strong: true });
  }
  if (blocking !== undefined && line.blocked !== null && line.blocked.batches > 0) {
    labels.push({ text: blocksText(line.blocked), x: blocking.x + blocking.width / 2, strong: true });
  }
  if (bound !== undefined && shown(bound)) {
    labels.push({ text: "source's end", x: x(bound) });
  }
  if (low !== committed && shown(low)) {
    labels.push({ text: "low watermark", x: x(low) });
  }
  return (
    <>
      {shown(low) ? <Rule dashes="2 3" stroke={paint("fg.muted")} x={x(low)} /> : null}
      {bound !== undefined && shown(bound) ? <Rule dashes="6 3" stroke={paint("fg.muted")} x={x(bound)} /> : null}
      {blocking === undefined ? null : (
        <rect
          fill="none"
          height={BAND + 6}
          rx={3}
          stroke={paint("fg")}
          strokeWidth={2}
          width={blocking.width + 6}
          x={blocking.x - 3}
          y={MARKS - 3}
        />
      )}
      {shown(committed) ? (
        <>
          <Rule stroke={paint("fg")} x={x(committed)} />
          <path d={`M${x(committed) - 5} ${MARKS - 8}h10l-5 7z`} fill={paint("fg")} />
        </>
      ) : null}
      {placed(labels, width).map((label) => (
        <text
          fill={paint(label.strong ? "fg" : "fg.muted")}
          key={label.text}
          style={{ fontSize: 11, fontWeight: label.strong ? 600 : 400 }}
          textAnchor="middle"
          x={label.x}
          y={MARKS - 12}
        >
          {label.text}
        </text>
      ))}
    </>
  );
}

export function blocksText(blocked: Blocked): string {
  return `blocks ${many(blocked.batches, "batch", "batches")}, ${count(blocked.positions)} positions`;
}

function Rule({ x, stroke, dashes }: { readonly x: number; readonly stroke: string; readonly dashes?: string }) {
  return (
    <line stroke={stroke} strokeDasharray={dashes} strokeWidth={2} x1={x} x2={x} y1={MARKS - 4} y2={MARKS + BAND + 4} />
  );
}

/** Labels moved into the picture, each right of the one before it; the least important are left out where there is no room. */
function placed(labels: readonly Label[], width: number): Label[] {
  const kept: Label[] = [];
  for (const label of labels) {
    const half = label.text.length * HALF_CHARACTER;
    const centre = Math.min(Math.max(label.x, half), width - half);
    const moved = kept.reduce((at, other) => {
      const room = half + other.text.length * HALF_CHARACTER + 8;
      return Math.abs(at - other.x) < room ? (at < other.x ? other.x - room : other.x + room) : at;
    }, centre);
    const collides = kept.some((other) => Math.abs(moved - other.x) < half + other.text.length * HALF_CHARACTER + 4);
    if (!collides && moved - half >= 0 && moved + half <= width) {
      kept.push({ ...label, x: moved });
    }
  }
  return kept;
}
