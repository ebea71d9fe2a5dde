import { useId } from "react";

import { LOOKS, paint } from "./fates";
import type { Box } from "./layout";
import { Patterns, patternId } from "./Patterns";

/** Width in pixels from which a box has room for its letter. */
const LETTER_ROOM = 14;

export interface BandProps {
  readonly boxes: readonly Box[];
  readonly width: number;
  readonly height: number;
  /** Whether the fates' letters are left out. */
  readonly isPlain?: boolean;
}

/** The ranges of a number line, each as an element of its own. */
export function SvgBand({ boxes, width, height, isPlain = false }: BandProps) {
  const id = useId();
  return (
    <svg aria-hidden="true" height={height} style={{ display: "block" }} width={width}>
      <Patterns id={id} />
      {boxes.map((box) => (
        <g key={`${box.index}-${box.fate}`}>
          <rect
            data-fate={box.fate}
            fill={`url(#${patternId(id, box.fate)})`}
            height={height}
            stroke={paint("bg")}
            strokeWidth={box.width > 4 ? 1 : 0}
            width={box.width}
            x={box.x}
            y={0}
          />
          {!isPlain && box.width >= LETTER_ROOM && LOOKS[box.fate].letter !== "" ? (
            <Letter box={box} height={height} letter={LOOKS[box.fate].letter} />
          ) : null}
        </g>
      ))}
    </svg>
  );
}

function Letter({ box, height, letter }: { readonly box: Box; readonly height: number; readonly letter: string }) {
  const x = box.x + box.width / 2;
  return (
    <>
      <circle cx={x} cy={height / 2} fill={paint("bg")} r={6.5} />
      <text
        dominantBaseline="central"
        fill={paint("fg")}
        style={{ fontSize: 10, fontWeight: 700 }}
        textAnchor="middle"
        x={x}
        y={height / 2}
      >
        {letter}
      </text>
    </>
  );
}
