import { Box, Button, Stack, Text } from "@chakra-ui/react";
import { useSearchParams } from "react-router-dom";

import { useLines } from "../api/queries";
import { Empty, Failure, Loading } from "../elements/States";
import { Moment } from "../elements/Time";
import { Legend } from "../line/Legend";
import type { Frame } from "../line/model";
import { BatchPanel } from "./BatchPanel";
import { BUCKETS, PartitionPanel } from "./PartitionPanel";
import type { ViewProps } from "./PipelinePage";

/** The number lines of all partitions, and the batch that is opened below them. */
export function LineView({ detail, selection, onWish }: ViewProps) {
  const { data, error, isPending, refetch, hasNextPage, fetchNextPage, isFetchingNextPage } = useLines(
    detail.name,
    BUCKETS,
  );
  const [params, setParams] = useSearchParams();
  const opened = params.get("batch") ?? undefined;
  const lines = data?.pages.flatMap((page) => page.partitions) ?? [];
  const lagAsOf = data?.pages[0]?.lag_as_of ?? null;
  const change = (values: Readonly<Record<string, string | undefined>>) =>
    setParams(
      (old) => {
        const next = new URLSearchParams(old);
        for (const [name, value] of Object.entries(values)) {
          value === undefined ? next.delete(name) : next.set(name, value);
        }
        return next;
      },
      { replace: true },
    );
  return (
    <Box>
      {error === null ? null : (
        <Failure error={error} onRetry={() => void refetch()} what="The number line could not be read" />
      )}
      {isPending ? <Loading rows={3} what="the number line" /> : null}
      {data !== undefined && lines.length === 0 ? (
        <Empty title="Nothing was planned yet">Run the pipeline: its partitions appear with the first plan.</Empty>
      ) : null}
      {lines.map((line) => (
        <PartitionPanel
          key={line.partition}
          line={line}
          onOpen={(batch) => change({ batch: batch === opened ? undefined : batch })}
          onSelect={selection.select}
          onPart={(part) => change(addressOf(line.partition, part))}
          opened={opened}
          pipeline={detail.name}
          part={partOf(line.partition, params)}
          selected={selection.batches}
        />
      ))}
      {hasNextPage ? (
        <Button loading={isFetchingNextPage} mb={4} onClick={() => void fetchNextPage()} size="sm" variant="outline">
          Show more partitions
        </Button>
      ) : null}
      {opened === undefined ? null : (
        <BatchPanel detail={detail} name={opened} onClose={() => change({ batch: undefined })} onWish={onWish} />
      )}
      {lines.length === 0 ? null : (
        <Stack color="fg.muted" fontSize="xs" gap={1} mt={4}>
          <Legend />
          <Text>
            Drag zooms, shift and drag selects, a click opens a batch, arrow keys walk the ranges. Below the low
            watermark receipts are merged: “settled” counts them.
            {lagAsOf === null ? null : (
              <>
                {" "}
                The source's end is as of the last plan, <Moment at={lagAsOf} />.
              </>
            )}
          </Text>
        </Stack>
      )}
    </Box>
  );
}

/** The part of a partition that the address names; undefined for the whole. */
function partOf(partition: string, params: URLSearchParams): Frame | undefined {
  const [start, end] = [params.get("start"), params.get("end")];
  if (params.get("partition") !== partition || start === null || end === null) {
    return undefined;
  }
  try {
    return { start: BigInt(start), end: BigInt(end) };
  } catch {
    return undefined; // the address holds no numbers
  }
}

function addressOf(partition: string, part: Frame | undefined): Record<string, string | undefined> {
  return part === undefined
    ? { partition: undefined, start: undefined, end: undefined }
    : { partition, start: String(part.start), end: String(part.end) };
}
