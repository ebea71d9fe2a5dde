import { HStack, Text } from "@chakra-ui/react";

import type { Health } from "../api/types";
import { Icon } from "./Icon";

export const HEALTH: Readonly<Record<Health, { readonly label: string; readonly palette: string }>> = {
  blocked: { label: "blocked", palette: "red" },
  lag_growing: { label: "lag growing", palette: "orange" },
  dead_letters: { label: "dead letters", palette: "yellow" },
  draining: { label: "draining", palette: "purple" },
  stopped: { label: "stopped", palette: "gray" },
  well: { label: "well", palette: "green" },
};

export const HEALTHS = Object.keys(HEALTH) as readonly Health[];

/** The health of a pipeline: a sign of its own shape, and the word. */
export function HealthMark({ health, size = "sm" }: { readonly health: Health; readonly size?: "sm" | "md" }) {
  const { label, palette } = HEALTH[health];
  return (
    <HStack color={`${palette}.fg`} display="inline-flex" flexShrink={0} gap={1.5} whiteSpace="nowrap">
      <Icon name={health} />
      <Text as="span" fontSize={size} fontWeight="semibold">
        {label}
      </Text>
    </HStack>
  );
}
