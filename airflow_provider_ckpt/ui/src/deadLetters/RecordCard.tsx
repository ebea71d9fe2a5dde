import { Badge, Box, chakra, Flex, HStack, SegmentGroup, Text } from "@chakra-ui/react";
import { useMemo, useState } from "react";

import type { Bytes, DeadLetterRecord } from "../api/types";
import { UserText } from "../elements/UserText";
import { asHex, asText, decode, indented } from "../format/content";
import { bytes, count, position } from "../format/numbers";
import { visible } from "../format/text";
import { moment } from "../format/times";
import { DEAD_LETTER_STATE } from "./deadLetterState";

/** One dead letter: where it is from, why it was rejected, and its bytes. */
export function RecordCard({ record }: { readonly record: DeadLetterRecord }) {
  const origin = Object.entries(record.origin).map(([name, value]) => `${name} ${value}`);
  return (
    <Box as="article" bg="bg" borderColor="border" borderRadius="md" borderWidth="1px" data-testid="ckpt-record" p={3}>
      <Flex columnGap={3} fontSize="sm" rowGap={1} wrap="wrap">
        <Text as="span" fontWeight="semibold">
          position {position(BigInt(record.position))}
        </Text>
        <UserText>{record.batch}</UserText>
        <Badge colorPalette={DEAD_LETTER_STATE[record.state].palette}>{DEAD_LETTER_STATE[record.state].label}</Badge>
        <Text as="span" color="fg.muted">
          {moment(record.at)}
        </Text>
        <UserText color="fg.muted">{origin.join(", ")}</UserText>
      </Flex>
      <Text fontSize="sm" my={2}>
        <b>
          {record.error.type}
          {record.error.sqlstate === null ? "" : ` ${record.error.sqlstate}`}
        </b>{" "}
        <UserText fontFamily="mono" whiteSpace="pre-wrap">
          {record.error.message}
        </UserText>
      </Text>
      {record.key === null ? null : <Content bytes={record.key} name="key" />}
      {record.value === null ? <Text fontSize="sm">no value</Text> : <Content bytes={record.value} name="value" />}
      {record.headers.length === 0 ? null : (
        <Box as="details" fontSize="sm" mt={2}>
          <Box as="summary" color="fg.muted" cursor="pointer">
            {count(record.headers.length)} headers
          </Box>
          {record.headers.map((header, index) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: names of headers may repeat
            <HStack align="flex-start" key={index}>
              <UserText fontWeight="semibold">{header.name}</UserText>
              <UserText fontFamily="mono">{header.value === null ? "–" : asText(decode(header.value.base64))}</UserText>
            </HStack>
          ))}
        </Box>
      )}
    </Box>
  );
}

const FORMS = ["text", "hex", "JSON"] as const;
type Form = (typeof FORMS)[number];

/** Bytes as text, hex or JSON; first in the form that suits them. */
function Content({ bytes: found, name }: { readonly bytes: Bytes; readonly name: string }) {
  const [form, setForm] = useState<Form>(found.kind === "json" ? "JSON" : found.kind === "text" ? "text" : "hex");
  const shown = useMemo(() => written(found, form), [found, form]);
  return (
    <Box mt={2}>
      <HStack gap={3}>
        <Text color="fg.muted" fontSize="xs">
          {name}, {bytes(found.size)}
        </Text>
        <SegmentGroup.Root
          aria-label={`Form of the ${name}`}
          onValueChange={({ value }) => setForm((value ?? "text") as Form)}
          size="xs"
          value={form}
        >
          <SegmentGroup.Indicator />
          <SegmentGroup.Items items={[...FORMS]} />
        </SegmentGroup.Root>
      </HStack>
      <chakra.pre
        bg="bg.muted"
        borderRadius="sm"
        dir="ltr"
        fontFamily="mono"
        fontSize="xs"
        maxH="20rem"
        mt={1}
        overflow="auto"
        p={2}
        tabIndex={0}
        unicodeBidi="isolate"
        whiteSpace={form === "hex" ? "pre" : "pre-wrap"}
        wordBreak={form === "hex" ? "normal" : "break-all"}
      >
        {shown}
      </chakra.pre>
      {found.truncated ? (
        <Text color="fg.muted" fontSize="xs">
          Only the beginning of {bytes(found.size)} is shown; export has all.
        </Text>
      ) : null}
    </Box>
  );
}

function written(found: Bytes, form: Form): string {
  const content = decode(found.base64);
  if (form === "hex") {
    return asHex(content);
  }
  const text = visible(asText(content));
  return form === "JSON" ? indented(text) : text;
}
