import { Heading, HStack, Text } from "@chakra-ui/react";

import { databasePath, useRoot } from "../app/paths";
import { visible } from "../format/text";
import { TextLink } from "./TextLink";

/** Where the user is: the list, the database if the pipeline belongs to one, and what is shown. */
export function Trail({ name, database = null }: { readonly name: string; readonly database?: string | null }) {
  const root = useRoot();
  return (
    <HStack as="nav" aria-label="Where you are" fontSize="xl" gap={2}>
      <TextLink to={root}>Replication</TextLink>
      <Separator />
      {database === null ? null : (
        <>
          <TextLink to={databasePath(root, database)}>{visible(database)}</TextLink>
          <Separator />
        </>
      )}
      <Heading as="h1" overflowWrap="anywhere" size="xl">
        {visible(name)}
      </Heading>
    </HStack>
  );
}

function Separator() {
  return (
    <Text aria-hidden="true" color="fg.muted">
      ›
    </Text>
  );
}
