import { Box } from "@chakra-ui/react";
import { useEffect, useRef } from "react";
import uPlot from "uplot";
import plotStyle from "uplot/dist/uPlot.min.css?inline";

import type { LagPoint } from "../api/types";
import { useScheme } from "../line/useScheme";
import { columnsOf, optionsOf } from "./plot";

interface LagPlotProps {
  readonly history: readonly LagPoint[];
  readonly width: number;
  readonly from: number;
  readonly to: number;
  readonly onScale: (from: number, to: number) => void;
}

/** Lag as an area and the checkpoint as a dashed line over time; dragging zooms, a double click shows all. */
export function LagPlot({ history, width, from, to, onScale }: LagPlotProps) {
  const frame = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const scheme = useScheme();
  const latest = useRef({ history, onScale });
  latest.current = { history, onScale };
  // biome-ignore lint/correctness/useExhaustiveDependencies: the colours are read anew when the scheme changes
  useEffect(() => {
    const element = frame.current;
    if (element === null || width === 0) {
      return;
    }
    const style = getComputedStyle(element);
    const options = optionsOf({
      width,
      from,
      to,
      colour: (token) => style.getPropertyValue(`--chakra-colors-${token.replace(".", "-")}`).trim(),
      toDate: (seconds, timeZone) => uPlot.tzDate(new Date(seconds * 1000), timeZone),
      onScale: (low, high) => latest.current.onScale(low, high),
    });
    const made = new uPlot(options, columnsOf(latest.current.history), element);
    plot.current = made;
    return () => {
      plot.current = undefined;
      made.destroy();
    };
  }, [width, from, to, scheme]);
  useEffect(() => {
    plot.current?.setData(columnsOf(history), false);
  }, [history]);
  return (
    <>
      <style href="ckpt-plot" precedence="default">
        {plotStyle}
      </style>
      <Box
        aria-label="Lag and checkpoint over time; the table below has runs and actions"
        data-testid="ckpt-plot"
        ref={frame}
        role="img"
      />
    </>
  );
}
