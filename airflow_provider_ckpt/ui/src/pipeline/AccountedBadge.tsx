import { Box, HStack, Text } from "@chakra-ui/react";

import { useAccounted } from "../api/queries";
import type { Accounted } from "../api/types";
import { Icon } from "../elements/Icon";
import { Moment } from "../elements/Time";
import { UserText } from "../elements/UserText";
import { many, range } from "../format/numbers";

/** Whether anything was lost or doubled, as far as the ledger tells: the result of its newest audit, with its time. */
export function AccountedBadge({ pipeline }: { readonly pipeline: string }) {
  const { data, error } = useAccounted(pipeline);
  if (data === undefined) {
    return (
      <Text color="fg.muted" fontSize="sm">
        {error === null ? "auditing …" : `not audited: ${error.message}`}
      </Text>
    );
  }
  return (
    <Box data-ok={data.ok} data-testid="ckpt-accounted" fontSize="sm">
      <HStack color={data.ok ? "green.fg" : "red.fg"} fontWeight="semibold" gap={1.5}>
        <Icon name={data.ok ? "check" : "warning"} />
        <span>
          {data.ok ? "every position accounted for" : failing(data)}, <Moment at={data.checked_at} />
        </span>
      </HStack>
      {data.ok ? null : <Findings found={data} />}
    </Box>
  );
}

function failing(found: Accounted): string {
  const parts = [
    ...(found.gaps.length > 0 ? [many(found.gaps.length, "gap")] : []),
    ...(found.violations.length > 0 ? [many(found.violations.length, "violated invariant")] : []),
  ];
  return parts.join(", ");
}

function Findings({ found }: { readonly found: Accounted }) {
  return (
    <Box as="ul" color="red.fg" listStyleType="disc" ps={5}>
      {found.gaps.slice(0, 5).map((gap) => (
        <li key={`${gap.partition} ${gap.start}`}>
          <UserText>{`${gap.partition} ${range(BigInt(gap.start), BigInt(gap.end))}: nothing accounts for it`}</UserText>
        </li>
      ))}
      {found.violations.slice(0, 5).map((violation) => (
        <li key={`${violation.name} ${violation.partition} ${violation.position}`}>
          <UserText>{`${violation.name}: ${violation.message}`}</UserText>
        </li>
      ))}
      <li>
        Run `airflow ckpt audit` for the whole list. After Recover, the next run reads the records that were never read.
      </li>
    </Box>
  );
}
