import { Box, HStack, Text } from "@chakra-ui/react";
import { useMemo } from "react";
import { useSearchParams } from "react-router-dom";

import { useDeadLetterGroups } from "../api/queries";
import type { DeadLetterFilter, DeadLetterGroup } from "../api/types";
import { Choice } from "../elements/Choice";
import { Empty, Failure, Loading } from "../elements/States";
import { count } from "../format/numbers";
import type { ViewProps } from "../pipeline/PipelinePage";
import { DEAD_LETTER_STATE } from "./deadLetterState";
import { GroupTable } from "./GroupTable";
import { byError } from "./groups";
import { RecordsPanel } from "./RecordsPanel";

/** Dead letters by error type and hour; then the records of the group that is chosen. */
export function DeadLetters({ detail, onWish }: ViewProps) {
  const [params, setParams] = useSearchParams();
  const states = params.getAll("state");
  const { data, error, isPending, refetch } = useDeadLetterGroups(detail.name, states);
  const groups = useMemo(() => byError(data?.items ?? []), [data]);
  const key = params.toString();
  const chosen = useMemo(() => filterOf(new URLSearchParams(key)), [key]);
  const choose = (filter: DeadLetterFilter | undefined) =>
    setParams((old) => addressOf(old, filter), { replace: true });
  const toggle = (state: string) =>
    setParams(
      (old) => {
        const next = new URLSearchParams(old);
        next.delete("state");
        for (const one of states.includes(state) ? states.filter((other) => other !== state) : [...states, state]) {
          next.append("state", one);
        }
        return next;
      },
      { replace: true },
    );
  return (
    <Box>
      <HStack aria-label="Filter dead letters by state" gap={2} mb={3} role="group" wrap="wrap">
        {Object.entries(DEAD_LETTER_STATE).map(([state, { label }]) => (
          <Choice isOn={states.includes(state)} key={state} onChoose={() => toggle(state)}>
            {label} {data?.by_state[state] === undefined ? "" : count(data.by_state[state])}
          </Choice>
        ))}
        <Text color="fg.muted" fontSize="sm">
          {states.length === 0 ? "Those that are neither replayed nor discarded are shown." : ""}
        </Text>
      </HStack>
      {error === null ? null : (
        <Failure error={error} onRetry={() => void refetch()} what="The dead letters could not be read" />
      )}
      {isPending ? <Loading what="dead letters" /> : null}
      {data !== undefined && groups.length === 0 ? (
        <Empty title="No dead letters">No record waits here for a decision.</Empty>
      ) : null}
      {groups.length === 0 ? null : (
        <GroupTable chosen={chosen} detail={detail} groups={groups} onChoose={choose} onWish={onWish} />
      )}
      {data?.left_out ? (
        <Text color="fg.muted" fontSize="sm" mt={2}>
          There are more groups than these 1,000: choose fewer states, or use `airflow ckpt dlq list`.
        </Text>
      ) : null}
      {chosen === undefined ? null : (
        <RecordsPanel detail={detail} filter={chosen} onClose={() => choose(undefined)} onWish={onWish} />
      )}
    </Box>
  );
}

/** The dead letters that the address names; undefined if it names none. */
function filterOf(params: URLSearchParams): DeadLetterFilter | undefined {
  const types = params.getAll("type");
  const batches = params.getAll("batch");
  const [since, until] = [params.get("since"), params.get("until")];
  const states = params.getAll("shown") as DeadLetterGroup["state"][];
  if (types.length === 0 && batches.length === 0) {
    return undefined;
  }
  return {
    types,
    batches,
    ...(states.length > 0 ? { states } : {}),
    ...(since === null ? {} : { since }),
    ...(until === null ? {} : { until }),
  };
}

function addressOf(old: URLSearchParams, filter: DeadLetterFilter | undefined): URLSearchParams {
  const next = new URLSearchParams();
  for (const state of old.getAll("state")) {
    next.append("state", state);
  }
  for (const type of filter?.types ?? []) {
    next.append("type", type);
  }
  for (const batch of filter?.batches ?? []) {
    next.append("batch", batch);
  }
  for (const state of filter?.states ?? []) {
    next.append("shown", state);
  }
  if (filter?.since != null && filter.until != null) {
    next.set("since", filter.since);
    next.set("until", filter.until);
  }
  return next;
}
