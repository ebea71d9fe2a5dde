import { Button, HStack, Link, Stack, Text } from "@chakra-ui/react";

import { useTrigger } from "../api/airflow";
import { fromBase } from "../api/client";
import type { Preview, RecoveryForm } from "../api/types";
import { Icon } from "../elements/Icon";
import { Empty, Failure } from "../elements/States";
import { visible } from "../format/text";
import { FollowedRun } from "./FollowedRun";

interface RecoveryFormsProps {
  readonly preview: Preview;
  readonly reason: string;
  /** Whether a reason is required and missing. */
  readonly isLacking: boolean;
}

/** The recovery DAGs that can do an action, each with its form filled in. */
export function RecoveryForms({ preview, reason, isLacking }: RecoveryFormsProps) {
  if (preview.recovery.length === 0) {
    return (
      <Empty title="There is no recovery DAG for this pipeline">
        Add one with `recovery_dag(…)` that names the pipeline, or use `airflow ckpt` on the command line.
      </Empty>
    );
  }
  return (
    <Stack gap={3}>
      {preview.recovery.map((form) => (
        <Recovery form={form} isLacking={isLacking} key={form.dag_id} reason={reason} />
      ))}
    </Stack>
  );
}

interface RecoveryProps {
  readonly form: RecoveryForm;
  readonly reason: string;
  readonly isLacking: boolean;
}

function Recovery({ form, reason, isLacking }: RecoveryProps) {
  const trigger = useTrigger();
  const conf = reason.trim() === "" ? form.conf : { ...form.conf, reason: reason.trim() };
  return (
    <Stack borderColor="border" borderRadius="md" borderWidth="1px" gap={2} p={3}>
      <HStack gap={3} wrap="wrap">
        <Text flex="1" fontSize="sm">
          DAG <b>{visible(form.dag_id)}</b>
          {form.is_paused ? " is paused: unpause it, or its run waits." : ""}
          {form.may_trigger ? "" : " You may not trigger it."}
        </Text>
        <Link fontSize="sm" href={fromBase(form.href)} rel="noreferrer" target="_blank">
          Open its form <Icon name="external" />
        </Link>
        <Button
          disabled={!form.may_trigger || isLacking || trigger.isSuccess}
          loading={trigger.isPending}
          onClick={() => trigger.mutate({ dagId: form.dag_id, conf })}
          size="sm"
        >
          Start its run
        </Button>
      </HStack>
      {trigger.error === null ? null : <Failure error={trigger.error} what="Airflow did not start the run" />}
      {trigger.data === undefined ? null : <FollowedRun asksApproval run={trigger.data} />}
    </Stack>
  );
}
