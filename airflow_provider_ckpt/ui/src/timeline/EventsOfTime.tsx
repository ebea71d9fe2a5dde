import { Badge, Table, Text } from "@chakra-ui/react";

import type { Timeline } from "../api/types";
import { RunText } from "../elements/RunText";
import { UserText } from "../elements/UserText";
import { duration, moment, since } from "../format/times";

interface Entry {
  readonly key: string;
  readonly at: string;
  readonly kind: "run" | "action";
  readonly cells: React.ReactNode;
}

/** Runs and actions of the span in words, the newest first. */
export function EventsOfTime({ timeline }: { readonly timeline: Timeline }) {
  const entries = entriesOf(timeline).toSorted((one, other) => Date.parse(other.at) - Date.parse(one.at));
  if (entries.length === 0) {
    return null;
  }
  return (
    <Table.ScrollArea mt={4} whiteSpace="normal">
      <Table.Root size="sm">
        <Table.Header>
          <Table.Row>
            <Table.ColumnHeader>When</Table.ColumnHeader>
            <Table.ColumnHeader>What</Table.ColumnHeader>
            <Table.ColumnHeader>Who</Table.ColumnHeader>
            <Table.ColumnHeader>How</Table.ColumnHeader>
          </Table.Row>
        </Table.Header>
        <Table.Body>
          {entries.map((entry) => (
            <Table.Row key={entry.key} verticalAlign="top">
              <Table.Cell fontVariantNumeric="tabular-nums" whiteSpace="nowrap">
                {moment(entry.at)}
              </Table.Cell>
              {entry.cells}
            </Table.Row>
          ))}
        </Table.Body>
      </Table.Root>
      {timeline.left_out ? (
        <Text color="fg.muted" fontSize="sm" mt={2}>
          Older runs or actions of this span are left out: choose a shorter one, or see the events.
        </Text>
      ) : null}
    </Table.ScrollArea>
  );
}

function entriesOf(timeline: Timeline): Entry[] {
  const runs = timeline.runs.map((run) => ({
    key: `run ${run.epoch}`,
    at: run.started_at,
    kind: "run" as const,
    cells: (
      <>
        <Table.Cell>run, epoch {run.epoch}</Table.Cell>
        <Table.Cell>
          <RunText owner={run.owner} run={run.run} />
        </Table.Cell>
        <Table.Cell>
          <Badge colorPalette={run.end === "released" ? "green" : run.end === "open" ? "cyan" : "orange"}>
            {run.end.replace("_", " ")}
          </Badge>{" "}
          {run.ended_at === null ? "" : `after ${duration(since(run.started_at, new Date(run.ended_at)))}`}
        </Table.Cell>
      </>
    ),
  }));
  const actions = timeline.actions.map((action) => ({
    key: `action ${action.event}`,
    at: action.at,
    kind: "action" as const,
    cells: (
      <>
        <Table.Cell fontWeight="semibold">{action.kind.replaceAll("_", " ")}</Table.Cell>
        <Table.Cell>
          <UserText>{action.actor ?? ""}</UserText>
        </Table.Cell>
        <Table.Cell>
          <UserText>{action.reason ?? ""}</UserText>
        </Table.Cell>
      </>
    ),
  }));
  return [...runs, ...actions];
}
