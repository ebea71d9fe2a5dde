import type { ActionFlag, RunBar, Timeline } from "../api/types";
import { visible } from "../format/text";
import { paint } from "../line/fates";
import { AXIS } from "./plot";

const RUNS = 22;
const FLAGS = 30;

interface MarksProps {
  readonly timeline: Timeline;
  readonly width: number;
  readonly from: number;
  readonly to: number;
}

/** Runs as bars and actions as flags, below the plot and on its scale. */
export function Marks({ timeline, width, from, to }: MarksProps) {
  const room = Math.max(1, width - 2 * AXIS);
  const x = (at: string) => AXIS + ((Date.parse(at) / 1000 - from) / (to - from)) * room;
  return (
    <svg aria-hidden="true" height={RUNS + FLAGS} style={{ display: "block" }} width={width}>
      <clipPath id="ckpt-marks">
        <rect height={RUNS + FLAGS} width={room} x={AXIS} />
      </clipPath>
      <Name text="actions" y={FLAGS / 2} />
      <Name text="runs" y={FLAGS + RUNS / 2} />
      <g clipPath="url(#ckpt-marks)">
        <rect fill={paint("bg.subtle")} height={RUNS - 6} width={room} x={AXIS} y={FLAGS + 3} />
        {timeline.runs.map((run) => (
          <Bar
            end={run.ended_at === null ? AXIS + room : x(run.ended_at)}
            key={run.epoch}
            run={run}
            start={x(run.started_at)}
          />
        ))}
        {timeline.actions.map((action) => (
          <Flag action={action} key={action.event} x={x(action.at)} />
        ))}
      </g>
    </svg>
  );
}

function Name({ text, y }: { readonly text: string; readonly y: number }) {
  return (
    <text
      dominantBaseline="central"
      fill={paint("fg.muted")}
      style={{ fontSize: 11 }}
      textAnchor="end"
      x={AXIS - 8}
      y={y}
    >
      {text}
    </text>
  );
}

/** How a run ended: whole bars were released; one that was taken from its run has a torn end. */
const ENDS: Readonly<Record<RunBar["end"], string>> = {
  released: "green.solid",
  open: "cyan.solid",
  taken_over: "orange.solid",
  broken: "red.solid",
};

function Bar({ run, start, end }: { readonly run: RunBar; readonly start: number; readonly end: number }) {
  const isTorn = run.end === "taken_over" || run.end === "broken";
  return (
    <rect
      fill={paint(ENDS[run.end])}
      height={RUNS - 10}
      stroke={isTorn ? paint("fg") : "none"}
      strokeDasharray="2 2"
      width={Math.max(2, end - start)}
      x={start}
      y={FLAGS + 5}
    >
      <title>{visible(`${run.owner}, epoch ${run.epoch}, ${run.end.replace("_", " ")}`)}</title>
    </rect>
  );
}

function Flag({ action, x }: { readonly action: ActionFlag; readonly x: number }) {
  return (
    <g>
      <title>{visible(`${action.kind.replaceAll("_", " ")} by ${action.actor ?? "?"}: ${action.reason ?? ""}`)}</title>
      <path
        d={`M${x} ${FLAGS + RUNS}V6h12l-3 4 3 4h-12`}
        fill={paint("blue.solid")}
        stroke={paint("blue.solid")}
        strokeWidth={1.5}
      />
    </g>
  );
}
