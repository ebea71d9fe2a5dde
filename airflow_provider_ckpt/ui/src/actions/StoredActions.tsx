import { Flex, Stack, Text } from "@chakra-ui/react";

import { useProposals } from "../api/queries";
import type { ActionName, PipelineDetail, ProposalRow, StoredActionRow } from "../api/types";
import { runPath } from "../app/paths";
import { Icon } from "../elements/Icon";
import { TextLink } from "../elements/TextLink";
import { Moment } from "../elements/Time";
import { UserText } from "../elements/UserText";
import { ACTIONS } from "./catalogue";

/** What was asked for and is not done yet: actions that wait for a run, and proposals that wait for an approval. */
export function StoredActions({ detail, except }: { readonly detail: PipelineDetail; readonly except: number | null }) {
  const { data } = useProposals(detail.name);
  const pending = detail.actions.filter((row) => row.state === "pending" && row.number !== except);
  const proposals = (data?.items ?? []).filter(
    (row) => row.by === "dag" && (row.state === "open" || row.state === "approved"),
  );
  if (pending.length === 0 && proposals.length === 0) {
    return null;
  }
  return (
    <Stack as="ul" data-testid="ckpt-stored" gap={2} listStyleType="none" mb={3}>
      {pending.map((row) => (
        <Waiting key={`action ${row.number}`}>
          <Stored row={row} />
        </Waiting>
      ))}
      {proposals.map((row) => (
        <Waiting key={`proposal ${row.id}`}>
          <Proposed row={row} />
        </Waiting>
      ))}
    </Stack>
  );
}

function Waiting({ children }: { readonly children: React.ReactNode }) {
  return (
    <Flex
      as="li"
      bg="blue.subtle"
      borderColor="blue.emphasized"
      borderRadius="md"
      borderWidth="1px"
      fontSize="sm"
      gap={3}
      px={3}
      py={2}
    >
      <Icon color="blue.fg" mt="0.2em" name="clock" />
      <span>{children}</span>
    </Flex>
  );
}

function labelOf(kind: string): string {
  return ACTIONS[kind as ActionName]?.label ?? kind;
}

function Stored({ row }: { readonly row: StoredActionRow }) {
  return (
    <>
      <b>{labelOf(row.kind)}</b> of <UserText>{row.actor}</UserText> is stored as number {row.number} since{" "}
      <Moment at={row.stored_at} />: the next run applies it.
      <ReasonText reason={row.reason} />
    </>
  );
}

function Proposed({ row }: { readonly row: ProposalRow }) {
  return (
    <>
      <b>{labelOf(row.kind)}</b> of <UserText>{row.asked_by}</UserText>{" "}
      {row.state === "open" ? "waits for an approval" : "is approved and about to be done"}
      {row.run === null ? null : (
        <>
          :{" "}
          <TextLink to={row.state === "open" ? `${runPath(row.run)}/required_actions` : runPath(row.run)}>
            {row.run.run_id}
          </TextLink>
        </>
      )}
      <ReasonText reason={row.reason} />
    </>
  );
}

function ReasonText({ reason }: { readonly reason: string | null }) {
  return reason === null ? null : (
    <Text as="span" color="fg.muted">
      {" "}
      “<UserText>{reason}</UserText>”
    </Text>
  );
}
