import { useEffect, useRef } from "react";

import type { Fate } from "../api/types";
import { FATES, LOOKS, TILE } from "./fates";
import type { BandProps } from "./SvgBand";
import { useScheme } from "./useScheme";

/** The ranges of a number line as one picture, for more of them than a page can have elements. */
export function CanvasBand({ boxes, width, height }: BandProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const scheme = useScheme();
  const patterns = useRef<{ readonly scheme: string; readonly fills: Fills } | undefined>(undefined);
  useEffect(() => {
    const element = canvas.current;
    const context = element?.getContext("2d");
    if (element == null || context == null) {
      return;
    }
    const ratio = window.devicePixelRatio || 1;
    element.width = Math.round(width * ratio);
    element.height = Math.round(height * ratio);
    if (patterns.current?.scheme !== scheme) {
      patterns.current = { scheme, fills: fillsOf(element) };
    }
    const { fills } = patterns.current;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    for (const box of boxes) {
      context.fillStyle = fills.get(box.fate) ?? "gray";
      context.fillRect(box.x, 0, box.width > 4 ? box.width - 1 : box.width, height);
    }
  }, [boxes, width, height, scheme]);
  return <canvas data-testid="ckpt-canvas" ref={canvas} style={{ display: "block", height, width }} />;
}

type Fills = ReadonlyMap<Fate, CanvasPattern | string>;

/** The fates' patterns in the colours of the page as it is now. */
function fillsOf(element: HTMLElement): Fills {
  const style = getComputedStyle(element);
  const colour = (token: string) => style.getPropertyValue(`--chakra-colors-${token.replace(".", "-")}`).trim();
  return new Map(FATES.map((fate) => [fate, tile(colour(LOOKS[fate].colour), colour("bg"), fate)]));
}

function tile(colour: string, over: string, fate: Fate): CanvasPattern | string {
  const canvas = document.createElement("canvas");
  canvas.width = TILE;
  canvas.height = TILE;
  const context = canvas.getContext("2d");
  if (context === null || LOOKS[fate].motif === "") {
    return colour;
  }
  context.fillStyle = colour;
  context.fillRect(0, 0, TILE, TILE);
  context.strokeStyle = over;
  context.globalAlpha = 0.75;
  context.lineWidth = LOOKS[fate].strokeWidth;
  context.stroke(new Path2D(LOOKS[fate].motif));
  return context.createPattern(canvas, "repeat") ?? colour;
}
