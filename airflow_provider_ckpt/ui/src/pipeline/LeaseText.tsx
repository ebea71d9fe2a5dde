import { Text } from "@chakra-ui/react";
import { useEffect, useRef } from "react";

import type { Lease } from "../api/types";
import { RunText } from "../elements/RunText";
import { useNow } from "../elements/Time";
import { duration } from "../format/times";

/** Which run works on the pipeline now, and how long its lease lasts unless it renews it. */
export function LeaseText({ lease }: { readonly lease: Lease }) {
  const now = useNow();
  const read = useRef({ lease, at: now });
  useEffect(() => {
    read.current = { lease, at: new Date() };
  }, [lease]);
  if (!lease.held) {
    return (
      <Text color="fg.muted" fontSize="sm">
        No run holds the lease{lease.epoch > 0 ? `; the newest epoch is ${lease.epoch}` : ""}.
      </Text>
    );
  }
  const passed = read.current.lease === lease ? (now.getTime() - read.current.at.getTime()) / 1000 : 0;
  return (
    <Text color="fg.muted" fontSize="sm">
      <RunText owner={lease.owner} run={lease.run} /> holds the lease: epoch {lease.epoch},{" "}
      {duration(lease.seconds_left - passed)} left.
    </Text>
  );
}
