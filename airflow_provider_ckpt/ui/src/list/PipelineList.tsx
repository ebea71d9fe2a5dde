import { Box, Button, CloseButton, Flex, Heading, HStack, Input, InputGroup, Text } from "@chakra-ui/react";
import { useEffect, useState } from "react";

import { type ListFilter, usePipelines } from "../api/queries";
import type { Health } from "../api/types";
import { LiveSwitch } from "../app/LiveSwitch";
import { DELETED, useRemembered } from "../app/useRemembered";
import { Choice } from "../elements/Choice";
import { HEALTH, HEALTHS } from "../elements/HealthMark";
import { Icon } from "../elements/Icon";
import { Empty, Failure, Loading } from "../elements/States";
import { Trail } from "../elements/Trail";
import { count, many } from "../format/numbers";
import { visible } from "../format/text";
import { DatabaseTable } from "./DatabaseTable";
import { PipelineTable } from "./PipelineTable";
import { type ListState, useListState } from "./useListState";

interface PipelineListProps {
  readonly dagId: string | undefined;
  readonly taskId: string | undefined;
}

/**
 * All pipelines, those that need a person first; in a tab of a DAG, those that it runs; at the address of a database,
 * its tables. Above them are the sums of each database.
 */
export function PipelineList({ dagId, taskId }: PipelineListProps) {
  const state = useListState(dagId, taskId);
  const { data, error, isPending, hasNextPage, fetchNextPage, isFetchingNextPage, refetch } = usePipelines(
    state.filter,
  );
  const first = data?.pages[0];
  const rows = data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <Box data-testid="ckpt-list">
      <Flex align="center" gap={3} justify="space-between" mb={3} wrap="wrap">
        {state.filter.database === undefined ? (
          <Heading as="h1" size="xl">
            Replication
          </Heading>
        ) : (
          <Trail name={state.filter.database} />
        )}
        <HStack gap={4}>
          <Search onSearch={state.setSearch} text={state.filter.search} />
          <LiveSwitch />
        </HStack>
      </Flex>
      <Deleted />
      <Filters byHealth={first?.by_health} state={state} total={first?.total} />
      {error === null ? null : (
        <Box mb={3}>
          <Failure error={error} onRetry={() => void refetch()} what="The pipelines could not be read" />
        </Box>
      )}
      {first === undefined || first.databases.length === 0 ? null : (
        <DatabaseTable leftOut={first.databases_left_out} rows={first.databases} />
      )}
      {isPending ? <Loading rows={6} what="pipelines" /> : null}
      {first === undefined ? null : rows.length === 0 ? (
        <NoPipelines filter={state.filter} />
      ) : (
        <PipelineTable rows={rows} />
      )}
      {hasNextPage ? (
        <Button loading={isFetchingNextPage} mt={3} onClick={() => void fetchNextPage()} size="sm" variant="outline">
          Show more of {count(first?.total ?? 0)}
        </Button>
      ) : null}
    </Box>
  );
}

/** The pipeline that the user has just deleted, until the message is closed. */
function Deleted() {
  const [name, setName] = useRemembered<string>(DELETED);
  if (name === undefined) {
    return null;
  }
  return (
    <Flex
      align="center"
      bg="green.subtle"
      borderColor="green.emphasized"
      borderRadius="md"
      borderWidth="1px"
      data-testid="ckpt-deleted"
      gap={3}
      mb={3}
      px={3}
      py={1}
      role="status"
    >
      <Icon color="green.fg" name="check" />
      <Text flex="1" fontSize="sm">
        Pipeline {visible(name)} is deleted from the ledger; its audit log remains.
      </Text>
      <CloseButton aria-label="Close the message" onClick={() => setName(undefined)} size="xs" />
    </Flex>
  );
}

/** The text is sent after a pause in typing. */
function Search({ text, onSearch }: { readonly text: string; readonly onSearch: (text: string) => void }) {
  const [typed, setTyped] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => {
      if (typed !== text) {
        onSearch(typed);
      }
    }, 250);
    return () => clearTimeout(timer);
  }, [typed, text, onSearch]);
  return (
    <InputGroup startElement={<Icon name="search" />} width="16rem">
      <Input
        aria-label="Search pipelines by name"
        onChange={(event) => setTyped(event.target.value)}
        placeholder="Search pipelines"
        size="sm"
        type="search"
        value={typed}
      />
    </InputGroup>
  );
}

interface FiltersProps {
  readonly state: ListState;
  readonly byHealth: Readonly<Record<string, number>> | undefined;
  readonly total: number | undefined;
}

function Filters({ state, byHealth, total }: FiltersProps) {
  const { needsMe, health } = state.filter;
  return (
    <HStack aria-label="Filter pipelines" gap={2} mb={3} role="group" wrap="wrap">
      <Choice isOn={!needsMe} onChoose={() => state.setNeedsMe(false)}>
        All
      </Choice>
      <Choice isOn={needsMe} onChoose={() => state.setNeedsMe(true)}>
        Needs me
      </Choice>
      <Box bg="border" height="1.25rem" mx={1} width="1px" />
      {HEALTHS.map((one: Health) => (
        <Choice isOn={health.includes(one)} key={one} onChoose={() => state.toggleHealth(one)}>
          <Icon color={`${HEALTH[one].palette}.fg`} name={one} />
          {HEALTH[one].label} {count(byHealth?.[one] ?? 0)}
        </Choice>
      ))}
      {total === undefined ? null : (
        <Text color="fg.muted" fontSize="sm" ms="auto">
          {many(total, "pipeline")}
        </Text>
      )}
    </HStack>
  );
}

function NoPipelines({ filter }: { readonly filter: ListFilter }) {
  if (filter.search !== "" || filter.health.length > 0) {
    return <Empty title="No pipeline matches">Change the search or the filter.</Empty>;
  }
  if (filter.needsMe) {
    return <Empty title="Nothing needs you">All pipelines deliver, and no dead letter waits for a decision.</Empty>;
  }
  if (filter.database !== undefined) {
    return (
      <Empty title="No table of this database has run yet">
        A table appears here once it has run. You see those whose DAGs you may see; ask an administrator of Airflow if
        one is missing.
      </Empty>
    );
  }
  if (filter.dagId !== undefined) {
    return (
      <Empty title="This DAG has run no pipeline yet">
        A pipeline appears here once a task of this DAG has run it, such as CkptReplicateOperator or
        CkptReplicationTaskGroup.
      </Empty>
    );
  }
  return (
    <Empty title="No pipeline yet">
      A pipeline appears here once it has run. You see those whose DAGs you may see; ask an administrator of Airflow if
      one is missing.
    </Empty>
  );
}
