/** Dead letters put together: one line for each error type and state, with its hours. */

import type { DeadLetterGroup } from "../api/types";

export interface ErrorGroup {
  readonly type: string;
  readonly state: DeadLetterGroup["state"];
  readonly records: number;
  readonly firstAt: string;
  readonly lastAt: string;
  /** The newest first. */
  readonly hours: readonly DeadLetterGroup[];
}

/** Groups by error type and state, those with the most records first. */
export function byError(groups: readonly DeadLetterGroup[]): ErrorGroup[] {
  const found = new Map<string, DeadLetterGroup[]>();
  for (const group of groups) {
    const key = `${group.state} ${group.error_type}`;
    found.set(key, [...(found.get(key) ?? []), group]);
  }
  return [...found.values()].map(together).sort((one, other) => other.records - one.records);
}

function together(hours: readonly DeadLetterGroup[]): ErrorGroup {
  const sorted = hours.toSorted((one, other) => Date.parse(other.hour) - Date.parse(one.hour));
  const times = (pick: (group: DeadLetterGroup) => string) => sorted.map(pick).toSorted();
  return {
    type: sorted[0]?.error_type ?? "",
    state: sorted[0]?.state ?? "parked",
    records: sorted.reduce((sum, group) => sum + group.records, 0),
    firstAt: times((group) => group.first_at)[0] ?? "",
    lastAt: times((group) => group.last_at).at(-1) ?? "",
    hours: sorted,
  };
}

/** Begin and end of the hour of a group. */
export function hourOf(group: Pick<DeadLetterGroup, "hour">): { since: string; until: string } {
  const end = new Date(Date.parse(group.hour) + 3_600_000);
  return { since: new Date(group.hour).toISOString(), until: end.toISOString() };
}
