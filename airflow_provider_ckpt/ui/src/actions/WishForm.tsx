import { Button, Field, HStack, Input, NativeSelect, Stack, Text } from "@chakra-ui/react";
import type { FormEvent, ReactNode } from "react";
import { useState } from "react";

import type { ActionWish, PipelineDetail } from "../api/types";
import { position } from "../format/numbers";
import { instantOf, zone } from "../format/times";
import { ACTIONS } from "./catalogue";

interface WishFormProps {
  readonly detail: PipelineDetail;
  readonly wish: ActionWish;
  readonly onChange: (wish: ActionWish) => void;
  readonly onTry: () => void;
}

/** What an action has to be told before its dry run. */
export function WishForm({ detail, wish, onChange, onTry }: WishFormProps) {
  const submit = (event: FormEvent) => {
    event.preventDefault();
    onTry();
  };
  return (
    <form onSubmit={submit}>
      <Stack gap={3}>
        <Fields detail={detail} onChange={onChange} wish={wish} />
        <HStack>
          <Button size="sm" type="submit" variant="outline">
            Dry run
          </Button>
          <Text color="fg.muted" fontSize="sm">
            A dry run changes nothing.
          </Text>
        </HStack>
      </Stack>
    </form>
  );
}

function Fields({ detail, wish, onChange }: Omit<WishFormProps, "onTry">) {
  switch (ACTIONS[wish.kind].form) {
    case "rewind":
      return <RewindFields detail={detail} onChange={onChange} wish={wish} />;
    case "range":
      return (
        <HStack align="flex-start" gap={3} wrap="wrap">
          <PartitionField detail={detail} onChange={onChange} wish={wish} />
          <PositionField label="From" onChange={(start) => onChange({ ...wish, start })} value={wish.start} />
          <PositionField label="To, exclusive" onChange={(end) => onChange({ ...wish, end })} value={wish.end} />
        </HStack>
      );
    case "position":
      return (
        <PositionField
          help="Leave it empty to find out from the sink's receipts."
          isOptional
          label="From position"
          onChange={(to_position) => onChange({ ...wish, to_position: to_position === "" ? null : to_position })}
          value={wish.to_position}
        />
      );
    case "ledger":
      return (
        <Labelled
          help="As the error of the refused run names it, such as 5f0c0d52-…"
          isRequired
          label="Id of the lost ledger"
        >
          <Input
            maxLength={200}
            onChange={(event) => onChange({ ...wish, ledger_id: event.target.value.trim() })}
            required
            size="sm"
            value={wish.ledger_id ?? ""}
            width="24rem"
          />
        </Labelled>
      );
    case "keep":
      return (
        <Labelled help="What is younger stays, and what recovery needs." isRequired label="Keep history of, in days">
          <Input
            max={36_500}
            min={1}
            onChange={(event) =>
              onChange({ ...wish, keep_days: event.target.value === "" ? null : Number(event.target.value) })
            }
            required
            size="sm"
            type="number"
            value={wish.keep_days ?? ""}
            width="9rem"
          />
        </Labelled>
      );
    case "dead_letters":
      return <DeadLetterFields onChange={onChange} wish={wish} />;
    default:
      return null;
  }
}

function RewindFields({ detail, wish, onChange }: Omit<WishFormProps, "onTry">) {
  const [by, setBy] = useState<"position" | "time">("position");
  const partition = detail.partition_rows.find((row) => row.id === wish.partition) ?? sources(detail)[0];
  const chooseBy = (value: "position" | "time") => {
    setBy(value);
    onChange({ ...wish, to_position: null, to_time: null });
  };
  return (
    <HStack align="flex-start" gap={3} wrap="wrap">
      <PartitionField detail={detail} onChange={onChange} wish={wish} />
      <Labelled label="Back to">
        <NativeSelect.Root size="sm" width="9rem">
          <NativeSelect.Field onChange={(event) => chooseBy(event.target.value as typeof by)} value={by}>
            <option value="position">a position</option>
            <option value="time">a time</option>
          </NativeSelect.Field>
          <NativeSelect.Indicator />
        </NativeSelect.Root>
      </Labelled>
      {by === "position" ? (
        <PositionField
          help={partition === undefined ? "" : `The checkpoint is at ${position(BigInt(partition.committed))}.`}
          label="Position"
          onChange={(to_position) => onChange({ ...wish, to_position })}
          value={wish.to_position}
        />
      ) : (
        <TimeField label="Time" onChange={(to_time) => onChange({ ...wish, to_time })} />
      )}
    </HStack>
  );
}

