import { chakra, type HTMLChakraProps } from "@chakra-ui/react";

/** Outlines in a square of 24, in the style of Airflow's own icons. */
const PATHS = {
  blocked: "M8.5 3h7L21 8.5v7L15.5 21h-7L3 15.5v-7zM8 12h8",
  lag_growing: "M3 17l6-6 4 4 8-8M15 7h6v6",
  dead_letters: "M3 6h18v12H3zM3 7l9 7 9-7M15 14l5 5M20 14l-5 5",
  draining: "M12 3v12M7 10l5 5 5-5M4 20h16",
  stopped: "M6 6h12v12H6z",
  well: "M12 3a9 9 0 100 18 9 9 0 000-18M8 12.5l2.7 2.7L16 9.5",
  warning: "M12 3L2 20h20zM12 10v4M12 17v.5",
  clock: "M12 3a9 9 0 100 18 9 9 0 000-18M12 7v5l3.5 2",
  check: "M5 13l4 4L19 7",
  cross: "M6 6l12 12M18 6L6 18",
  external: "M14 4h6v6M20 4l-9 9M18 14v6H4V6h6",
  search: "M10.5 4a6.5 6.5 0 100 13 6.5 6.5 0 000-13M15.5 15.5L21 21",
  plus: "M12 5v14M5 12h14",
  minus: "M5 12h14",
  whole: "M3 12h18M3 12l4-4M3 12l4 4M21 12l-4-4M21 12l-4 4",
  flag: "M5 21V4M5 4h12l-2 4 2 4H5",
} as const;

export type IconName = keyof typeof PATHS;

interface IconProps extends HTMLChakraProps<"svg"> {
  readonly name: IconName;
}

/** A sign beside a word; the word says the same, so screen readers pass over the sign. */
export function Icon({ name, ...more }: IconProps) {
  return (
    <chakra.svg
      aria-hidden="true"
      boxSize="1.15em"
      display="inline-block"
      fill="none"
      flexShrink={0}
      stroke="currentColor"
      strokeLinecap="round"
      strokeLinejoin="round"
      strokeWidth={2}
      verticalAlign="-0.2em"
      viewBox="0 0 24 24"
      {...more}
    >
      <path d={PATHS[name]} />
    </chakra.svg>
  );
}
