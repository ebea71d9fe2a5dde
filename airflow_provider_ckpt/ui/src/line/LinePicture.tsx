import { Box } from "@chakra-ui/react";
import { useMemo } from "react";
import { CanvasBand } from "./CanvasBand";
import { summary } from "./describe";
import { paint } from "./fates";
import { layout } from "./layout";
import { Markers } from "./Markers";
import type { LineModel, Stretch } from "./model";
import { SvgBand } from "./SvgBand";
import { BAND, CANVAS_FROM, MARKS } from "./sizes";
import { useWidth } from "./useWidth";
import { scale } from "./view";

interface LinePictureProps {
  readonly model: LineModel;
  readonly label: string;
  /** Parts to draw a frame around. */
  readonly outlined: readonly Stretch[];
}

/** A number line to look at, without anything to press. */
export function LinePicture({ model, label, outlined }: LinePictureProps) {
  const [frame, width] = useWidth<HTMLDivElement>();
  const boxes = useMemo(() => (width > 0 ? layout(model, model.whole, width) : []), [model, width]);
  const x = scale(model.whole, width);
  const Band = model.pieces.length > CANVAS_FROM ? CanvasBand : SvgBand;
  return (
    <Box aria-label={`${label}: ${summary(model.line)}`} position="relative" ref={frame} role="img">
      <Box height={`${MARKS}px`} />
      <Box
        bg="bg.subtle"
        borderColor="border"
        borderRadius="xs"
        borderWidth="1px"
        height={`${BAND}px`}
        overflow="hidden"
      >
        <Band boxes={boxes} height={BAND} width={width} />
      </Box>
      <svg
        aria-hidden="true"
        height={MARKS + BAND + 6}
        style={{ inset: 0, overflow: "visible", pointerEvents: "none", position: "absolute" }}
        width={width}
      >
        <Markers
          blocking={undefined}
          bound={model.bound}
          committed={model.committed}
          line={model.line}
          low={model.low}
          width={width}
          x={x}
        />
        {outlined.map((part) => (
          <rect
            data-testid="ckpt-difference"
            fill="none"
            height={BAND + 8}
            key={part.from}
            rx={3}
            stroke={paint("blue.fg")}
            strokeDasharray="5 3"
            strokeWidth={2.5}
            width={Math.max(6, x(part.to) - x(part.from) + 4)}
            x={x(part.from) - 2}
            y={MARKS - 4}
          />
        ))}
      </svg>
    </Box>
  );
}
