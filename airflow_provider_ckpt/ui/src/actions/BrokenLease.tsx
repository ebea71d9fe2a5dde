import { Text } from "@chakra-ui/react";

import type { Lease } from "../api/types";
import { RunText } from "../elements/RunText";
import { Moment, Since } from "../elements/Time";

/** Whose lease is about to be broken, and when it was last renewed: a run that works renews it every few seconds. */
export function BrokenLease({ lease }: { readonly lease: Lease }) {
  return (
    <Text data-testid="ckpt-broken-lease">
      <RunText owner={lease.owner} run={lease.run} /> {lease.held ? "holds" : "held"} the lease: epoch {lease.epoch},{" "}
      {lease.renewed_at === null ? null : (
        <>
          last renewed at <Moment at={lease.renewed_at} />, <Since at={lease.renewed_at} /> ago
        </>
      )}
      {lease.held || lease.expires_at === null ? (
        ""
      ) : (
        <>
          ; it expired at <Moment at={lease.expires_at} />
        </>
      )}
      .
    </Text>
  );
}
