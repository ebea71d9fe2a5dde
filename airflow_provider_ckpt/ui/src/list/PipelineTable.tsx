import { Table, Text } from "@chakra-ui/react";
import { useDeferredValue } from "react";

import type { PipelineRow } from "../api/types";
import { pipelinePath, useRoot } from "../app/paths";
import { HealthMark } from "../elements/HealthMark";
import { TextLink } from "../elements/TextLink";
import { Moment, Since } from "../elements/Time";
import { UserText } from "../elements/UserText";
import { count, many, percent, rate } from "../format/numbers";
import { visible } from "../format/text";
import { Sparkline } from "./Sparkline";

/** Number of rows that fill a screen. */
const FIRST_ROWS = 20;

/** Pipelines in the order of the API, which is that of their need; at first those that fill a screen, then all. */
export function PipelineTable({ rows }: { readonly rows: readonly PipelineRow[] }) {
  const root = useRoot();
  const shown = useDeferredValue(rows, rows.slice(0, FIRST_ROWS));
  return (
    <Table.ScrollArea whiteSpace="normal">
      <Table.Root css={CELLS} size="sm">
        <Table.Header>
          <Table.Row>
            <Table.ColumnHeader>Pipeline</Table.ColumnHeader>
            <Table.ColumnHeader minW="20rem">Health</Table.ColumnHeader>
            <Table.ColumnHeader textAlign="end">Lag</Table.ColumnHeader>
            <Table.ColumnHeader>24 h</Table.ColumnHeader>
            <Table.ColumnHeader textAlign="end">Rate</Table.ColumnHeader>
            <Table.ColumnHeader textAlign="end">Held</Table.ColumnHeader>
            <Table.ColumnHeader textAlign="end">Dead letters</Table.ColumnHeader>
            <Table.ColumnHeader minW="9rem">Checkpoint</Table.ColumnHeader>
          </Table.Row>
        </Table.Header>
        <tbody>
          {shown.map((row) => (
            <Row key={row.name} root={root} row={row} />
          ))}
        </tbody>
      </Table.Root>
    </Table.ScrollArea>
  );
}

/**
 * Styles of all cells at once. The rows are plain elements, since a table of elements that Chakra styles one by one
 * takes several times as long to draw.
 */
export const CELLS = {
  "& td": { borderBottomWidth: "1px", px: "2", py: "2", verticalAlign: "top" },
  "& tbody tr": { bg: "bg" },
  "& .ckpt-number": { fontVariantNumeric: "tabular-nums", textAlign: "end", whiteSpace: "nowrap" },
  "& .ckpt-parts": { fontVariantNumeric: "tabular-nums", whiteSpace: "nowrap" },
  "& .ckpt-muted": { color: "fg.muted" },
  "& .ckpt-small": { fontSize: "sm" },
  "& .ckpt-least": { fontSize: "xs" },
  "& .ckpt-health": { alignItems: "center", display: "flex", gap: "2" },
  "& .ckpt-bar": { bg: "bg.muted", borderRadius: "l1", boxShadow: "inset", height: "1.5", mb: "1", overflow: "hidden" },
  "& .ckpt-bar > div": { bg: "green.solid", height: "100%" },
};

function Row({ row, root }: { readonly row: PipelineRow; readonly root: string }) {
  return (
    <tr data-health={row.health} data-pipeline={row.name}>
      <td>
        <TextLink to={pipelinePath(root, row.name)}>{visible(row.name)}</TextLink>
      </td>
      <td>
        <div className="ckpt-health">
          <HealthMark health={row.health} />
          {row.cause.since === null || row.health === "well" ? null : (
            <span className="ckpt-muted ckpt-small" style={{ whiteSpace: "nowrap" }}>
              for <Since at={row.cause.since} />
            </span>
          )}
        </div>
        <UserText color="fg.muted" display="block" fontSize="sm">
          {row.cause.text}
        </UserText>
        {row.stored_actions === 0 ? null : (
          <Text fontSize="sm" fontWeight="medium">
            {many(row.stored_actions, "action")} stored for the next run
          </Text>
        )}
      </td>
      <td className="ckpt-number">
        {row.lag === null ? <span className="ckpt-muted">not begun</span> : count(row.lag)}
        {row.lag_as_of === null ? null : (
          <div className="ckpt-muted ckpt-least">
            as of <Moment at={row.lag_as_of} />
          </div>
        )}
      </td>
      <td>
        <Sparkline points={row.history} />
      </td>
      <td className="ckpt-number">{row.rate === null ? <span className="ckpt-muted">–</span> : rate(row.rate)}</td>
      <Count root={root} row={row} value={row.held} view="batches" />
      <Count root={root} row={row} value={row.dead_letters} view="dead-letters" />
      <td>
        <Checkpoint row={row} />
      </td>
    </tr>
  );
}

interface CountProps {
  readonly row: PipelineRow;
  readonly root: string;
  readonly value: number;
  readonly view: "batches" | "dead-letters";
}

/** A number that leads to what it counts; 0 leads nowhere. */
function Count({ row, root, value, view }: CountProps) {
  const search = view === "batches" ? { state: "held" } : undefined;
  return (
    <td className="ckpt-number">
      {value === 0 ? (
        <span className="ckpt-muted">0</span>
      ) : (
        <TextLink to={pipelinePath(root, row.name, view, search)}>{count(value)}</TextLink>
      )}
    </td>
  );
}

function Checkpoint({ row }: { readonly row: PipelineRow }) {
  const parts = many(row.partitions, "partition");
  if (row.progress === null) {
    return <span className="ckpt-muted ckpt-small">{parts}</span>;
  }
  const share = row.progress * 100;
  return (
    <>
      <div
        aria-label={`Checkpoint of ${row.name}`}
        aria-valuemax={100}
        aria-valuemin={0}
        aria-valuenow={share}
        className="ckpt-bar"
        role="progressbar"
      >
        <div style={{ width: `${share}%` }} />
      </div>
      <div className="ckpt-muted ckpt-small ckpt-parts">
        {percent(row.progress)} · {parts}
      </div>
    </>
  );
}
