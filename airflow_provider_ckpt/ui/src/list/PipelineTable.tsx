import { Box, HStack, Progress, Stack, Table, Text } from "@chakra-ui/react";

import type { PipelineRow } from "../api/types";
import { pipelinePath, useRoot } from "../app/paths";
import { HealthMark } from "../elements/HealthMark";
import { TextLink } from "../elements/TextLink";
import { Moment, Since } from "../elements/Time";
import { UserText } from "../elements/UserText";
import { count, many, percent, rate } from "../format/numbers";
import { visible } from "../format/text";
import { Sparkline } from "./Sparkline";

/** Pipelines in the order of the API, which is that of their need. */
export function PipelineTable({ rows }: { readonly rows: readonly PipelineRow[] }) {
  const root = useRoot();
  return (
    <Table.ScrollArea whiteSpace="normal">
      <Table.Root size="sm">
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
        <Table.Body>
          {rows.map((row) => (
            <Row key={row.name} root={root} row={row} />
          ))}
        </Table.Body>
      </Table.Root>
    </Table.ScrollArea>
  );
}

function Row({ row, root }: { readonly row: PipelineRow; readonly root: string }) {
  return (
    <Table.Row data-health={row.health} data-pipeline={row.name} verticalAlign="top">
      <Table.Cell>
        <TextLink to={pipelinePath(root, row.name)}>{visible(row.name)}</TextLink>
      </Table.Cell>
      <Table.Cell>
        <HStack gap={2}>
          <HealthMark health={row.health} />
          {row.cause.since === null || row.health === "well" ? null : (
            <Text as="span" color="fg.muted" fontSize="sm" whiteSpace="nowrap">
              for <Since at={row.cause.since} />
            </Text>
          )}
        </HStack>
        <UserText color="fg.muted" display="block" fontSize="sm">
          {row.cause.text}
        </UserText>
        {row.stored_actions === 0 ? null : (
          <Text fontSize="sm" fontWeight="medium">
            {many(row.stored_actions, "action")} stored for the next run
          </Text>
        )}
      </Table.Cell>
      <Table.Cell fontVariantNumeric="tabular-nums" textAlign="end" whiteSpace="nowrap">
        {row.lag === null ? <Text color="fg.muted">not begun</Text> : count(row.lag)}
        {row.lag_as_of === null ? null : (
          <Text color="fg.muted" fontSize="xs">
            as of <Moment at={row.lag_as_of} />
          </Text>
        )}
      </Table.Cell>
      <Table.Cell>
        <Sparkline points={row.history} />
      </Table.Cell>
      <Table.Cell fontVariantNumeric="tabular-nums" textAlign="end" whiteSpace="nowrap">
        {row.rate === null ? <Text color="fg.muted">–</Text> : rate(row.rate)}
      </Table.Cell>
      <Count root={root} row={row} value={row.held} view="batches" />
      <Count root={root} row={row} value={row.dead_letters} view="dead-letters" />
      <Table.Cell>
        <Checkpoint row={row} />
      </Table.Cell>
    </Table.Row>
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
    <Table.Cell fontVariantNumeric="tabular-nums" textAlign="end">
      {value === 0 ? (
        <Text color="fg.muted">0</Text>
      ) : (
        <TextLink to={pipelinePath(root, row.name, view, search)}>{count(value)}</TextLink>
      )}
    </Table.Cell>
  );
}

function Checkpoint({ row }: { readonly row: PipelineRow }) {
  const parts = many(row.partitions, "partition");
  if (row.progress === null) {
    return (
      <Text color="fg.muted" fontSize="sm">
        {parts}
      </Text>
    );
  }
  return (
    <Stack gap={1}>
      <Progress.Root aria-label={`Checkpoint of ${row.name}`} colorPalette="green" size="xs" value={row.progress * 100}>
        <Progress.Track>
          <Progress.Range />
        </Progress.Track>
      </Progress.Root>
      <Box color="fg.muted" fontSize="sm" fontVariantNumeric="tabular-nums" whiteSpace="nowrap">
        {percent(row.progress)} · {parts}
      </Box>
    </Stack>
  );
}
