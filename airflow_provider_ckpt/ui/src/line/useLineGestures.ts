import { type PointerEvent, useState } from "react";

import { between, positionAt, type View } from "./view";

/** Distance in pixels from which a press is a drag and no click. */
const DRAG = 4;

interface Press {
  readonly start: number;
  readonly now: number;
  readonly selects: boolean;
}

export interface Gestures {
  /** The part that is being dragged over, from left to right in pixels; undefined while nothing is dragged. */
  readonly drag: { readonly from: number; readonly to: number; readonly selects: boolean } | undefined;
  readonly handlers: {
    readonly onPointerCancel: () => void;
    readonly onPointerDown: (event: PointerEvent<HTMLElement>) => void;
    readonly onPointerMove: (event: PointerEvent<HTMLElement>) => void;
    readonly onPointerUp: (event: PointerEvent<HTMLElement>) => void;
  };
}

interface Reactions {
  readonly onZoom: (view: View) => void;
  readonly onSelect: (part: View) => void;
  /** @param pixels distance from the left edge */
  readonly onClick: (pixels: number, withShift: boolean) => void;
  readonly onHover: (pixels: number) => void;
}

/** Dragging zooms, dragging with shift selects, and a press without a drag is a click. */
export function useLineGestures(view: View, whole: View, width: number, reactions: Reactions): Gestures {
  const [press, setPress] = useState<Press>();
  const dragged = press !== undefined && Math.abs(press.now - press.start) >= DRAG;
  const at = (event: PointerEvent<HTMLElement>) => event.clientX - event.currentTarget.getBoundingClientRect().left;
  const finish = (event: PointerEvent<HTMLElement>) => {
    setPress(undefined);
    if (press === undefined) {
      return;
    }
    const end = at(event);
    if (Math.abs(end - press.start) < DRAG) {
      reactions.onClick(end, event.shiftKey);
      return;
    }
    const part = between(positionAt(view, width, press.start), positionAt(view, width, end), whole);
    (press.selects ? reactions.onSelect : reactions.onZoom)(part);
  };
  return {
    drag: dragged
      ? { from: Math.min(press.start, press.now), to: Math.max(press.start, press.now), selects: press.selects }
      : undefined,
    handlers: {
      onPointerCancel: () => setPress(undefined),
      onPointerDown: (event) => {
        if (event.button === 0) {
          event.currentTarget.setPointerCapture(event.pointerId);
          setPress({ start: at(event), now: at(event), selects: event.shiftKey });
        }
      },
      onPointerMove: (event) => {
        const now = at(event);
        setPress((old) => (old === undefined ? old : { ...old, now }));
        reactions.onHover(now);
      },
      onPointerUp: finish,
    },
  };
}
