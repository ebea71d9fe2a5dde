import { Box, chakra, Flex } from "@chakra-ui/react";
import { type KeyboardEvent, useId, useMemo, useState } from "react";

import type { Piece } from "../api/types";
import { UserText } from "../elements/UserText";
import { position } from "../format/numbers";
import { CanvasBand } from "./CanvasBand";
import { describePiece, summary } from "./describe";
import { isOpen, paint } from "./fates";
import { type Box as Area, boxAt, layout } from "./layout";
import { Markers } from "./Markers";
import { batchesIn, exact, type LineModel, type Stretch } from "./model";
import { SvgBand } from "./SvgBand";
import { BAND, CANVAS_FROM, FEET, MARKS } from "./sizes";
import { useLineGestures } from "./useLineGestures";
import { useWidth } from "./useWidth";
import { between, inside, scale, type View, zoomed } from "./view";

export interface NumberLineProps {
  readonly model: LineModel;
  readonly view: View;
  readonly onView: (view: View) => void;
  /** Batches that are selected for an action. */
  readonly selected: ReadonlySet<string>;
  readonly onSelect: (batches: readonly string[], add: boolean) => void;
  /** Batch whose details are shown; undefined if none is. */
  readonly opened: string | undefined;
  readonly onOpen: (batch: string) => void;
}

/** A partition as a number line: drag to zoom, drag with shift to select, click to open a batch, arrow keys to walk. */
export function NumberLine(props: NumberLineProps) {
  const { model, view, onView, selected, opened, onOpen, onSelect } = props;
  const id = useId();
  const [frame, width] = useWidth<HTMLDivElement>();
  const [active, setActive] = useState<number>();
  const [hovered, setHovered] = useState<number>();
  const boxes = useMemo(() => (width > 0 ? layout(model, view, width) : []), [model, view, width]);
  const x = scale(view, width);
  const gestures = useLineGestures(view, model.whole, width, {
    onClick: (pixels, withShift) => {
      const index = boxAt(boxes, pixels)?.index;
      const batch = index === undefined ? undefined : (model.pieces[index]?.batch ?? undefined);
      setActive(index);
      if (batch !== undefined) {
        withShift ? onSelect([batch], true) : onOpen(batch);
      }
    },
    onHover: (pixels) => setHovered(boxAt(boxes, pixels)?.index),
    onSelect: (part) => onSelect(batchesIn(model, part), true),
    onZoom: onView,
  });
  const walk = (index: number) => {
    const next = Math.min(Math.max(index, 0), model.pieces.length - 1);
    setActive(next);
    onView(revealed(view, model, next));
  };
  const onKeyDown = (event: KeyboardEvent<HTMLElement>) => {
    const action = keyAction(event.key, active, model, { onOpen, onSelect, onView, view, walk });
    if (action !== undefined) {
      event.preventDefault();
      action();
    }
  };
  const current = active === undefined ? undefined : model.pieces[active];
  const told = hovered === undefined ? current : model.pieces[hovered];
  const Band = model.pieces.length > CANVAS_FROM ? CanvasBand : SvgBand;
  const shownBoxes = boxes.filter((box) => matches(model.pieces[box.index], selected));
  const openedBox = boxes.find((box) => model.pieces[box.index]?.batch === opened);
  const blocking = boxes.find((box) => model.pieces[box.index]?.batch === model.line.blocked?.batch);
  return (
    <Box>
      <chakra.div
        _focusVisible={{ outline: "2px solid", outlineColor: "brand.focusRing", outlineOffset: "2px" }}
        aria-activedescendant={current === undefined ? undefined : `${id}-active`}
        aria-describedby={`${id}-summary`}
        aria-label={`Number line of partition ${model.line.partition}`}
        aria-multiselectable="true"
        cursor="crosshair"
        data-partition={model.line.partition}
        onKeyDown={onKeyDown}
        onPointerLeave={() => setHovered(undefined)}
        position="relative"
        ref={frame}
        role="listbox"
        tabIndex={0}
        touchAction="pan-y"
        userSelect="none"
        {...gestures.handlers}
      >
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
          height={MARKS + BAND + FEET}
          style={{ inset: 0, overflow: "visible", pointerEvents: "none", position: "absolute" }}
          width={width}
        >
          <VersionRules positions={model.versions} width={width} x={x} />
          <Gaps stretches={model.gaps} width={width} x={x} />
          <Feet stretches={model.deadLetters} width={width} x={x} />
          {shownBoxes.map((box) => (
            <Outline box={box} key={box.index} stroke={paint("blue.solid")} />
          ))}
          {openedBox === undefined ? null : <Outline box={openedBox} stroke={paint("fg")} />}
          <Markers
            blocking={blocking}
            bound={model.bound}
            committed={model.committed}
            line={model.line}
            low={model.low}
            width={width}
            x={x}
          />
          {active === undefined ? null : <Caret from={x(model.starts[active] ?? 0)} to={x(model.ends[active] ?? 0)} />}
          {gestures.drag === undefined ? null : (
            <rect
              fill={paint(gestures.drag.selects ? "blue.solid" : "fg.muted")}
              fillOpacity={0.25}
              height={BAND + 8}
              width={gestures.drag.to - gestures.drag.from}
              x={gestures.drag.from}
              y={MARKS - 4}
            />
          )}
        </svg>
        <Box height={`${FEET}px`} />
        <chakra.div aria-selected={matches(current, selected)} id={`${id}-active`} role="option" srOnly>
          {current === undefined ? "No range chosen: walk with the arrow keys" : describePiece(current)}
        </chakra.div>
      </chakra.div>
      <Flex
        aria-hidden="true"
        color="fg.muted"
        fontSize="xs"
        fontVariantNumeric="tabular-nums"
        gap={4}
        justify="space-between"
      >
        <span>{position(exact(model, view.from))}</span>
        <UserText truncate>{told === undefined ? "" : describePiece(told)}</UserText>
        <span>{position(exact(model, view.to))}</span>
      </Flex>
      <chakra.p id={`${id}-summary`} srOnly>
        {summary(model.line)} Arrow keys walk the ranges, Enter opens a batch, Space selects it, plus and minus zoom, 0
        shows all.
      </chakra.p>
    </Box>
  );
}

