import type { LagPoint } from "../api/types";
import { compact } from "../format/numbers";
import { paint } from "../line/fates";

const WIDTH = 120;
const HEIGHT = 28;

interface SparklineProps {
  readonly points: readonly LagPoint[];
}

/** Planned above committed over the last 24 hours; the area between them is the lag. */
export function Sparkline({ points }: SparklineProps) {
  const shape = shapeOf(points);
  if (shape === undefined) {
    return null;
  }
  return (
    <svg aria-label={shape.label} height={HEIGHT} role="img" style={{ display: "block" }} width={WIDTH}>
      <title>{shape.label}</title>
      <path d={shape.area} fill={paint("orange.muted")} />
      <path d={shape.planned} fill="none" stroke={paint("orange.solid")} strokeWidth={1.5} />
      <path d={shape.committed} fill="none" stroke={paint("green.solid")} strokeWidth={1.5} />
    </svg>
  );
}

/** Paths of the picture; undefined if there are not two points to draw it from. */
export function shapeOf(
  points: readonly LagPoint[],
): Record<"label" | "area" | "planned" | "committed", string> | undefined {
  const first = points[0];
  const last = points.at(-1);
  if (first === undefined || last === undefined || points.length < 2) {
    return undefined;
  }
  const times = points.map((point) => Date.parse(point.at));
  const least = Math.min(...points.map((point) => point.committed));
  const most = Math.max(...points.map((point) => point.planned), least + 1);
  const x = scaled(times[0] ?? 0, times.at(-1) ?? 1, 1, WIDTH - 1);
  const y = scaled(least, most, HEIGHT - 2, 2);
  const path = (of: "planned" | "committed") =>
    points.map((point, index) => `${x(times[index] ?? 0).toFixed(1)} ${y(point[of]).toFixed(1)}`);
  const planned = path("planned");
  const committed = path("committed");
  return {
    label: `Lag of the last 24 hours: ${compact(lagOf(first))} at first, ${compact(lagOf(last))} at last`,
    area: `M${planned.join("L")}L${committed.toReversed().join("L")}Z`,
    planned: `M${planned.join("L")}`,
    committed: `M${committed.join("L")}`,
  };
}

function lagOf(point: LagPoint): number {
  return Math.max(0, point.planned - point.committed);
}

function scaled(from: number, to: number, start: number, end: number): (value: number) => number {
  const span = to - from || 1;
  return (value) => start + ((value - from) / span) * (end - start);
}
