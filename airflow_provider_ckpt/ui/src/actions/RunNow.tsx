import { Button, HStack, Stack } from "@chakra-ui/react";

import { useTrigger } from "../api/airflow";
import { Failure } from "../elements/States";
import { visible } from "../format/text";
import { FollowedRun } from "./FollowedRun";

/** Buttons that trigger the DAGs of a pipeline, so that what waits for a run need not wait for the schedule. */
export function RunNow({ dags }: { readonly dags: readonly string[] }) {
  const trigger = useTrigger();
  if (dags.length === 0) {
    return null;
  }
  return (
    <Stack gap={2}>
      {trigger.data === undefined ? (
        <HStack gap={2}>
          {dags.map((dag) => (
            <Button
              key={dag}
              loading={trigger.isPending}
              onClick={() => trigger.mutate({ dagId: dag, conf: {} })}
              size="xs"
              variant="outline"
            >
              Run {visible(dag)} now
            </Button>
          ))}
        </HStack>
      ) : (
        <FollowedRun run={trigger.data} />
      )}
      {trigger.error === null ? null : <Failure error={trigger.error} what="Airflow did not start the run" />}
    </Stack>
  );
}
