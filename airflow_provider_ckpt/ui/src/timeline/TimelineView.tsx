import { Box, Button, HStack, Text } from "@chakra-ui/react";
import { useCallback, useMemo, useState } from "react";
import { useSearchParams } from "react-router-dom";

import { useTimeline } from "../api/queries";
import type { Timeline } from "../api/types";
import { Empty, Failure, Loading } from "../elements/States";
import { zone } from "../format/times";
import { useWidth } from "../line/useWidth";
import { EventsOfTime } from "./EventsOfTime";
import { LagPlot } from "./LagPlot";
import { Marks } from "./Marks";

const SPANS = [
  ["1 h", 3_600],
  ["6 h", 21_600],
  ["24 h", 86_400],
  ["7 d", 604_800],
  ["30 d", 2_592_000],
] as const;

/** Lag, checkpoint, runs and actions over time. */
export function TimelineView({ pipeline }: { readonly pipeline: string }) {
  const [params, setParams] = useSearchParams();
  const span = SPANS.find(([label]) => label === params.get("span")) ?? SPANS[2];
  const start = useMemo(
    () => new Date(Math.floor(Date.now() / 60_000) * 60_000 - span[1] * 1000).toISOString(),
    [span],
  );
  const { data, error, isPending, refetch } = useTimeline(pipeline, start, undefined);
  return (
    <Box>
      <HStack aria-label="Span of time" gap={2} mb={3} role="group">
        {SPANS.map(([label]) => (
          <Button
            aria-pressed={label === span[0]}
            key={label}
            onClick={() => setParams({ span: label }, { replace: true })}
            size="xs"
            variant={label === span[0] ? "solid" : "outline"}
          >
            {label}
          </Button>
        ))}
        <Text color="fg.muted" fontSize="sm">
          {zone()}
        </Text>
      </HStack>
      {error === null ? null : (
        <Failure error={error} onRetry={() => void refetch()} what="The timeline could not be read" />
      )}
      {isPending ? <Loading what="the timeline" /> : null}
      {data === undefined ? null : <Pictures key={span[0]} timeline={data} />}
    </Box>
  );
}

function Pictures({ timeline }: { readonly timeline: Timeline }) {
  const [frame, width] = useWidth<HTMLDivElement>();
  const [from, to] = [Date.parse(timeline.start) / 1000, Date.parse(timeline.end) / 1000];
  const [begin] = useState({ from, to });
  const [shown, setShown] = useState({ from, to });
  const onScale = useCallback((low: number, high: number) => {
    setShown((old) => (old.from === low && old.to === high ? old : { from: low, to: high }));
  }, []);
  if (timeline.history.length === 0 && timeline.runs.length === 0) {
    return <Empty title="Nothing happened in this span">Choose a longer one.</Empty>;
  }
  return (
    <Box ref={frame}>
      <LagPlot from={begin.from} history={timeline.history} onScale={onScale} to={begin.to} width={width} />
      <Marks from={shown.from} timeline={timeline} to={shown.to} width={width} />
      <EventsOfTime timeline={timeline} />
    </Box>
  );
}
