/** The plot of lag and checkpoint: its data, and its options in the colours of the page. */

import type uPlot from "uplot";

import type { LagPoint } from "../api/types";
import { compact } from "../format/numbers";
import { moment, zone } from "../format/times";

/** Widths in pixels that the axes left and right of the plot take. */
export const AXIS = 64;
export const HEIGHT = 240;

/** Times in seconds, lag, and checkpoint, as columns. */
export function columnsOf(history: readonly LagPoint[]): uPlot.AlignedData {
  return [
    history.map((point) => Date.parse(point.at) / 1000),
    history.map((point) => Math.max(0, point.planned - point.committed)),
    history.map((point) => point.committed),
  ];
}

interface PlotSettings {
  readonly width: number;
  readonly from: number;
  readonly to: number;
  /** Turns a token of Chakra's palette into a colour. */
  readonly colour: (token: string) => string;
  readonly toDate: (seconds: number, timeZone: string) => Date;
  readonly onScale: (from: number, to: number) => void;
}

export function optionsOf({ width, from, to, colour, toDate, onScale }: PlotSettings): uPlot.Options {
  const axis = {
    font: "12px sans-serif",
    grid: { stroke: colour("border.subtle"), width: 1 },
    stroke: colour("fg.muted"),
    ticks: { show: false },
  };
  const values = (_: uPlot, splits: number[]) => splits.map(compact);
  return {
    width,
    height: HEIGHT,
    tzDate: (seconds) => toDate(seconds, zone()),
    cursor: { drag: { x: true, y: false } },
    legend: { live: true },
    scales: {
      x: { time: true, range: (_, low, high) => [low ?? from, high ?? to] },
      lag: { range: (_, __, high) => [0, Math.max(1, high)] },
    },
    axes: [
      { ...axis, size: 36, values: (_, splits, __, ___, step) => splits.map((seconds) => tick(seconds, step)) },
      { ...axis, label: "lag", labelSize: 16, scale: "lag", size: AXIS - 16, values },
      {
        ...axis,
        grid: { show: false },
        label: "checkpoint",
        labelSize: 16,
        scale: "checkpoint",
        side: 1,
        size: AXIS - 16,
        values,
      },
    ],
    series: [
      { label: "time" },
      {
        label: "lag",
        scale: "lag",
        fill: colour("orange.muted"),
        stroke: colour("orange.solid"),
        value: (_, value) => (value === null ? "–" : compact(value)),
        points: { show: false },
        width: 2,
      },
      {
        label: "checkpoint, since the beginning of the span",
        scale: "checkpoint",
        dash: [6, 3],
        stroke: colour("green.solid"),
        value: (_, value) => (value === null ? "–" : compact(value)),
        points: { show: false },
        width: 2,
      },
    ],
    hooks: {
      setScale: [
        (plot, key) => {
          const { min, max } = plot.scales[key] ?? {};
          if (key === "x" && min != null && max != null) {
            onScale(min, max);
          }
        },
      ],
    },
  };
}

/** A time at the axis: the day where the day begins or steps are days, else the time of day. */
function tick(seconds: number, step: number): string {
  const at = moment(new Date(seconds * 1000).toISOString());
  const time = at.slice(11, 16);
  return step >= 86_400 || time === "00:00" ? at.slice(5, 10) : time;
}
