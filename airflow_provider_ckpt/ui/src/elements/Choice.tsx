import { Button } from "@chakra-ui/react";
import type { ReactNode } from "react";

interface ChoiceProps {
  readonly isOn: boolean;
  readonly onChoose: () => void;
  readonly children: ReactNode;
}

/** One of several buttons above a list, which restricts it while it is on. */
export function Choice({ isOn, onChoose, children }: ChoiceProps) {
  return (
    <Button aria-pressed={isOn} borderRadius="full" onClick={onChoose} size="xs" variant={isOn ? "solid" : "outline"}>
      {children}
    </Button>
  );
}
