import { Box, Table, Text } from "@chakra-ui/react";

import type { DatabaseRow } from "../api/types";
import { databasePath, useRoot } from "../app/paths";
import { HEALTHS, HealthMark } from "../elements/HealthMark";
import { TextLink } from "../elements/TextLink";
import { Moment } from "../elements/Time";
import { count } from "../format/numbers";
import { visible } from "../format/text";
import { CELLS } from "./PipelineTable";

interface DatabaseTableProps {
  readonly rows: readonly DatabaseRow[];
  readonly leftOut: number;
}

/** Sums of each database's tables, in the order of the API, which is that of their most urgent table. */
export function DatabaseTable({ rows, leftOut }: DatabaseTableProps) {
  return (
    <Box data-testid="ckpt-databases" mb={5}>
      <Table.ScrollArea whiteSpace="normal">
        <Table.Root aria-label="Databases" css={CELLS} size="sm">
          <Table.Header>
            <Table.Row>
              <Table.ColumnHeader>Database</Table.ColumnHeader>
              <Table.ColumnHeader minW="20rem">Health of its tables</Table.ColumnHeader>
              {NUMBERS.map(([heading]) => (
                <Table.ColumnHeader key={heading} textAlign="end">
                  {heading}
                </Table.ColumnHeader>
              ))}
              <Table.ColumnHeader textAlign="end">Planned since</Table.ColumnHeader>
            </Table.Row>
          </Table.Header>
          <tbody>
            {rows.map((row) => (
              <Row key={row.name} row={row} />
            ))}
          </tbody>
        </Table.Root>
      </Table.ScrollArea>
      {leftOut === 0 ? null : (
        <Text color="fg.muted" fontSize="sm" mt={1}>
          {count(leftOut)} more are not shown; search for their names.
        </Text>
      )}
    </Box>
  );
}

const NUMBERS: readonly (readonly [heading: string, of: (row: DatabaseRow) => number])[] = [
  ["Tables", (row) => row.tables],
  ["Done", (row) => row.done],
  ["Behind", (row) => row.behind],
  ["Held", (row) => row.held],
  ["Failed", (row) => row.failed],
  ["Running", (row) => row.running],
  ["Dead letters", (row) => row.dead_letters],
];

function Row({ row }: { readonly row: DatabaseRow }) {
  const root = useRoot();
  return (
    <tr data-database={row.name} data-health={row.health}>
      <td>
        <TextLink to={databasePath(root, row.name)}>{visible(row.name)}</TextLink>
      </td>
      <td>
        {HEALTHS.filter((health) => (row.by_health[health] ?? 0) > 0).map((health) => (
          <TextLink
            alignItems="center"
            display="inline-flex"
            gap={1}
            key={health}
            me={3}
            to={databasePath(root, row.name, health)}
            whiteSpace="nowrap"
          >
            <HealthMark health={health} /> {count(row.by_health[health] ?? 0)}
          </TextLink>
        ))}
      </td>
      {NUMBERS.map(([heading, of]) => (
        <td className={of(row) === 0 ? "ckpt-number ckpt-muted" : "ckpt-number"} key={heading}>
          {count(of(row))}
        </td>
      ))}
      <td className="ckpt-number ckpt-muted ckpt-small">
        {row.planned_at === null ? "not all planned" : <Moment at={row.planned_at} />}
      </td>
    </tr>
  );
}
