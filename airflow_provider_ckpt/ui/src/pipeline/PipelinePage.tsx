import { Box, Flex, HStack, Stack, Text } from "@chakra-ui/react";
import { useCallback, useState } from "react";
import { Navigate, useNavigate, useParams } from "react-router-dom";
import { ActionBar } from "../actions/ActionBar";
import { ActionDialog } from "../actions/ActionDialog";
import { Outcome } from "../actions/Outcome";
import { StoredActions } from "../actions/StoredActions";
import type { TriggeredRun } from "../api/airflow";
import { usePipeline } from "../api/queries";
import type { ActionOutcome, ActionWish, PipelineDetail } from "../api/types";
import { LiveSwitch } from "../app/LiveSwitch";
import { useRoot, VIEWS, type ViewName } from "../app/paths";
import { DELETED, useRemembered } from "../app/useRemembered";
import { DeadLetters } from "../deadLetters/DeadLetters";
import { HealthMark } from "../elements/HealthMark";
import { Failure, Loading } from "../elements/States";
import { Since } from "../elements/Time";
import { Trail } from "../elements/Trail";
import { UserText } from "../elements/UserText";
import { TimelineView } from "../timeline/TimelineView";
import { AccountedBadge } from "./AccountedBadge";
import { BatchesView } from "./BatchesView";
import { DeclarationView } from "./DeclarationView";
import { EventsView } from "./EventsView";
import { LeaseText } from "./LeaseText";
import { LineView } from "./LineView";
import { Refreshes } from "./Refreshes";
import type { Selection } from "./selection";
import { ViewTabs } from "./ViewTabs";

/** One pipeline: what is wrong, what can be done, and the views of its state. */
export function PipelinePage() {
  const { pipeline = "", view = "" } = useParams();
  const { data, error, isPending, refetch } = usePipeline(pipeline);
  if (!(VIEWS as readonly string[]).includes(view)) {
    return <Navigate replace to="../line" />;
  }
  if (data === undefined) {
    return (
      <Stack gap={4}>
        <Trail name={pipeline} />
        {isPending ? <Loading what="the pipeline" /> : null}
        {error === null ? null : (
          <Failure error={error} onRetry={() => void refetch()} what="The pipeline could not be read" />
        )}
      </Stack>
    );
  }
  return (
    <>
      {error === null ? null : (
        <Box mb={3}>
          <Failure error={error} onRetry={() => void refetch()} what="What follows may be old" />
        </Box>
      )}
      <Pipeline detail={data} key={data.name} view={view as ViewName} />
    </>
  );
}

function Pipeline({ detail, view }: { readonly detail: PipelineDetail; readonly view: ViewName }) {
  const [wish, setWish] = useState<ActionWish>();
  const [outcome, setOutcome] = useRemembered<ActionOutcome>(`outcome ${detail.name}`);
  const [run, setRun] = useRemembered<TriggeredRun>(`run ${detail.name}`);
  const selection = useSelection(detail.name);
  const navigate = useNavigate();
  const root = useRoot();
  const [, setDeleted] = useRemembered<string>(DELETED);
  const finish = (found: ActionOutcome) => {
    if (found.kind === "delete_pipeline") {
      setDeleted(detail.name);
      setOutcome(undefined);
      navigate(root);
      return;
    }
    setOutcome(found);
    setRun(undefined);
    setWish(undefined);
    selection.clear();
  };
  return (
    <Box>
      <Flex align="center" gap={4} justify="space-between" mb={2} wrap="wrap">
        <HStack gap={4} wrap="wrap">
          <Trail database={detail.database} name={detail.name} />
          <HealthMark health={detail.health} size="md" />
        </HStack>
        <LiveSwitch />
      </Flex>
      <Flex align="baseline" columnGap={6} justify="space-between" mb={3} rowGap={1} wrap="wrap">
        <Box fontSize="sm">
          <UserText>{detail.cause.text}</UserText>
          {detail.cause.since === null || detail.health === "well" ? null : (
            <Text as="span" color="fg.muted">
              {" "}
              for <Since at={detail.cause.since} />
            </Text>
          )}
          <LeaseText lease={detail.lease} />
        </Box>
        <AccountedBadge pipeline={detail.name} />
      </Flex>
      <StoredActions detail={detail} except={outcome?.number ?? null} />
      {outcome === undefined ? null : (
        <Outcome detail={detail} onClose={() => setOutcome(undefined)} onRun={setRun} outcome={outcome} run={run} />
      )}
      <Refreshes detail={detail} onWish={setWish} />
      <ActionBar detail={detail} onWish={setWish} selection={selection} />
      <ViewTabs detail={detail} view={view} />
      <Box as="section" aria-label={view} pt={4}>
        <Views detail={detail} onWish={setWish} selection={selection} view={view} />
      </Box>
      {wish === undefined ? null : (
        <ActionDialog detail={detail} onClose={() => setWish(undefined)} onDone={finish} wish={wish} />
      )}
    </Box>
  );
}

export interface ViewProps {
  readonly detail: PipelineDetail;
  readonly selection: Selection;
  readonly onWish: (wish: ActionWish) => void;
}

function Views({ view, ...props }: ViewProps & { readonly view: ViewName }) {
  switch (view) {
    case "line":
      return <LineView {...props} />;
    case "timeline":
      return <TimelineView pipeline={props.detail.name} />;
    case "batches":
      return <BatchesView {...props} />;
    case "dead-letters":
      return <DeadLetters {...props} />;
    case "events":
      return <EventsView pipeline={props.detail.name} />;
    case "declaration":
      return <DeclarationView pipeline={props.detail.name} />;
  }
}

const NONE: ReadonlySet<string> = new Set();

/** The batches that are selected for an action, in all views. */
function useSelection(pipeline: string): Selection {
  const [batches = NONE, setBatches] = useRemembered<ReadonlySet<string>>(`selection ${pipeline}`);
  const select = useCallback(
    (names: readonly string[], add: boolean) => {
      const all = names.every((name) => batches.has(name));
      if (add && all) {
        setBatches(new Set([...batches].filter((name) => !names.includes(name))));
      } else {
        setBatches(new Set(add ? [...batches, ...names] : names));
      }
    },
    [batches, setBatches],
  );
  const clear = useCallback(() => setBatches(undefined), [setBatches]);
  return { batches, select, clear };
}
