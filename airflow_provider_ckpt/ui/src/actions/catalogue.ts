/** The actions of users: their names, what they are for, and what they have to be given. */

import type { ActionName, ActionWish } from "../api/types";

export interface ActionEntry {
  readonly label: string;
  /** What it does, in one sentence. */
  readonly text: string;
  /** What the user has to fill in before the dry run; undefined if nothing. */
  readonly form?: "rewind" | "range" | "dead_letters" | "position" | "ledger" | "keep";
  /** Whether records are given up, sent again or interrupted. */
  readonly isGrave?: boolean;
}

export const ACTIONS: Readonly<Record<ActionName, ActionEntry>> = {
  release: { label: "Release", text: "Gives held batches their attempts back; the next run sends them." },
  hold: {
    label: "Hold",
    text: "Keeps batches from being sent until they are released or skipped. The checkpoint waits.",
  },
  skip: {
    label: "Skip",
    text: "Gives batches up: their records are neither delivered nor dead-lettered, and the checkpoint passes them.",
    isGrave: true,
  },
  drain: { label: "Drain", text: "Nothing new is planned or started; what is in flight ends." },
  stop: { label: "Stop", text: "Stops a pipeline that has nothing in flight. Planned and held batches stay." },
  resume: { label: "Resume", text: "Lets a drained or stopped pipeline plan and send again." },
  rewind: {
    label: "Rewind",
    text: "Begins a new generation at an earlier position. What follows is read and delivered again.",
    form: "rewind",
    isGrave: true,
  },
  replay: {
    label: "Replay a range",
    text: "Reads a range of the source once more, beside the stream. The checkpoint stays.",
    form: "range",
    isGrave: true,
  },
  replay_dead_letters: {
    label: "Replay dead letters",
    text: "Sends dead letters once more, through the pipeline as it is declared then.",
    form: "dead_letters",
  },
  discard_dead_letters: {
    label: "Discard dead letters",
    text: "Gives dead letters up: they no longer wait for anybody.",
    form: "dead_letters",
    isGrave: true,
  },
  recover: { label: "Recover", text: "Searches source and receipts for records that were never read, and reads them." },
  force_stop: {
    label: "Force stop",
    text: "Takes the lease from the run that holds it, fences that run, and abandons what it has in flight.",
    isGrave: true,
  },
  resend_to_sink: {
    label: "Send again what the sink has lost",
    text: "For a sink that was restored or truncated: sends again what it no longer has.",
    form: "position",
    isGrave: true,
  },
  keep_sink: {
    label: "Keep the sink as it is",
    text: "For a sink that was changed on purpose: continues from the checkpoint.",
    isGrave: true,
  },
  move: {
    label: "Move to another sink",
    text: "Lets the next run deliver to the sink that is declared now.",
    isGrave: true,
  },
  adopt: {
    label: "Adopt receipts",
    text: "For a ledger that was lost: continues with the receipts that it has written to the sink.",
    form: "ledger",
    isGrave: true,
  },
  accept_schema: {
    label: "Accept changed columns",
    text: "Lets the next run follow a change of the source's columns that the policy freezes, once.",
    isGrave: true,
  },
  break_lease: {
    label: "Break lease",
    text: "Takes the lease from its holder, whose commands the ledger refuses from then on.",
    isGrave: true,
  },
  collect_garbage: {
    label: "Collect garbage",
    text: "Deletes old history from the ledger that recovery does not need.",
    form: "keep",
    isGrave: true,
  },
  delete_pipeline: {
    label: "Delete pipeline",
    text: "Deletes the pipeline's checkpoints, batches and receipts from the ledger. The sink is not changed.",
    isGrave: true,
  },
};

/** Whether an action can be tried as it is wished for, without a form. */
export function isComplete(wish: ActionWish): boolean {
  const { form } = ACTIONS[wish.kind];
  return form === undefined || (form === "dead_letters" && wish.dead_letters != null);
}
