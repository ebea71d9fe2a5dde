import { Box, CloseButton, Flex, Stack, Text } from "@chakra-ui/react";

import type { TriggeredRun } from "../api/airflow";
import type { ActionName, ActionOutcome, PipelineDetail } from "../api/types";
import { Icon } from "../elements/Icon";
import { Moment } from "../elements/Time";
import { UserText } from "../elements/UserText";
import { ACTIONS } from "./catalogue";
import { RunNow } from "./RunNow";

interface OutcomeProps {
  readonly detail: PipelineDetail;
  readonly outcome: ActionOutcome;
  /** The run that was triggered for it; undefined if none was. */
  readonly run: TriggeredRun | undefined;
  readonly onRun: (run: TriggeredRun) => void;
  readonly onClose: () => void;
}

/** What became of the action that was just carried out; of a stored one, what has become of it so far. */
export function Outcome({ detail, outcome, run, onRun, onClose }: OutcomeProps) {
  const stored = detail.actions.find((row) => row.number === outcome.number);
  const label = ACTIONS[outcome.kind as ActionName]?.label ?? outcome.kind;
  const state = outcome.state === "stored" ? (stored?.state ?? "pending") : "applied";
  const { palette, icon } = LOOK[state];
  return (
    <Flex
      bg={`${palette}.subtle`}
      borderColor={`${palette}.emphasized`}
      borderRadius="md"
      borderWidth="1px"
      data-testid="ckpt-outcome"
      gap={3}
      mb={3}
      p={3}
      role="status"
    >
      <Icon color={`${palette}.fg`} mt="0.2em" name={icon} />
      <Stack flex="1" fontSize="sm" gap={1}>
        <Text fontWeight="semibold">
          {label}: {outcome.number === null ? "applied" : storedText(outcome.number, stored)}
          {stored?.ended_at == null ? null : (
            <>
              {" "}
              (<Moment at={stored.ended_at} />)
            </>
          )}
        </Text>
        {stored?.refusal == null ? null : <UserText>{stored.refusal}</UserText>}
        {outcome.changes.map((change) => (
          <Box key={change.what}>
            <UserText>{change.what}</UserText>: <UserText>{change.before}</UserText> →{" "}
            <UserText fontWeight="semibold">{change.after}</UserText>
          </Box>
        ))}
        {outcome.remark === null ? null : <UserText color="fg.muted">{outcome.remark}</UserText>}
        {state === "refused" ? null : (
          <RunNow dags={outcome.runs} isRunning={detail.lease.held} onRun={onRun} run={run} />
        )}
      </Stack>
      <CloseButton aria-label="Close the message" onClick={onClose} size="xs" />
    </Flex>
  );
}

const LOOK = {
  applied: { palette: "green", icon: "check" },
  pending: { palette: "blue", icon: "clock" },
  refused: { palette: "red", icon: "warning" },
} as const;

function storedText(number: number, stored: PipelineDetail["actions"][number] | undefined): string {
  switch (stored?.state) {
    case "applied":
      return `number ${number} was applied`;
    case "refused":
      return `number ${number} was refused`;
    default:
      return `stored as number ${number}, the next run applies it`;
  }
}
