import { Box, Button, HStack, Input } from "@chakra-ui/react";
import { useState } from "react";

import { useEvents } from "../api/queries";
import { Empty, Failure, Loading } from "../elements/States";
import { EventList } from "./EventList";

/** The audit log of a pipeline: who did what when, the newest first. */
export function EventsView({ pipeline }: { readonly pipeline: string }) {
  const [kind, setKind] = useState("");
  const [actor, setActor] = useState("");
  const { data, error, isPending, refetch, hasNextPage, fetchNextPage, isFetchingNextPage } = useEvents(pipeline, {
    kind: kind.trim().replaceAll(" ", "_"),
    actor: actor.trim(),
  });
  const events = data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <Box>
      <HStack gap={3} mb={3}>
        <Input
          aria-label="Kind of event"
          onChange={(event) => setKind(event.target.value)}
          placeholder="Kind, such as release"
          size="sm"
          value={kind}
          width="14rem"
        />
        <Input
          aria-label="Actor"
          onChange={(event) => setActor(event.target.value)}
          placeholder="Actor, such as airflow:ada"
          size="sm"
          value={actor}
          width="14rem"
        />
      </HStack>
      {error === null ? null : (
        <Failure error={error} onRetry={() => void refetch()} what="The events could not be read" />
      )}
      {isPending ? <Loading what="events" /> : null}
      {data !== undefined && events.length === 0 ? (
        <Empty title="No event matches">Change or empty the fields above.</Empty>
      ) : null}
      {events.length === 0 ? null : <EventList events={events} />}
      {hasNextPage ? (
        <Button loading={isFetchingNextPage} mt={3} onClick={() => void fetchNextPage()} size="sm" variant="outline">
          Show older events
        </Button>
      ) : null}
    </Box>
  );
}
