import { Box, Stack, Table, Text } from "@chakra-ui/react";

import type { PartitionLine, Preview } from "../api/types";
import { UserText } from "../elements/UserText";
import { difference } from "../line/difference";
import { Legend } from "../line/Legend";
import { LinePicture } from "../line/LinePicture";
import { BrokenLease } from "./BrokenLease";

/** What an action would change: in one sentence, as values, and as number lines before and after. */
export function PreviewPicture({ preview }: { readonly preview: Preview }) {
  const names = [...new Set([...preview.before, ...preview.after].map((line) => line.partition))];
  return (
    <Stack data-testid="ckpt-preview" gap={3}>
      <UserText fontWeight="semibold">{preview.summary}</UserText>
      {preview.broken === null ? null : <BrokenLease lease={preview.broken} />}
      {preview.remark === null ? null : (
        <UserText color="fg.muted" fontSize="sm">
          {preview.remark}
        </UserText>
      )}
      {preview.changes.length === 0 ? null : <Changes preview={preview} />}
      {names.map((name) => (
        <BeforeAfter
          after={preview.after.find((line) => line.partition === name)}
          before={preview.before.find((line) => line.partition === name)}
          key={name}
          name={name}
        />
      ))}
      {names.length === 0 ? null : <Legend />}
    </Stack>
  );
}

function Changes({ preview }: { readonly preview: Preview }) {
  return (
    <Table.ScrollArea whiteSpace="normal" maxHeight="14rem">
      <Table.Root size="sm">
        <Table.Header>
          <Table.Row>
            <Table.ColumnHeader>What changes</Table.ColumnHeader>
            <Table.ColumnHeader>Before</Table.ColumnHeader>
            <Table.ColumnHeader>After</Table.ColumnHeader>
          </Table.Row>
        </Table.Header>
        <Table.Body>
          {preview.changes.map((change) => (
            <Table.Row data-testid="ckpt-change" key={change.what}>
              <Table.Cell>
                <UserText>{change.what}</UserText>
              </Table.Cell>
              <Table.Cell>
                <UserText>{change.before}</UserText>
              </Table.Cell>
              <Table.Cell fontWeight="semibold">
                <UserText>{change.after}</UserText>
              </Table.Cell>
            </Table.Row>
          ))}
        </Table.Body>
      </Table.Root>
    </Table.ScrollArea>
  );
}

interface BeforeAfterProps {
  readonly name: string;
  readonly before: PartitionLine | undefined;
  readonly after: PartitionLine | undefined;
}

function BeforeAfter({ name, before, after }: BeforeAfterProps) {
  const found = difference(before, after);
  return (
    <Box borderColor="border" borderRadius="md" borderWidth="1px" p={3}>
      <UserText fontSize="sm" fontWeight="semibold">
        {name}
      </UserText>
      {found.before === undefined ? null : (
        <>
          <Text color="fg.muted" fontSize="xs">
            before
          </Text>
          <LinePicture label={`${name} before`} model={found.before} outlined={found.left} />
        </>
      )}
      {found.after === undefined ? null : (
        <>
          <Text color="fg.muted" fontSize="xs" mt={2}>
            {found.before === undefined ? "after: a new partition" : "after"}
          </Text>
          <LinePicture label={`${name} after`} model={found.after} outlined={found.gained} />
        </>
      )}
    </Box>
  );
}
