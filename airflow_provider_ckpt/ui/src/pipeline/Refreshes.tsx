import { Box, Button, Flex, HStack, Stack, Text } from "@chakra-ui/react";

import type { ActionWish, PipelineDetail, Refresh } from "../api/types";
import { Icon } from "../elements/Icon";
import { Moment, Since } from "../elements/Time";
import { UserText } from "../elements/UserText";
import { count, many, percent } from "../format/numbers";
import { visible } from "../format/text";

interface RefreshesProps {
  readonly detail: PipelineDetail;
  readonly onWish: (wish: ActionWish) => void;
}

/** Full refreshes that are not published: how far each is, since when, and why its publication waits. */
export function Refreshes({ detail, onWish }: RefreshesProps) {
  if (detail.refreshes.length === 0) {
    return null;
  }
  return (
    <Stack gap={2} mb={3}>
      {detail.refreshes.map((refresh) => (
        <RefreshBox detail={detail} key={refresh.partition} onWish={onWish} refresh={refresh} />
      ))}
    </Stack>
  );
}

function RefreshBox({ refresh, detail, onWish }: RefreshesProps & { readonly refresh: Refresh }) {
  const palette = refresh.state === "held" ? "orange" : "blue";
  return (
    <Box
      aria-label={`Refresh of ${visible(refresh.partition)}`}
      as="section"
      bg={`${palette}.subtle`}
      borderColor={`${palette}.emphasized`}
      borderRadius="md"
      borderWidth="1px"
      data-state={refresh.state}
      data-testid="ckpt-refresh"
      fontSize="sm"
      px={3}
      py={2}
    >
      <Flex columnGap={3} wrap="wrap">
        <UserText fontWeight="semibold">{`Refresh of ${refresh.partition}, generation ${refresh.generation}`}</UserText>
        {refresh.since === null ? null : (
          <span>
            since <Moment at={refresh.since} />, <Since at={refresh.since} />
          </span>
        )}
      </Flex>
      <Progress refresh={refresh} />
      <Text>{nextOf(refresh, detail.lease.held)}</Text>
      {refresh.hold === null ? null : (
        <Hold batch={refresh.hold.batch} detail={detail} onWish={onWish} refresh={refresh} />
      )}
    </Box>
  );
}

function Progress({ refresh }: { readonly refresh: Refresh }) {
  const part = refresh.positions === 0 ? 1 : refresh.staged_positions / refresh.positions;
  const text = `${count(refresh.staged_positions)} of ${many(refresh.positions, "position")} staged (${percent(part)})`;
  const batches = [
    `${many(refresh.staged_batches, "batch", "batches")} staged`,
    ...(refresh.open_batches > 0 ? [`${count(refresh.open_batches)} open`] : []),
    ...(refresh.skipped_batches > 0 ? [`${count(refresh.skipped_batches)} skipped`] : []),
  ];
  return (
    <HStack gap={3} wrap="wrap">
      <Box
        aria-label={`Positions staged of ${visible(refresh.partition)}`}
        aria-valuemax={100}
        aria-valuemin={0}
        aria-valuenow={Math.floor(100 * part)}
        aria-valuetext={text}
        bg="bg.emphasized"
        borderRadius="full"
        height="8px"
        overflow="hidden"
        role="progressbar"
        width="12rem"
      >
        <Box bg="blue.solid" height="100%" width={`${100 * part}%`} />
      </Box>
      <Text fontVariantNumeric="tabular-nums">
        {text}; {batches.join(", ")}
      </Text>
    </HStack>
  );
}

/** What comes next, or why nothing does. */
export function nextOf(refresh: Refresh, isRunning: boolean): string {
  if (refresh.state === "held") {
    return "Its publication is held, so the target still has the rows of the last refresh.";
  }
  if (refresh.held_batches > 0) {
    const batches = many(refresh.held_batches, "batch is", "batches are");
    return `${batches} held: no other refresh begins until a person releases or skips what is held.`;
  }
  if (refresh.skipped_batches > 0) {
    return "Rows were skipped, so it is not published; the next run begins a new refresh.";
  }
  if (refresh.state === "released") {
    return "Its publication was released: a run publishes it, unless staged rows were lost.";
  }
  if (!isRunning) {
    return "No run works on it any more: the next run begins a new refresh.";
  }
  return refresh.state === "staged" ? "Everything is staged; the run publishes it next." : "";
}

interface HoldProps extends RefreshesProps {
  readonly refresh: Refresh;
  readonly batch: string;
}

/** Why the publication is held, and the two ways out. */
function Hold({ refresh, batch, detail, onWish }: HoldProps) {
  const { reason = null, since = null } = refresh.hold ?? {};
  const choose = (kind: "release" | "skip") => onWish({ kind, batches: [batch] });
  return (
    <Box mt={1}>
      <Flex gap={2}>
        <Icon color="orange.fg" mt="0.2em" name="warning" />
        <Text>
          {reason === null ? (
            "The audit log has the reason."
          ) : (
            <UserText fontWeight="semibold">{`Held because ${reason}`}</UserText>
          )}
          {since === null ? null : (
            <>
              , since <Moment at={since} />
            </>
          )}
        </Text>
      </Flex>
      <Text>
        Release the batch, and the next run publishes what was staged. Skip it, and the next run discards what was
        staged and begins a new refresh.
      </Text>
      {detail.may_act ? (
        <HStack gap={2} mt={1}>
          <Button onClick={() => choose("release")} size="xs" variant="outline">
            Release {visible(batch)}…
          </Button>
          <Button onClick={() => choose("skip")} size="xs" variant="outline">
            Skip {visible(batch)}…
          </Button>
        </HStack>
      ) : null}
    </Box>
  );
}
