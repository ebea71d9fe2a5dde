import { Button, HStack, Menu, Portal, Text } from "@chakra-ui/react";

import type { ActionName, ActionWish, PipelineDetail } from "../api/types";
import { count } from "../format/numbers";
import type { Selection } from "../pipeline/selection";
import { ACTIONS } from "./catalogue";

interface ActionBarProps {
  readonly detail: PipelineDetail;
  readonly selection: Selection;
  readonly onWish: (wish: ActionWish) => void;
}

interface Offer {
  readonly wish: ActionWish;
  readonly label: string;
  /** Why it is not possible now; undefined if it is. */
  readonly not?: string | undefined;
}

/** What can be done with a pipeline. Each button opens a dry run. */
export function ActionBar({ detail, selection, onWish }: ActionBarProps) {
  const right = detail.may_act ? undefined : "You may see this pipeline, but not change runs of its DAGs.";
  const { first, more } = offers(detail, selection);
  return (
    <HStack aria-label="Actions" gap={2} mb={3} role="group" wrap="wrap">
      {first.map((offer) => {
        const not = right ?? offer.not;
        return (
          <Button
            disabled={not !== undefined}
            key={offer.label}
            onClick={() => onWish(offer.wish)}
            size="xs"
            title={not ?? ACTIONS[offer.wish.kind].text}
            variant="outline"
          >
            {offer.label}…
          </Button>
        );
      })}
      <Menu.Root onSelect={({ value }) => choose(more, value, onWish)} positioning={{ placement: "bottom-end" }}>
        <Menu.Trigger asChild>
          <Button disabled={right !== undefined} size="xs" variant="outline">
            More
          </Button>
        </Menu.Trigger>
        <Portal>
          <Menu.Positioner>
            <Menu.Content>
              {more.map((offer) => (
                <Menu.Item
                  disabled={offer.not !== undefined}
                  key={offer.label}
                  title={offer.not ?? ACTIONS[offer.wish.kind].text}
                  value={offer.wish.kind}
                >
                  {offer.label}…
                </Menu.Item>
              ))}
            </Menu.Content>
          </Menu.Positioner>
        </Portal>
      </Menu.Root>
      {right === undefined ? null : (
        <Text color="fg.muted" fontSize="sm">
          {right}
        </Text>
      )}
    </HStack>
  );
}

function choose(offers: readonly Offer[], kind: string, onWish: (wish: ActionWish) => void): void {
  const offer = offers.find((one) => one.wish.kind === kind);
  if (offer !== undefined) {
    onWish(offer.wish);
  }
}

function labelOfRelease(held: number): string {
  if (held === 0) {
    return "Release";
  }
  return held === 1 ? "Release the held batch" : `Release all ${count(held)}`;
}

/** The actions with what they would be done to: first those that are wanted most, then the others. */
export function offers(
  detail: PipelineDetail,
  selection: Pick<Selection, "batches">,
): { first: Offer[]; more: Offer[] } {
  const batches = [...selection.batches];
  const onBatches = (kind: "skip" | "hold"): Offer => ({
    wish: { kind, batches },
    label: batches.length === 0 ? ACTIONS[kind].label : `${ACTIONS[kind].label} ${count(batches.length)}`,
    not:
      batches.length === 0
        ? "Select batches first: by shift and drag on the line, or in the list of batches."
        : undefined,
  });
  const plain = (kind: ActionName, not?: string): Offer => ({ wish: { kind }, label: ACTIONS[kind].label, not });
  const release: Offer =
    batches.length > 0
      ? { wish: { kind: "release", batches }, label: `Release ${count(batches.length)}` }
      : {
          wish: { kind: "release", batches: [] },
          label: labelOfRelease(detail.held),
          not: detail.held === 0 ? "No batch is held." : undefined,
        };
  const deadLetters = detail.dead_letters;
  const administrator = detail.may_delete ? undefined : "It takes the right to edit the connection of the ledger.";
  const phase: Offer[] =
    detail.phase === "running"
      ? [plain("drain")]
      : [plain("resume"), plain("stop", detail.phase === "stopped" ? "It is stopped." : undefined)];
  return {
    first: [
      release,
      onBatches("skip"),
      {
        wish: { kind: "replay_dead_letters" },
        label: deadLetters === 0 ? "Replay dead letters" : `Replay ${count(deadLetters)} dead letters`,
        not: deadLetters === 0 ? "There are no dead letters." : undefined,
      },
      plain("rewind"),
      plain("recover"),
      ...phase,
      plain("force_stop", detail.lease.held ? undefined : "No run holds the lease."),
    ],
    more: [
      onBatches("hold"),
      plain("replay"),
      plain("discard_dead_letters", deadLetters === 0 ? "There are no dead letters." : undefined),
      ...(detail.phase === "running" ? [plain("stop", "Drain it first.")] : []),
      plain("resend_to_sink"),
      plain("keep_sink"),
      plain("move"),
      plain("adopt"),
      plain("accept_schema"),
      plain("break_lease", detail.lease.owner === null ? "Nobody holds the lease." : undefined),
      { wish: { kind: "collect_garbage", keep_days: 30 }, label: ACTIONS.collect_garbage.label, not: administrator },
      plain("delete_pipeline", administrator ?? (detail.lease.held ? "A run holds the lease." : undefined)),
    ],
  };
}