function matches(piece: Piece | undefined, selected: ReadonlySet<string>): boolean {
  return piece !== undefined && piece.batch !== null && selected.has(piece.batch);
}

interface KeyReactions extends Pick<NumberLineProps, "onOpen" | "onSelect" | "onView" | "view"> {
  readonly walk: (index: number) => void;
}

/** What a key does on a number line; undefined for a key that does nothing. */
function keyAction(
  key: string,
  active: number | undefined,
  model: LineModel,
  reactions: KeyReactions,
): (() => void) | undefined {
  const { onOpen, onSelect, onView, view, walk } = reactions;
  const at = active ?? firstOpen(model);
  const batch = model.pieces[active ?? -1]?.batch ?? undefined;
  const middle = active === undefined ? (view.from + view.to) / 2 : (model.starts[active] ?? 0);
  const onBatch = (react: (name: string) => void) => (batch === undefined ? undefined : () => react(batch));
  switch (key) {
    case "ArrowRight":
      return () => walk(active === undefined ? at : at + 1);
    case "ArrowLeft":
      return () => walk(active === undefined ? at : at - 1);
    case "Home":
      return () => walk(0);
    case "End":
      return () => walk(model.pieces.length - 1);
    case "Enter":
      return onBatch(onOpen);
    case " ":
      return onBatch((name) => onSelect([name], true));
    case "+":
    case "=":
      return () => onView(zoomed(view, middle, 0.5, model.whole));
    case "-":
      return () => onView(zoomed(view, middle, 2, model.whole));
    case "0":
      return () => onView(model.whole);
    default:
      return undefined;
  }
}

/** Where walking begins: at the first range for which the checkpoint waits, else at the first of all. */
function firstOpen(model: LineModel): number {
  return Math.max(
    0,
    model.pieces.findIndex((piece) => isOpen(piece.fate)),
  );
}

/** The view moved so that a piece is in it. */
function revealed(view: View, model: LineModel, index: number): View {
  const start = model.starts[index] ?? 0;
  const end = model.ends[index] ?? 0;
  if (start >= view.from && end <= view.to) {
    return view;
  }
  const length = view.to - view.from;
  if (end - start > length) {
    return between(start, end, model.whole);
  }
  const from = Math.round((start + end - length) / 2);
  return inside({ from, to: from + length }, model.whole);
}

/** Thin lines across the band where versions of the source's columns begin. */
function VersionRules({
  positions,
  x,
  width,
}: {
  readonly positions: readonly number[];
  readonly x: (at: number) => number;
  readonly width: number;
}) {
  const places = new Set(positions.map((at) => Math.round(x(at))).filter((at) => at >= 0 && at <= width));
  return [...places].map((at) => (
    <line
      key={at}
      stroke={paint("purple.solid")}
      strokeDasharray="2 2"
      strokeWidth={1.5}
      x1={at}
      x2={at}
      y1={MARKS - 4}
      y2={MARKS + BAND + 4}
    />
  ));
}

function Gaps({
  stretches,
  x,
  width,
}: {
  readonly stretches: readonly Stretch[];
  readonly x: (at: number) => number;
  readonly width: number;
}) {
  return stretches.map((gap) => {
    const left = Math.max(0, x(gap.from));
    const right = Math.min(width, x(gap.to));
    return right < 0 || left > width ? null : (
      <rect
        data-fate="gap"
        fill={paint("red.subtle")}
        height={BAND - 2}
        key={gap.from}
        stroke={paint("red.solid")}
        strokeDasharray="4 3"
        strokeWidth={2}
        width={Math.max(4, right - left)}
        x={left}
        y={MARKS + 2}
      />
    );
  });
}

/** Marks below the ranges in which records became dead letters. */
function Feet({
  stretches,
  x,
  width,
}: {
  readonly stretches: readonly Stretch[];
  readonly x: (at: number) => number;
  readonly width: number;
}) {
  const seen = new Set<number>();
  return stretches.map((stretch) => {
    const at = Math.round((x(stretch.from) + x(stretch.to)) / 2);
    if (at < 0 || at > width || seen.has(at)) {
      return null;
    }
    seen.add(at);
    const y = MARKS + BAND + 5;
    return <path d={`M${at - 3} ${y}l6 6M${at + 3} ${y}l-6 6`} key={at} stroke={paint("red.fg")} strokeWidth={1.5} />;
  });
}

function Outline({ box, stroke }: { readonly box: Area; readonly stroke: string }) {
  return <rect fill="none" height={BAND} stroke={stroke} strokeWidth={3} width={box.width} x={box.x} y={MARKS + 1} />;
}

function Caret({ from, to }: { readonly from: number; readonly to: number }) {
  const y = MARKS + BAND + 3;
  return <line stroke={paint("fg")} strokeWidth={3} x1={from} x2={Math.max(to, from + 3)} y1={y} y2={y} />;
}
