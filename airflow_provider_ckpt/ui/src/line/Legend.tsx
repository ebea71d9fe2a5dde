import { HStack, Text } from "@chakra-ui/react";
import { useId } from "react";

import { FATES, LOOKS, paint } from "./fates";
import { Patterns, patternId } from "./Patterns";

const SIZE = 16;

/** What the patterns and signs of number lines mean. */
export function Legend() {
  const id = useId();
  return (
    <HStack aria-label="Legend" color="fg.muted" fontSize="xs" gap={4} role="group" rowGap={1} wrap="wrap">
      <svg aria-hidden="true" height={0} style={{ position: "absolute" }} width={0}>
        <Patterns id={id} />
      </svg>
      {FATES.toReversed().map((fate) => (
        <Entry key={fate} text={LOOKS[fate].label}>
          <rect fill={`url(#${patternId(id, fate)})`} height={SIZE} width={SIZE} />
        </Entry>
      ))}
      <Entry text="gap: nothing accounts for it">
        <rect
          fill={paint("red.subtle")}
          height={SIZE - 2}
          stroke={paint("red.solid")}
          strokeDasharray="3 2"
          strokeWidth={2}
          width={SIZE - 2}
          x={1}
          y={1}
        />
      </Entry>
      <Entry text="dead letters">
        <path d="M4 4l8 8M12 4l-8 8" stroke={paint("red.fg")} strokeWidth={2} />
      </Entry>
      <Entry text="schema version">
        <path d="M8 3l5 5l-5 5l-5 -5z" fill={paint("purple.solid")} />
      </Entry>
    </HStack>
  );
}

function Entry({ text, children }: { readonly text: string; readonly children: React.ReactNode }) {
  return (
    <HStack gap={1.5}>
      <svg aria-hidden="true" height={SIZE} width={SIZE}>
        {children}
      </svg>
      <Text as="span">{text}</Text>
    </HStack>
  );
}
