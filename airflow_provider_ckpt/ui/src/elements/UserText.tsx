import { chakra, type HTMLChakraProps } from "@chakra-ui/react";

import { visible } from "../format/text";

interface UserTextProps extends Omit<HTMLChakraProps<"span">, "children"> {
  readonly children: string;
}

/** Text that others wrote. It never runs out of its place, nor changes the direction of what stands beside it. */
export function UserText({ children, ...more }: UserTextProps) {
  return (
    <chakra.span overflowWrap="anywhere" unicodeBidi="isolate" {...more}>
      {visible(children)}
    </chakra.span>
  );
}
