import { Badge, Box, Button, HStack, Table, Text } from "@chakra-ui/react";

import type { ActionName, ActionWish, DeadLetterFilter, DeadLetterGroup, PipelineDetail } from "../api/types";
import { Moment } from "../elements/Time";
import { compact, count, many } from "../format/numbers";
import { visible } from "../format/text";
import { moment } from "../format/times";
import { DEAD_LETTER_STATE, isParked } from "./deadLetterState";
import { type ErrorGroup, hourOf } from "./groups";

interface GroupTableProps {
  readonly detail: PipelineDetail;
  readonly groups: readonly ErrorGroup[];
  readonly chosen: DeadLetterFilter | undefined;
  readonly onChoose: (filter: DeadLetterFilter | undefined) => void;
  readonly onWish: (wish: ActionWish) => void;
}

/** One line for each cause: how many records, when, and what can be done about all of them. */
export function GroupTable({ groups, chosen, onChoose, detail, onWish }: GroupTableProps) {
  return (
    <Table.ScrollArea whiteSpace="normal">
      <Table.Root size="sm">
        <Table.Header>
          <Table.Row>
            <Table.ColumnHeader>Error</Table.ColumnHeader>
            <Table.ColumnHeader>State</Table.ColumnHeader>
            <Table.ColumnHeader textAlign="end">Records</Table.ColumnHeader>
            <Table.ColumnHeader>By hour</Table.ColumnHeader>
            <Table.ColumnHeader>First and last</Table.ColumnHeader>
            <Table.ColumnHeader>
              <Box srOnly>Actions</Box>
            </Table.ColumnHeader>
          </Table.Row>
        </Table.Header>
        <Table.Body>
          {groups.map((group) => {
            const filter: DeadLetterFilter = { types: [group.type], states: [group.state] };
            return (
              <Table.Row
                data-error={group.type}
                data-state-of={group.state}
                key={`${group.type} ${group.state}`}
                verticalAlign="middle"
              >
                <Table.Cell fontWeight="semibold">{visible(group.type)}</Table.Cell>
                <Table.Cell>
                  <Badge colorPalette={DEAD_LETTER_STATE[group.state].palette}>
                    {DEAD_LETTER_STATE[group.state].label}
                  </Badge>
                </Table.Cell>
                <Table.Cell fontVariantNumeric="tabular-nums" textAlign="end">
                  {count(group.records)}
                </Table.Cell>
                <Table.Cell>
                  <Hours chosen={chosen} group={group} onChoose={onChoose} />
                </Table.Cell>
                <Table.Cell whiteSpace="nowrap">
                  <Moment at={group.firstAt} />
                  <Text as="span" color="fg.muted">
                    {" "}
                    –{" "}
                  </Text>
                  <Moment at={group.lastAt} />
                </Table.Cell>
                <Table.Cell>
                  <GroupActions detail={detail} filter={filter} group={group} onChoose={onChoose} onWish={onWish} />
                </Table.Cell>
              </Table.Row>
            );
          })}
        </Table.Body>
      </Table.Root>
    </Table.ScrollArea>
  );
}

interface GroupActionsProps {
  readonly detail: PipelineDetail;
  readonly group: ErrorGroup;
  readonly filter: DeadLetterFilter;
  readonly onChoose: (filter: DeadLetterFilter) => void;
  readonly onWish: (wish: ActionWish) => void;
}

function GroupActions({ detail, group, filter, onChoose, onWish }: GroupActionsProps) {
  const act = (kind: ActionName) => onWish({ kind, dead_letters: { types: [group.type] } });
  return (
    <HStack gap={2} justify="flex-end">
      <Button
        disabled={!detail.may_act}
        onClick={() => onChoose(filter)}
        size="xs"
        title={
          detail.may_act
            ? "Shows the bytes; the audit log keeps that you looked"
            : "Only whoever may act may see the bytes"
        }
        variant="outline"
      >
        View
      </Button>
      <Button
        disabled={!detail.may_act || !isParked(group.state)}
        onClick={() => act("replay_dead_letters")}
        size="xs"
        variant="outline"
      >
        Replay…
      </Button>
      <Button
        disabled={!detail.may_act || !isParked(group.state)}
        onClick={() => act("discard_dead_letters")}
        size="xs"
        variant="outline"
      >
        Discard…
      </Button>
    </HStack>
  );
}

/** Hours that are drawn; the list below the bars would not be read beyond. */
const SHOWN = 24;

interface HoursProps {
  readonly group: ErrorGroup;
  readonly chosen: DeadLetterFilter | undefined;
  readonly onChoose: (filter: DeadLetterFilter) => void;
}

/** A bar for each of the newest hours; pressing it shows the records of that hour. */
function Hours({ group, chosen, onChoose }: HoursProps) {
  const most = Math.max(1, ...group.hours.map((hour) => hour.records));
  return (
    <HStack align="flex-end" gap="2px" height="2.25rem">
      {group.hours
        .slice(0, SHOWN)
        .toReversed()
        .map((hour) => (
          <Hour chosen={chosen} hour={hour} key={hour.hour} most={most} onChoose={onChoose} />
        ))}
      {group.hours.length > SHOWN ? (
        <Text color="fg.muted" fontSize="xs">
          of {count(group.hours.length)} h
        </Text>
      ) : null}
    </HStack>
  );
}

interface HourProps {
  readonly hour: DeadLetterGroup;
  readonly most: number;
  readonly chosen: DeadLetterFilter | undefined;
  readonly onChoose: (filter: DeadLetterFilter) => void;
}

function Hour({ hour, most, chosen, onChoose }: HourProps) {
  const filter: DeadLetterFilter = { types: [hour.error_type], states: [hour.state], ...hourOf(hour) };
  const isChosen = chosen?.since === filter.since && chosen?.types?.[0] === hour.error_type;
  const text = `${moment(hour.hour).slice(0, 16)}: ${many(hour.records, "record")} of ${many(hour.batches, "batch", "batches")}`;
  return (
    <Button
      alignItems="flex-end"
      aria-label={text}
      aria-pressed={isChosen}
      height="100%"
      minW="1.1rem"
      onClick={() => onChoose(filter)}
      p={0}
      title={text}
      unstyled
    >
      <Text fontSize="2xs" lineHeight={1} textAlign="center">
        {hour.records >= most / 2 ? compact(hour.records) : ""}
      </Text>
      <Box
        bg={isChosen ? "fg" : `${DEAD_LETTER_STATE[hour.state].palette}.solid`}
        borderRadius="1px"
        height={`${Math.max(3, (hour.records / most) * 22)}px`}
        mx="1px"
      />
    </Button>
  );
}
