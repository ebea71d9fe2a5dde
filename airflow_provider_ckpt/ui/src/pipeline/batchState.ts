import type { BatchRow } from "../api/types";

/** The word and the colour of each state of a batch. */
export const BATCH_STATE: Readonly<Record<BatchRow["state"], { readonly label: string; readonly palette: string }>> = {
  held: { label: "held", palette: "orange" },
  in_flight: { label: "in flight", palette: "cyan" },
  planned: { label: "planned", palette: "gray" },
  delivered: { label: "delivered", palette: "green" },
  rejected: { label: "rejected", palette: "red" },
  skipped: { label: "skipped", palette: "pink" },
  sent: { label: "sent", palette: "purple" },
  superseded: { label: "superseded", palette: "gray" },
};

/** What a batch that is not being sent waits for; empty if it waits for nothing. */
export function waitingFor(row: Pick<BatchRow, "waits_for" | "not_before">): string {
  switch (row.waits_for) {
    case "person":
      return "a person";
    case "run":
      return "the next run";
    case "time":
      return "its time";
    default:
      return "";
  }
}
