import {
  Box,
  Button,
  CloseButton,
  Dialog,
  Field,
  HStack,
  Input,
  Portal,
  Stack,
  Text,
  Textarea,
} from "@chakra-ui/react";
import { useEffect, useRef, useState } from "react";

import { useCarryOut, usePreview } from "../api/queries";
import type { ActionOutcome, ActionWish, PipelineDetail, Preview } from "../api/types";
import { Failure, Loading } from "../elements/States";
import { visible } from "../format/text";
import { ACTIONS, isComplete } from "./catalogue";
import { PreviewPicture } from "./PreviewPicture";
import { RecoveryForms } from "./RecoveryForms";
import { WishForm } from "./WishForm";

interface ActionDialogProps {
  readonly detail: PipelineDetail;
  /** What was asked for; a form completes it where it has to be told more. */
  readonly wish: ActionWish;
  readonly onClose: () => void;
  readonly onDone: (outcome: ActionOutcome) => void;
}

/** One action: its form, its dry run with the line before and after, the reason, and the button that does it. */
export function ActionDialog({ detail, wish: asked, onClose, onDone }: ActionDialogProps) {
  const [wish, setWish] = useState(asked);
  const [reason, setReason] = useState("");
  const preview = usePreview(detail.name);
  const carryOut = useCarryOut(detail.name);
  const entry = ACTIONS[wish.kind];
  const needsForm = !isComplete(asked);
  const { mutate } = preview;
  const asksAtOnce = useRef(!needsForm);
  useEffect(() => {
    if (asksAtOnce.current) {
      asksAtOnce.current = false;
      mutate(asked);
    }
  }, [mutate, asked]);
  const edit = (next: ActionWish) => {
    setWish(next);
    preview.reset();
    carryOut.reset();
  };
  const tryOut = () => {
    carryOut.reset();
    preview.mutate(wish);
  };
  const found = preview.data;
  const [name, setName] = useState("");
  const lacksReason = found?.needs_reason === true && reason.trim() === "";
  const doIt = () => {
    if (found?.id != null) {
      carryOut.mutate(orderOf(found.id, reason, name), { onSuccess: onDone });
    }
  };
  return (
    <Dialog.Root onOpenChange={(event) => (event.open ? undefined : onClose())} open scrollBehavior="inside" size="xl">
      <Portal>
        <Dialog.Backdrop />
        <Dialog.Positioner>
          <Dialog.Content data-testid="ckpt-dialog">
            <Dialog.Header>
              <Stack gap={1}>
                <Dialog.Title overflowWrap="anywhere">
                  {entry.label}: {visible(detail.name)}
                </Dialog.Title>
                <Text color="fg.muted" fontSize="sm">
                  {entry.text}
                </Text>
              </Stack>
            </Dialog.Header>
            <Dialog.Body tabIndex={0}>
              <Stack gap={4}>
                {needsForm ? <WishForm detail={detail} onChange={edit} onTry={tryOut} wish={wish} /> : null}
                {preview.isPending ? <Loading rows={3} what="the dry run" /> : null}
                {preview.error === null ? null : (
                  <Failure error={preview.error} onRetry={tryOut} what="The dry run was refused" />
                )}
                {found === undefined ? null : <PreviewPicture preview={found} />}
                {found?.by === "dag" ? <RecoveryForms isLacking={lacksReason} preview={found} reason={reason} /> : null}
                {carryOut.error === null ? null : (
                  <Failure error={carryOut.error} onRetry={tryOut} what="The ledger refused: nothing was changed" />
                )}
              </Stack>
            </Dialog.Body>
            <Dialog.Footer>
              <Stack gap={3} width="100%">
                {found === undefined ? null : (
                  <Reason isRequired={found.needs_reason} onChange={setReason} reason={reason} />
                )}
                {found?.needs_name === true ? (
                  <Confirmation name={detail.name} onChange={setName} typed={name} />
                ) : null}
                <HStack gap={3} wrap="wrap">
                  <Box flex="1" fontSize="sm">
                    {found === undefined ? null : <WhoDoesIt preview={found} />}
                  </Box>
                  <Button onClick={onClose} size="sm" variant="outline">
                    Cancel
                  </Button>
                  {found === undefined || found.by === "dag" ? null : (
                    <Button
                      colorPalette={entry.isGrave ? "red" : "brand"}
                      disabled={found.id === null || lacksReason || lacksName(found, name, detail.name)}
                      loading={carryOut.isPending}
                      onClick={doIt}
                      size="sm"
                    >
                      {entry.label}
                    </Button>
                  )}
                </HStack>
              </Stack>
            </Dialog.Footer>
            <Dialog.CloseTrigger asChild>
              <CloseButton aria-label="Close" size="sm" />
            </Dialog.CloseTrigger>
          </Dialog.Content>
        </Dialog.Positioner>
      </Portal>
    </Dialog.Root>
  );
}

interface ReasonProps {
  readonly reason: string;
  readonly isRequired: boolean;
  readonly onChange: (reason: string) => void;
}

function Reason({ reason, isRequired, onChange }: ReasonProps) {
  return (
    <Field.Root required={isRequired}>
      <Field.Label>
        Reason <Field.RequiredIndicator />
      </Field.Label>
      <Textarea
        autoresize
        maxLength={1000}
        onChange={(event) => onChange(event.target.value)}
        placeholder="Why? The audit log keeps it, with your name."
        rows={2}
        value={reason}
      />
    </Field.Root>
  );
}

/** Whether the name has to be typed and is not yet the pipeline's. */
function lacksName(preview: Preview, typed: string, name: string): boolean {
  return preview.needs_name && typed.trim() !== name;
}

function orderOf(id: string, reason: string, name: string) {
  return { id, reason: reason.trim() === "" ? null : reason.trim(), ...(name === "" ? {} : { name: name.trim() }) };
}

interface ConfirmationProps {
  readonly name: string;
  readonly typed: string;
  readonly onChange: (typed: string) => void;
}

/** The pipeline's name, typed by the user who deletes it. */
function Confirmation({ name, typed, onChange }: ConfirmationProps) {
  return (
    <Field.Root required>
      <Field.Label>
        Type the pipeline's name, {visible(name)}, to confirm <Field.RequiredIndicator />
      </Field.Label>
      <Input
        autoComplete="off"
        maxLength={200}
        onChange={(event) => onChange(event.target.value)}
        size="sm"
        value={typed}
      />
    </Field.Root>
  );
}

/** What happens on the press of the button. */
function WhoDoesIt({ preview }: { readonly preview: Preview }) {
  if (preview.by === "dag") {
    return <>This needs the source or the sink, so a run of the recovery DAG does it.</>;
  }
  if (preview.id === null) {
    return <>There is nothing to do.</>;
  }
  if (preview.waits_for !== null) {
    return <>A run holds the lease: the action is stored, and that run or the next applies it.</>;
  }
  return preview.by === "run" ? (
    <>The action is stored, and the next run applies it.</>
  ) : (
    <>The ledger applies it at once.</>
  );
}
