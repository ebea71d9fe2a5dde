import { Box, Flex, HStack, IconButton, Text } from "@chakra-ui/react";
import { useEffect, useMemo, useRef, useState } from "react";

import { useLineDetail, type Window } from "../api/queries";
import type { PartitionLine } from "../api/types";
import { Icon, type IconName } from "../elements/Icon";
import { UserText } from "../elements/UserText";
import { many, percent, position } from "../format/numbers";
import { visible } from "../format/text";
import { progressOf } from "../line/describe";
import { exact, type Frame, frameOf, type LineModel, modelOf } from "../line/model";
import { NumberLine } from "../line/NumberLine";
import { Overview } from "../line/Overview";
import { VersionMarks } from "../line/VersionMarks";
import { sameView, type View, zoomed } from "../line/view";

/** Most pieces that the API makes of a window. */
export const BUCKETS = 1000;

interface PartitionPanelProps {
  readonly pipeline: string;
  readonly line: PartitionLine;
  /** Part to show at first; undefined for the whole. */
  readonly part: Frame | undefined;
  /** Called with the part that is shown, once it has not changed for a moment. */
  readonly onPart: (part: Frame | undefined) => void;
  readonly selected: ReadonlySet<string>;
  readonly onSelect: (batches: readonly string[], add: boolean) => void;
  readonly opened: string | undefined;
  readonly onOpen: (batch: string) => void;
}

/** One partition: its caption, the strip of the whole, and the number line of the part that is shown. */
export function PartitionPanel({ pipeline, line, part: given, onPart, ...selection }: PartitionPanelProps) {
  const [part, setPart] = useState(given);
  const tell = useDelayed(onPart);
  const frame = useMemo(() => frameOf([line]), [line]);
  const coarse = useMemo(() => modelOf(line, frame), [line, frame]);
  const view = useMemo(() => viewOf(part, coarse), [part, coarse]);
  const isWhole = sameView(view, coarse.whole);
  const isCoarse = line.bucketed || line.schema_versions_left_out;
  const { data } = useLineDetail(pipeline, isCoarse ? windowOf(line.partition, given) : undefined, BUCKETS);
  const detail = data?.partitions[0];
  const model = useMemo(() => {
    const fine = detail === undefined ? undefined : modelOf(detail, frame);
    return fine !== undefined && covers(fine, view) && !isWhole ? fine : coarse;
  }, [detail, frame, coarse, view, isWhole]);
  const change = (next: View) => {
    const isAll = sameView(next, coarse.whole);
    const changed = isAll ? undefined : { start: exact(coarse, next.from), end: exact(coarse, next.to) };
    setPart(changed);
    tell(changed);
  };
  const middle = (view.from + view.to) / 2;
  return (
    <Box as="section" aria-label={`Partition ${line.partition}`} data-testid="ckpt-partition" mb={4}>
      <Flex align="baseline" gap={3} justify="space-between">
        <Caption line={line} />
        <HStack gap={1}>
          <Zoom icon="plus" label="Zoom in" onPress={() => change(zoomed(view, middle, 0.5, coarse.whole))} />
          <Zoom
            icon="minus"
            isOff={isWhole}
            label="Zoom out"
            onPress={() => change(zoomed(view, middle, 2, coarse.whole))}
          />
          <Zoom icon="whole" isOff={isWhole} label="Show all" onPress={() => change(coarse.whole)} />
        </HStack>
      </Flex>
      <Overview model={coarse} onView={change} view={view} />
      <VersionMarks model={model} view={view} />
      <NumberLine model={model} onView={change} view={view} {...selection} />
    </Box>
  );
}

function Caption({ line }: { readonly line: PartitionLine }) {
  const part = progressOf(line);
  return (
    <HStack gap={3} wrap="wrap">
      <UserText fontWeight="semibold">{line.partition}</UserText>
      <Text as="span" color="fg.muted" fontSize="sm" fontVariantNumeric="tabular-nums">
        generation {line.generation} · checkpoint {position(BigInt(line.committed))}
        {part === undefined ? "" : ` (${percent(part)})`} of {position(BigInt(line.bound ?? line.planned_end))}
      </Text>
      {line.gaps.length === 0 ? null : (
        <Text as="span" color="red.fg" fontSize="sm" fontWeight="semibold">
          {many(line.gaps.length, "gap")}
        </Text>
      )}
      {line.blocked === null ? null : (
        <Text as="span" color="fg.muted" fontSize="sm">
          next: {visible(line.blocked.batch)}
        </Text>
      )}
    </HStack>
  );
}

interface ZoomProps {
  readonly icon: IconName;
  readonly label: string;
  readonly onPress: () => void;
  readonly isOff?: boolean;
}

function Zoom({ icon, label, onPress, isOff = false }: ZoomProps) {
  return (
    <IconButton aria-label={label} disabled={isOff} onClick={onPress} size="2xs" title={label} variant="ghost">
      <Icon name={icon} />
    </IconButton>
  );
}

/** The part in the numbers of a model; the whole if it lies outside of it. */
function viewOf(part: Frame | undefined, model: LineModel): View {
  if (part === undefined) {
    return model.whole;
  }
  const from = Math.max(model.whole.from, Number(part.start - model.origin));
  const to = Math.min(model.whole.to, Number(part.end - model.origin));
  return from < to ? { from, to } : model.whole;
}

function windowOf(partition: string, part: Frame | undefined): Window | undefined {
  return part === undefined ? undefined : { partition, start: String(part.start), end: String(part.end) };
}

function covers(model: LineModel, view: View): boolean {
  const start = Number(BigInt(model.line.window.start) - model.origin);
  const end = Number(BigInt(model.line.window.end) - model.origin);
  return start <= view.from && view.to <= end;
}

/** A function that is called with the newest value once none has come for a moment, so that zooming is told once. */
function useDelayed<T>(call: (value: T) => void): (value: T) => void {
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  return (value) => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => call(value), 150);
  };
}
