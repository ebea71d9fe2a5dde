import { chakra } from "@chakra-ui/react";
import { type PointerEvent, useMemo } from "react";

import { paint } from "./fates";
import { layout } from "./layout";
import type { LineModel } from "./model";
import { SvgBand } from "./SvgBand";
import { OVERVIEW } from "./sizes";
import { useWidth } from "./useWidth";
import { inside, positionAt, sameView, scale, type View } from "./view";

interface OverviewProps {
  readonly model: LineModel;
  readonly view: View;
  readonly onView: (view: View) => void;
}

/** The whole partition as a narrow strip, with a frame around the part that is shown; pressing it moves that part. */
export function Overview({ model, view, onView }: OverviewProps) {
  const [frame, width] = useWidth<HTMLDivElement>();
  const boxes = useMemo(() => (width > 0 ? layout(model, model.whole, width) : []), [model, width]);
  const x = scale(model.whole, width);
  const move = (event: PointerEvent<HTMLElement>) => {
    if (event.buttons === 1) {
      const pixels = event.clientX - event.currentTarget.getBoundingClientRect().left;
      const length = view.to - view.from;
      const from = Math.round(positionAt(model.whole, width, pixels) - length / 2);
      onView(inside({ from, to: from + length }, model.whole));
    }
  };
  return (
    <chakra.div
      aria-hidden="true"
      cursor="grab"
      mt={1}
      onPointerDown={move}
      onPointerMove={move}
      opacity={0.9}
      position="relative"
      ref={frame}
      touchAction="none"
    >
      <SvgBand boxes={boxes} height={OVERVIEW} isPlain width={width} />
      <svg
        aria-hidden="true"
        height={OVERVIEW + 4}
        style={{ left: 0, overflow: "visible", pointerEvents: "none", position: "absolute", top: -2 }}
        width={width}
      >
        {sameView(view, model.whole) ? null : (
          <rect
            fill={paint("fg")}
            fillOpacity={0.12}
            height={OVERVIEW + 4}
            rx={2}
            stroke={paint("fg")}
            strokeWidth={1.5}
            width={Math.max(6, x(view.to) - x(view.from))}
            x={x(view.from)}
          />
        )}
      </svg>
    </chakra.div>
  );
}
