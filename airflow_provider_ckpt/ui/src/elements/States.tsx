import { Box, Button, Flex, Heading, Skeleton, Stack, Text } from "@chakra-ui/react";
import type { ReactNode } from "react";

import { ApiError } from "../api/client";
import { Icon } from "./Icon";
import { UserText } from "./UserText";

/** What is shown while the first answer is awaited: shapes of what will come. */
export function Loading({ what, rows = 4 }: { readonly what: string; readonly rows?: number }) {
  return (
    <Stack aria-busy="true" aria-label={`Loading ${what}`} gap={3} role="status">
      {Array.from({ length: rows }, (_, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the rows are alike
        <Skeleton height="2rem" key={index} />
      ))}
    </Stack>
  );
}

/** Nothing is there, and what to do so that something is. */
export function Empty({ title, children }: { readonly title: string; readonly children?: ReactNode }) {
  return (
    <Box borderColor="border" borderRadius="md" borderStyle="dashed" borderWidth="1px" p={8} textAlign="center">
      <Heading as="h3" size="sm">
        {title}
      </Heading>
      <Box color="fg.muted" fontSize="sm" mt={1}>
        {children}
      </Box>
    </Box>
  );
}

interface FailureProps {
  readonly error: Error;
  readonly what: string;
  readonly onRetry?: () => void;
}

/** Why something could not be read or done, and what to do about it. */
export function Failure({ error, what, onRetry }: FailureProps) {
  const problem = error instanceof ApiError ? error : undefined;
  return (
    <Flex
      align="flex-start"
      bg="red.subtle"
      borderColor="red.emphasized"
      borderRadius="md"
      borderWidth="1px"
      color="red.fg"
      gap={3}
      p={3}
      role="alert"
    >
      <Icon name="warning" />
      <Box flex="1" fontSize="sm">
        <Text fontWeight="semibold">
          {what}
          {problem === undefined || problem.title === "" ? "" : `: ${problem.title}`}
        </Text>
        <UserText whiteSpace="pre-wrap">{error.message}</UserText>
        <Text>{problem?.hint ?? advice(problem?.status)}</Text>
      </Box>
      {onRetry === undefined ? null : (
        <Button colorPalette="red" onClick={onRetry} size="xs" variant="outline">
          Try again
        </Button>
      )}
    </Flex>
  );
}

function advice(status: number | undefined): string {
  switch (status) {
    case 403:
      return "Ask an administrator of Airflow for the right to the DAGs that run this pipeline.";
    case 404:
      return "It may have been removed, or you may not see it.";
    case 503:
      return "The ledger does not answer. Check its database and [ckpt] sql_alchemy_conn.";
    default:
      return "";
  }
}
