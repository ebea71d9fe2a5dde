import { Box, Button, HStack, Input, NativeSelect, Text } from "@chakra-ui/react";
import { useSearchParams } from "react-router-dom";

import { type BatchFilter, useBatches } from "../api/queries";
import type { BatchRow } from "../api/types";
import { Choice } from "../elements/Choice";
import { Empty, Failure, Loading } from "../elements/States";
import { count, many } from "../format/numbers";
import { BatchPanel } from "./BatchPanel";
import { BatchTable } from "./BatchTable";
import { BATCH_STATE } from "./batchState";
import type { ViewProps } from "./PipelinePage";

/** The batches beyond the checkpoints, to search and to select for an action. */
export function BatchesView({ detail, selection, onWish }: ViewProps) {
  const [params, setParams] = useSearchParams();
  const states = params.getAll("state");
  const filter = { states, partition: params.get("partition") ?? "", search: params.get("search") ?? "" };
  const { data, error, isPending, refetch, hasNextPage, fetchNextPage, isFetchingNextPage } = useBatches(
    detail.name,
    filter,
  );
  const opened = params.get("batch") ?? undefined;
  const rows = data?.pages.flatMap((page) => page.items) ?? [];
  const byState = data?.pages[0]?.by_state ?? {};
  const change = (name: string, values: readonly string[]) =>
    setParams(
      (old) => {
        const next = new URLSearchParams(old);
        next.delete(name);
        for (const value of values) {
          next.append(name, value);
        }
        return next;
      },
      { replace: true },
    );
  const toggle = (state: string) =>
    change("state", states.includes(state) ? states.filter((one) => one !== state) : [...states, state]);
  return (
    <Box>
      <HStack aria-label="Filter batches" gap={2} mb={3} role="group" wrap="wrap">
        {Object.entries(byState).map(([state, number]) => (
          <Choice isOn={states.includes(state)} key={state} onChoose={() => toggle(state)}>
            {BATCH_STATE[state as BatchRow["state"]]?.label ?? state} {count(number)}
          </Choice>
        ))}
        <NativeSelect.Root size="sm" width="14rem">
          <NativeSelect.Field
            aria-label="Partition"
            onChange={(event) => change("partition", event.target.value === "" ? [] : [event.target.value])}
            value={filter.partition}
          >
            <option value="">All partitions</option>
            {detail.partition_rows.map((partition) => (
              <option key={partition.id} value={partition.id}>
                {partition.id}
              </option>
            ))}
          </NativeSelect.Field>
          <NativeSelect.Indicator />
        </NativeSelect.Root>
        <Input
          aria-label="Search batches by name"
          onChange={(event) => change("search", event.target.value === "" ? [] : [event.target.value])}
          placeholder="Search, such as orders-0#34"
          size="sm"
          type="search"
          value={filter.search}
          width="16rem"
        />
        {selection.batches.size === 0 ? null : (
          <Text fontSize="sm">
            {many(selection.batches.size, "batch", "batches")} selected{" "}
            <Button onClick={selection.clear} size="2xs" variant="ghost">
              Clear
            </Button>
          </Text>
        )}
      </HStack>
      {opened === undefined ? null : (
        <Box mb={4}>
          <BatchPanel detail={detail} name={opened} onClose={() => change("batch", [])} onWish={onWish} />
        </Box>
      )}
      {error === null ? null : (
        <Failure error={error} onRetry={() => void refetch()} what="The batches could not be read" />
      )}
      {isPending ? <Loading what="batches" /> : null}
      {data !== undefined && rows.length === 0 ? <NoBatches filter={filter} /> : null}
      {rows.length === 0 ? null : (
        <BatchTable
          onOpen={(batch) => change("batch", batch === opened ? [] : [batch])}
          opened={opened}
          rows={rows}
          selection={selection}
        />
      )}
      {hasNextPage ? (
        <Button loading={isFetchingNextPage} mt={3} onClick={() => void fetchNextPage()} size="sm" variant="outline">
          Show more
        </Button>
      ) : null}
    </Box>
  );
}

function NoBatches({ filter }: { readonly filter: BatchFilter }) {
  const isFiltered = filter.states.length > 0 || filter.search !== "" || filter.partition !== "";
  return (
    <Empty title={isFiltered ? "No batch matches" : "No batch is open"}>
      Batches below the checkpoints are merged to receipts; the number line counts them.
    </Empty>
  );
}
