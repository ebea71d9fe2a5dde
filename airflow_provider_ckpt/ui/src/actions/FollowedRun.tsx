import { Badge, HStack, Text } from "@chakra-ui/react";

import { type TriggeredRun, useRunState } from "../api/airflow";
import { runPath } from "../app/paths";
import { TextLink } from "../elements/TextLink";
import { visible } from "../format/text";

interface FollowedRunProps {
  readonly run: TriggeredRun;
  /** Whether the run asks somebody to approve what it is about to do. */
  readonly asksApproval?: boolean;
}

/** A DAG run that was triggered from here, with its state. */
export function FollowedRun({ run, asksApproval = false }: FollowedRunProps) {
  const { data: state = "queued", error } = useRunState(run);
  const path = runPath({ dag_id: run.dagId, run_id: run.runId });
  const hasEnded = state === "success" || state === "failed";
  return (
    <HStack data-testid="ckpt-run" fontSize="sm" gap={2} wrap="wrap">
      <Badge colorPalette={state}>{error === null ? state : "unknown"}</Badge>
      <TextLink to={path}>{visible(`${run.dagId} / ${run.runId}`)}</TextLink>
      {asksApproval && !hasEnded ? (
        <Text as="span">
          It shows what it is about to do, and waits for an{" "}
          <TextLink to={`${path}/required_actions`}>approval</TextLink>.
        </Text>
      ) : null}
    </HStack>
  );
}
