import { Button, HStack, Stack } from "@chakra-ui/react";

import { type TriggeredRun, useTrigger } from "../api/airflow";
import { Failure } from "../elements/States";
import { visible } from "../format/text";
import { FollowedRun } from "./FollowedRun";

interface RunNowProps {
  /** The run that was triggered here; undefined if none was. */
  readonly run: TriggeredRun | undefined;
  readonly onRun: (run: TriggeredRun) => void;
  readonly dags: readonly string[];
  /** Whether a run holds the lease, so that another one is of no use. */
  readonly isRunning: boolean;
}

/** Buttons that trigger the DAGs of a pipeline, so that what waits for a run need not wait for the schedule; then that run. */
export function RunNow({ run, onRun, dags, isRunning }: RunNowProps) {
  const trigger = useTrigger();
  if (dags.length === 0 || (isRunning && run === undefined)) {
    return null;
  }
  return (
    <Stack gap={2}>
      {run === undefined ? (
        <HStack gap={2}>
          {dags.map((dag) => (
            <Button
              key={dag}
              loading={trigger.isPending}
              onClick={() => trigger.mutate({ dagId: dag, conf: {} }, { onSuccess: onRun })}
              size="xs"
              variant="outline"
            >
              Run {visible(dag)} now
            </Button>
          ))}
        </HStack>
      ) : (
        <FollowedRun run={run} />
      )}
      {trigger.error === null ? null : <Failure error={trigger.error} what="Airflow did not start the run" />}
    </Stack>
  );
}
