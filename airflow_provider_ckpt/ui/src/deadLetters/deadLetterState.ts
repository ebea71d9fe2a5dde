import type { DeadLetterGroup } from "../api/types";

/** The word and the colour of each state of dead letters. */
export const DEAD_LETTER_STATE: Readonly<
  Record<DeadLetterGroup["state"], { readonly label: string; readonly palette: string }>
> = {
  parked: { label: "parked", palette: "red" },
  parked_again: { label: "failed again", palette: "red" },
  replaying: { label: "replaying", palette: "cyan" },
  replayed: { label: "replayed", palette: "green" },
  discarded: { label: "discarded", palette: "gray" },
};

/** Whether dead letters of this state can be replayed or discarded. */
export function isParked(state: DeadLetterGroup["state"]): boolean {
  return state === "parked" || state === "parked_again";
}
