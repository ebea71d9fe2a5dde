import { Box, Flex, Text } from "@chakra-ui/react";

import type { Attempt, BatchDetail } from "../api/types";
import { taskPath } from "../app/paths";
import { TextLink } from "../elements/TextLink";
import { Moment, useNow } from "../elements/Time";
import { UserText } from "../elements/UserText";
import { visible } from "../format/text";
import { duration, since } from "../format/times";
import { waitingFor } from "./batchState";
import { useIsGroup } from "./useIsGroup";

/** Widths of the bars of the shortest and the longest attempt, in rem. */
const SHORTEST = 7;
const LONGEST = 16;

const PALETTES: Readonly<Record<string, string>> = {
  delivered: "green",
  rejected: "red",
  failed: "red",
  void: "pink",
  cancelled: "purple",
  abandoned: "orange",
  fenced: "orange",
};

/** The attempts of a batch as bars in the order of time, each with its run, epoch, outcome and duration. */
export function Attempts({ found }: { readonly found: BatchDetail }) {
  const now = useNow();
  const seconds = found.attempts.map((attempt) => secondsOf(attempt, now));
  const longest = Math.max(1, ...seconds);
  const { row } = found;
  if (found.attempts.length === 0 && row === null) {
    return null;
  }
  return (
    <Flex align="stretch" as="ol" data-testid="ckpt-attempts" gap={3} listStyleType="none" my={3} wrap="wrap">
      {found.attempts.map((attempt, index) => (
        <AttemptBar
          attempt={attempt}
          key={attempt.number}
          seconds={seconds[index] ?? 0}
          width={SHORTEST + ((seconds[index] ?? 0) / longest) * (LONGEST - SHORTEST)}
        />
      ))}
      {row === null || waitingFor(row) === "" ? null : (
        <Box
          as="li"
          borderColor="border.emphasized"
          borderRadius="sm"
          borderStyle="dashed"
          borderWidth="1px"
          fontSize="sm"
          p={2}
        >
          <Text color="fg.muted" fontSize="xs">
            next try
          </Text>
          {row.waits_for === "time" && row.not_before !== null ? <Moment at={row.not_before} /> : waitingFor(row)}
        </Box>
      )}
    </Flex>
  );
}

function secondsOf(attempt: Attempt, now: Date): number {
  const end = attempt.ended_at === null ? now : new Date(attempt.ended_at);
  return Math.max(0, since(attempt.began_at, end));
}

interface AttemptBarProps {
  readonly attempt: Attempt;
  readonly seconds: number;
  /** Width of the bar in rem. */
  readonly width: number;
}

function AttemptBar({ attempt, seconds, width }: AttemptBarProps) {
  const palette = attempt.outcome === null ? "cyan" : (PALETTES[attempt.outcome] ?? "gray");
  return (
    <Box as="li" fontSize="sm" maxW="100%">
      <Text color="fg.muted" fontSize="xs" whiteSpace="nowrap">
        <Moment at={attempt.began_at} /> · attempt {attempt.number}, epoch {attempt.epoch}
      </Text>
      <Box
        bg={`${palette}.subtle`}
        borderColor={`${palette}.emphasized`}
        borderRadius="sm"
        borderWidth="1px"
        color={`${palette}.fg`}
        fontWeight="semibold"
        maxW="100%"
        px={2}
        py={0.5}
        width={`${width}rem`}
      >
        {attempt.outcome ?? "in flight"} · {duration(seconds)}
      </Box>
      <Text fontSize="xs">{attempt.error_type}</Text>
      <LogLink attempt={attempt} />
    </Box>
  );
}

/** The log of the task that made an attempt, or the name of the process that did. */
function LogLink({ attempt }: { readonly attempt: Attempt }) {
  const isGroup = useIsGroup(attempt.run);
  if (attempt.run === null) {
    return <UserText fontSize="xs">{attempt.owner}</UserText>;
  }
  return (
    <TextLink display="block" fontSize="xs" to={taskPath(attempt.run, isGroup)}>
      {visible(`${attempt.run.run_id} / ${attempt.run.task_id}`)} → {isGroup ? "tasks" : "log"}
    </TextLink>
  );
}
