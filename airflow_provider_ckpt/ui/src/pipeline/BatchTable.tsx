import { Badge, Button, chakra, Table, Text } from "@chakra-ui/react";
import {
  createColumnHelper,
  type RowSelectionState,
  rowSelectionFeature,
  tableFeatures,
  useTable,
} from "@tanstack/react-table";
import { useMemo } from "react";

import type { BatchRow } from "../api/types";
import { Moment } from "../elements/Time";
import { UserText } from "../elements/UserText";
import { count, range } from "../format/numbers";
import { visible } from "../format/text";
import { BATCH_STATE, waitingFor } from "./batchState";
import type { Selection } from "./selection";

const features = tableFeatures({ rowSelectionFeature });
const helper = createColumnHelper<typeof features, BatchRow>();

interface BatchTableProps {
  readonly rows: BatchRow[];
  readonly selection: Selection;
  readonly opened: string | undefined;
  readonly onOpen: (batch: string) => void;
}

/** Batches in the order of the API; a press with shift on a box selects all rows since the last one. */
export function BatchTable({ rows, selection, opened, onOpen }: BatchTableProps) {
  const columns = useMemo(
    () =>
      helper.columns([
        helper.display({
          id: "select",
          header: ({ table }) => (
            <Box
              checked={table.getIsAllRowsSelected() ? true : table.getIsSomeRowsSelected() ? "indeterminate" : false}
              label="Select all that are shown"
              onPress={() => table.toggleAllRowsSelected()}
            />
          ),
          cell: ({ row }) => (
            <Box
              checked={row.getIsSelected()}
              label={`Select ${row.original.batch}`}
              onPress={row.getToggleSelectedHandler()}
            />
          ),
        }),
        helper.accessor("batch", {
          header: "Batch",
          cell: ({ row }) => (
            <Button
              aria-expanded={row.original.batch === opened}
              color="fg.info"
              height="auto"
              onClick={() => onOpen(row.original.batch)}
              p={0}
              size="sm"
              variant="plain"
              whiteSpace="normal"
            >
              {visible(row.original.batch)}
            </Button>
          ),
        }),
        helper.accessor("state", {
          header: "State",
          cell: ({ row }) => (
            <Badge colorPalette={BATCH_STATE[row.original.state].palette}>
              {BATCH_STATE[row.original.state].label}
              {row.original.cancelled ? ", cancelled" : ""}
            </Badge>
          ),
        }),
        helper.accessor((row) => range(BigInt(row.start), BigInt(row.end)), { id: "range", header: "Range" }),
        helper.accessor((row) => (row.records === null ? "–" : count(row.records)), {
          id: "records",
          header: "Records",
        }),
        helper.accessor("attempts", {
          header: "Attempts",
          cell: ({ row }) => `${row.original.attempts}${row.original.round > 1 ? `, round ${row.original.round}` : ""}`,
        }),
        helper.accessor((row) => waitingFor(row), {
          id: "waits",
          header: "Waits for",
          cell: ({ row }) =>
            row.original.waits_for === "time" && row.original.not_before !== null ? (
              <Moment at={row.original.not_before} />
            ) : (
              waitingFor(row.original)
            ),
        }),
        helper.accessor((row) => row.error?.message ?? "", {
          id: "error",
          header: "Newest error",
          cell: ({ row }) =>
            row.original.error === null ? null : (
              <>
                <Text as="span" fontWeight="medium">
                  {row.original.error.type}
                </Text>{" "}
                <UserText lineClamp={2}>{row.original.error.message}</UserText>
              </>
            ),
        }),
      ]),
    [opened, onOpen],
  );
  const rowSelection = useMemo<RowSelectionState>(
    () => Object.fromEntries([...selection.batches].map((name) => [name, true])),
    [selection.batches],
  );
  const table = useTable({
    features,
    columns,
    data: rows,
    getRowId: (row) => row.batch,
    state: { rowSelection },
    onRowSelectionChange: (update) => {
      const next = typeof update === "function" ? update(rowSelection) : update;
      selection.select(
        Object.keys(next).filter((name) => next[name]),
        false,
      );
    },
  });
  return (
    <Table.ScrollArea whiteSpace="normal">
      <Table.Root size="sm">
        <Table.Header>
          {table.getHeaderGroups().map((group) => (
            <Table.Row key={group.id}>
              {group.headers.map((header) => (
                <Table.ColumnHeader key={header.id}>
                  <table.FlexRender header={header} />
                </Table.ColumnHeader>
              ))}
            </Table.Row>
          ))}
        </Table.Header>
        <Table.Body>
          {table.getRowModel().rows.map((row) => (
            <Table.Row
              data-batch={row.id}
              data-state={row.getIsSelected() ? "selected" : undefined}
              key={row.id}
              verticalAlign="top"
            >
              {row.getAllCells().map((cell) => (
                <Table.Cell fontVariantNumeric="tabular-nums" key={cell.id} maxW="30rem">
                  <table.FlexRender cell={cell} />
                </Table.Cell>
              ))}
            </Table.Row>
          ))}
        </Table.Body>
      </Table.Root>
    </Table.ScrollArea>
  );
}

interface BoxProps {
  readonly checked: boolean | "indeterminate";
  readonly label: string;
  readonly onPress: (event: unknown) => void;
}

/** A box to select a row. */
function Box({ checked, label, onPress }: BoxProps) {
  return (
    <chakra.input
      accentColor="brand.solid"
      aria-label={label}
      checked={checked === true}
      cursor="pointer"
      onChange={onPress}
      ref={(input: HTMLInputElement | null) => {
        if (input !== null) {
          input.indeterminate = checked === "indeterminate";
        }
      }}
      type="checkbox"
    />
  );
}
