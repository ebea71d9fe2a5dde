import { Badge, Box, Button, CloseButton, DataList, Flex, Heading, HStack, Text } from "@chakra-ui/react";

import { useBatch } from "../api/queries";
import type { ActionName, ActionWish, BatchDetail, BatchRow, PipelineDetail } from "../api/types";
import { pipelinePath, useRoot } from "../app/paths";
import { Failure, Loading } from "../elements/States";
import { TextLink } from "../elements/TextLink";
import { Moment } from "../elements/Time";
import { UserText } from "../elements/UserText";
import { count, many, range } from "../format/numbers";
import { visible } from "../format/text";
import { Attempts } from "./Attempts";
import { BATCH_STATE } from "./batchState";
import { EventList } from "./EventList";

interface BatchPanelProps {
  readonly detail: PipelineDetail;
  readonly name: string;
  readonly onClose: () => void;
  readonly onWish: (wish: ActionWish) => void;
}

/** One batch: its attempts, its newest error, its receipt, and what can be done with it. */
export function BatchPanel({ detail, name, onClose, onWish }: BatchPanelProps) {
  const { data, error, refetch } = useBatch(detail.name, name);
  return (
    <Box
      as="section"
      aria-label={`Batch ${name}`}
      bg="bg.subtle"
      borderColor="border.emphasized"
      borderRadius="md"
      borderWidth="1px"
      data-testid="ckpt-batch"
      p={4}
    >
      <Flex align="flex-start" gap={3} justify="space-between">
        <Title found={data} name={name} />
        <CloseButton aria-label="Close the batch" onClick={onClose} size="xs" />
      </Flex>
      {error === null ? null : (
        <Failure error={error} onRetry={() => void refetch()} what="The batch could not be read" />
      )}
      {data === undefined ? error === null ? <Loading rows={2} what="the batch" /> : null : null}
      {data === undefined ? null : <Content detail={detail} found={data} onWish={onWish} />}
    </Box>
  );
}

function Title({ found, name }: { readonly found: BatchDetail | undefined; readonly name: string }) {
  const row = found?.row ?? undefined;
  return (
    <HStack gap={3} wrap="wrap">
      <Heading as="h2" overflowWrap="anywhere" size="md">
        {visible(name)}
      </Heading>
      {row === undefined ? null : (
        <>
          <Text as="span" fontVariantNumeric="tabular-nums">
            {range(BigInt(row.start), BigInt(row.end))}
          </Text>
          <Badge colorPalette={BATCH_STATE[row.state].palette}>{BATCH_STATE[row.state].label}</Badge>
          {row.attempts === 0 ? null : (
            <Text as="span" color="fg.muted">
              after {many(row.attempts, "attempt")}
              {row.round > 1 ? `, round ${row.round}` : ""}
            </Text>
          )}
        </>
      )}
    </HStack>
  );
}

interface ContentProps {
  readonly detail: PipelineDetail;
  readonly found: BatchDetail;
  readonly onWish: (wish: ActionWish) => void;
}

function Content({ detail, found, onWish }: ContentProps) {
  const { row } = found;
  return (
    <>
      {found.remark === null ? null : (
        <Text color="fg.muted" fontSize="sm">
          {visible(found.remark)}
        </Text>
      )}
      <Attempts found={found} />
      {row?.error == null ? null : (
        <Box borderColor="red.solid" borderStartWidth="3px" my={3} ps={3}>
          <Text fontSize="sm" fontWeight="semibold">
            {row.error.type}
            {row.error.sqlstate === null ? "" : ` (SQLSTATE ${row.error.sqlstate})`}
          </Text>
          <UserText as="p" data-testid="ckpt-error" fontFamily="mono" fontSize="sm" whiteSpace="pre-wrap">
            {row.error.message}
          </UserText>
        </Box>
      )}
      <Flex align="flex-end" gap={6} justify="space-between" wrap="wrap">
        {row === null ? <Box /> : <Facts detail={detail} found={found} row={row} />}
        <HStack gap={2}>
          {row === null
            ? null
            : actionsOn(row).map(([kind, label]) => (
                <Button
                  disabled={!detail.may_act}
                  key={kind}
                  onClick={() => onWish({ kind, batches: [found.batch] })}
                  size="sm"
                  variant={kind === "release" ? "solid" : "outline"}
                >
                  {label}
                </Button>
              ))}
        </HStack>
      </Flex>
      <Box as="details" mt={3}>
        <Box as="summary" color="fg.muted" cursor="pointer" fontSize="sm">
          {many(found.events.length, "event")} of this batch
        </Box>
        <EventList events={found.events} />
      </Box>
    </>
  );
}

function actionsOn(row: BatchRow): readonly (readonly [ActionName, string])[] {
  switch (row.state) {
    case "held":
      return [
        ["skip", "Skip…"],
        ["release", "Release…"],
      ];
    case "planned":
      return [
        ["skip", "Skip…"],
        ["hold", "Hold…"],
      ];
    case "in_flight":
      return [["hold", "Hold…"]];
    default:
      return [];
  }
}

function Facts({
  detail,
  found,
  row,
}: {
  readonly detail: PipelineDetail;
  readonly found: BatchDetail;
  readonly row: BatchRow;
}) {
  const root = useRoot();
  const deadLetters = Object.entries(found.dead_letters);
  return (
    <DataList.Root orientation="horizontal" size="sm">
      <Fact label="Records">{row.records === null ? "not known before it is read" : count(row.records)}</Fact>
      <Fact label="Receipt">
        {row.receipt === null ? (
          "none"
        ) : (
          <span>
            {row.receipt.verdict}, <Moment at={row.receipt.at} />: {count(row.receipt.counts.read)} read ={" "}
            {count(row.receipt.counts.delivered)} delivered + {count(row.receipt.counts.filtered)} filtered +{" "}
            {count(row.receipt.counts.dead_lettered)} dead-lettered
          </span>
        )}
      </Fact>
      {found.blocked_batches === 0 ? null : (
        <Fact label="Blocks">{many(found.blocked_batches, "resolved batch", "resolved batches")}</Fact>
      )}
      {row.instruction === "deliver" ? null : <Fact label="Next attempt">{row.instruction}s it</Fact>}
      {deadLetters.length === 0 ? null : (
        <Fact label="Dead letters">
          <TextLink to={pipelinePath(root, detail.name, "dead-letters", { batch: found.batch })}>
            {deadLetters.map(([type, number]) => `${count(number)} ${type}`).join(", ")}
          </TextLink>
        </Fact>
      )}
    </DataList.Root>
  );
}

function Fact({ label, children }: { readonly label: string; readonly children: React.ReactNode }) {
  return (
    <DataList.Item>
      <DataList.ItemLabel minW="7rem">{label}</DataList.ItemLabel>
      <DataList.ItemValue>{children}</DataList.ItemValue>
    </DataList.Item>
  );
}
