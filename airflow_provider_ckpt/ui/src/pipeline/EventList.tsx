import { Box, HStack, Table, Text } from "@chakra-ui/react";

import type { EventRow } from "../api/types";
import { RunText } from "../elements/RunText";
import { UserText } from "../elements/UserText";
import { moment } from "../format/times";

/** Events of the audit log, as the API orders them. */
export function EventList({ events }: { readonly events: readonly EventRow[] }) {
  return (
    <Table.ScrollArea whiteSpace="normal">
      <Table.Root size="sm">
        <Table.Header>
          <Table.Row>
            <Table.ColumnHeader>When</Table.ColumnHeader>
            <Table.ColumnHeader>Event</Table.ColumnHeader>
            <Table.ColumnHeader>Concerns</Table.ColumnHeader>
            <Table.ColumnHeader>Actor</Table.ColumnHeader>
            <Table.ColumnHeader>Reason and details</Table.ColumnHeader>
          </Table.Row>
        </Table.Header>
        <Table.Body>
          {events.map((event) => (
            <Table.Row key={event.id} verticalAlign="top">
              <Table.Cell fontVariantNumeric="tabular-nums" whiteSpace="nowrap">
                {moment(event.at)}
              </Table.Cell>
              <Table.Cell fontWeight="medium" whiteSpace="nowrap">
                {event.kind.replaceAll("_", " ")}
              </Table.Cell>
              <Table.Cell>
                <UserText>{event.batch ?? event.partition ?? ""}</UserText>
              </Table.Cell>
              <Table.Cell>
                {event.actor === null && event.run === null ? null : <RunText owner={event.actor} run={event.run} />}
                {event.epoch === null ? null : (
                  <Text color="fg.muted" fontSize="xs">
                    epoch {event.epoch}
                  </Text>
                )}
              </Table.Cell>
              <Table.Cell maxW="32rem">
                {event.reason === null ? null : <UserText>{event.reason}</UserText>}
                <Details event={event} />
              </Table.Cell>
            </Table.Row>
          ))}
        </Table.Body>
      </Table.Root>
    </Table.ScrollArea>
  );
}

function Details({ event }: { readonly event: EventRow }) {
  const isEmpty = event.detail === "" || event.detail === "{}";
  if (isEmpty && event.database_user === null) {
    return null;
  }
  return (
    <Box as="details" color="fg.muted" fontSize="xs">
      <Box as="summary" cursor="pointer">
        details
      </Box>
      <UserText as="p" fontFamily="mono" whiteSpace="pre-wrap">
        {event.detail}
      </UserText>
      {event.database_user === null ? null : (
        <HStack gap={1}>
          recorded {event.recorded_at === null ? "" : moment(event.recorded_at)} by database user
          <UserText>{event.database_user}</UserText>
        </HStack>
      )}
    </Box>
  );
}
