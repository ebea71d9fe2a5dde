import { Box, Button, CloseButton, Flex, Heading, HStack, Input, Stack, Text } from "@chakra-ui/react";
import { type FormEvent, useState } from "react";

import { exportRecords } from "../api/export";
import { useRecords } from "../api/queries";
import type { ActionName, ActionWish, DeadLetterFilter, PipelineDetail } from "../api/types";
import { Empty, Failure, Loading } from "../elements/States";
import { count } from "../format/numbers";
import { visible } from "../format/text";
import { clock } from "../format/times";
import { RecordCard } from "./RecordCard";

interface RecordsPanelProps {
  readonly detail: PipelineDetail;
  readonly filter: DeadLetterFilter;
  readonly onClose: () => void;
  readonly onWish: (wish: ActionWish) => void;
}

/** The records of some dead letters with their bytes, to search, to export, and to replay or discard. */
export function RecordsPanel({ detail, filter, onClose, onWish }: RecordsPanelProps) {
  const [typed, setTyped] = useState("");
  const [query, setQuery] = useState("");
  const { data, error, isPending, refetch, hasNextPage, fetchNextPage, isFetchingNextPage } = useRecords(
    detail.name,
    filter,
    query,
  );
  const records = data?.pages.flatMap((page) => page.items) ?? [];
  const searched = data?.pages.reduce((sum, page) => sum + page.searched, 0) ?? 0;
  const search = (event: FormEvent) => {
    event.preventDefault();
    setQuery(typed.trim());
  };
  const act = (kind: ActionName) => {
    const { states: _, ...dead_letters } = filter;
    onWish({ kind, dead_letters });
  };
  return (
    <Box
      as="section"
      aria-label="Records"
      bg="bg.subtle"
      borderColor="border.emphasized"
      borderRadius="md"
      borderWidth="1px"
      data-testid="ckpt-records"
      mt={4}
      p={4}
    >
      <Flex align="flex-start" gap={3} justify="space-between" mb={3}>
        <Heading as="h2" overflowWrap="anywhere" size="md">
          {titleOf(filter)}
        </Heading>
        <CloseButton aria-label="Close the records" onClick={onClose} size="xs" />
      </Flex>
      <HStack gap={2} mb={3} wrap="wrap">
        <form onSubmit={search}>
          <HStack gap={2}>
            <Input
              aria-label="Search in key, value, headers and error"
              onChange={(event) => setTyped(event.target.value)}
              placeholder="Search in the records"
              size="sm"
              type="search"
              value={typed}
              width="16rem"
            />
            <Button size="sm" type="submit" variant="outline">
              Search
            </Button>
          </HStack>
        </form>
        <Box flex="1" />
        <ExportButton filter={filter} pipeline={detail.name} query={query} />
        <Button disabled={!detail.may_act} onClick={() => act("discard_dead_letters")} size="sm" variant="outline">
          Discard these…
        </Button>
        <Button disabled={!detail.may_act} onClick={() => act("replay_dead_letters")} size="sm">
          Replay these…
        </Button>
      </HStack>
      {error === null ? null : (
        <Failure error={error} onRetry={() => void refetch()} what="The records could not be read" />
      )}
      {isPending ? <Loading rows={3} what="records" /> : null}
      {data !== undefined && records.length === 0 ? (
        <Empty title="No record matches">
          {query === "" ? "They may have been replayed meanwhile." : `${count(searched)} were searched.`}
        </Empty>
      ) : null}
      <Stack gap={3}>
        {records.map((record) => (
          <RecordCard key={`${record.batch} ${record.error.type} ${record.number}`} record={record} />
        ))}
      </Stack>
      <HStack gap={3} mt={3}>
        {hasNextPage ? (
          <Button loading={isFetchingNextPage} onClick={() => void fetchNextPage()} size="sm" variant="outline">
            Show more
          </Button>
        ) : null}
        <Text color="fg.muted" fontSize="xs">
          The audit log keeps that you looked at these records.
        </Text>
      </HStack>
    </Box>
  );
}

function titleOf(filter: DeadLetterFilter): string {
  const parts = [...(filter.types ?? []), ...(filter.batches ?? [])].map(visible);
  const hour = filter.since == null || filter.until == null ? "" : `, ${clock(filter.since)} to ${clock(filter.until)}`;
  return `Dead letters: ${parts.join(", ")}${hour}`;
}

interface ExportButtonProps {
  readonly pipeline: string;
  readonly filter: DeadLetterFilter;
  readonly query: string;
}

function ExportButton({ pipeline, filter, query }: ExportButtonProps) {
  const [state, setState] = useState<{ readonly isBusy: boolean; readonly error?: Error }>({ isBusy: false });
  const save = async () => {
    setState({ isBusy: true });
    try {
      await exportRecords(pipeline, filter, query);
      setState({ isBusy: false });
    } catch (reason) {
      setState({ isBusy: false, error: reason instanceof Error ? reason : new Error(String(reason)) });
    }
  };
  return (
    <>
      <Button loading={state.isBusy} onClick={() => void save()} size="sm" variant="outline">
        Export
      </Button>
      {state.error === undefined ? null : <Failure error={state.error} what="The records could not be exported" />}
    </>
  );
}