function DeadLetterFields({ wish, onChange }: Pick<WishFormProps, "wish" | "onChange">) {
  const types = wish.dead_letters?.types ?? [];
  return (
    <HStack align="flex-start" gap={3} wrap="wrap">
      <Labelled help="Empty for all." label="Error types">
        <Input
          onChange={(event) => {
            const words = event.target.value.split(/[\s,]+/).filter((word) => word !== "");
            onChange({ ...wish, dead_letters: { ...wish.dead_letters, types: words } });
          }}
          placeholder="Sink, MessageDeserialization"
          size="sm"
          defaultValue={types.join(", ")}
        />
      </Labelled>
      <Labelled help="The oldest so many; empty for all." label="At most">
        <Input
          min={1}
          onChange={(event) =>
            onChange({ ...wish, stop_at: event.target.value === "" ? null : Number(event.target.value) })
          }
          size="sm"
          type="number"
          width="9rem"
        />
      </Labelled>
    </HStack>
  );
}

function sources(detail: PipelineDetail) {
  return detail.partition_rows.filter((row) => row.kind === "source");
}

/** The partition, where there is more than one to choose from. */
function PartitionField({ detail, wish, onChange }: Omit<WishFormProps, "onTry">) {
  const all = sources(detail);
  if (all.length < 2) {
    return null;
  }
  return (
    <Labelled isRequired label="Partition">
      <NativeSelect.Root size="sm" width="14rem">
        <NativeSelect.Field
          onChange={(event) => onChange({ ...wish, partition: event.target.value === "" ? null : event.target.value })}
          value={wish.partition ?? ""}
        >
          <option value="">Choose …</option>
          {all.map((row) => (
            <option key={row.id} value={row.id}>
              {row.id}
            </option>
          ))}
        </NativeSelect.Field>
        <NativeSelect.Indicator />
      </NativeSelect.Root>
    </Labelled>
  );
}

interface PositionFieldProps {
  readonly label: string;
  readonly value: string | null | undefined;
  readonly onChange: (value: string) => void;
  readonly help?: string;
  readonly isOptional?: boolean;
}

function PositionField({ label, value, onChange, help = "", isOptional = false }: PositionFieldProps) {
  return (
    <Labelled help={help} label={label}>
      <Input
        inputMode="numeric"
        onChange={(event) => onChange(event.target.value.replaceAll(/[\s,]/g, ""))}
        pattern="-?[0-9]+"
        required={!isOptional}
        size="sm"
        value={value ?? ""}
        width="14rem"
      />
    </Labelled>
  );
}

function TimeField({ label, onChange }: { readonly label: string; readonly onChange: (at: string | null) => void }) {
  return (
    <Labelled help={`Time zone ${zone()}`} label={label}>
      <Input
        onChange={(event) => onChange(event.target.value === "" ? null : instantOf(event.target.value))}
        required
        size="sm"
        step={1}
        type="datetime-local"
      />
    </Labelled>
  );
}

interface LabelledProps {
  readonly label: string;
  readonly help?: string;
  readonly isRequired?: boolean;
  readonly children: ReactNode;
}

function Labelled({ label, help = "", isRequired = false, children }: LabelledProps) {
  return (
    <Field.Root required={isRequired} width="auto">
      <Field.Label fontSize="sm">{label}</Field.Label>
      {children}
      {help === "" ? null : <Field.HelperText>{help}</Field.HelperText>}
    </Field.Root>
  );
}
