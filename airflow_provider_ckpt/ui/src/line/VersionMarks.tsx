import { Box, chakra, Text } from "@chakra-ui/react";
import { type KeyboardEvent, useId, useRef, useState } from "react";

import { UserText } from "../elements/UserText";
import { visible } from "../format/text";
import { paint } from "./fates";
import type { LineModel } from "./model";
import { useWidth } from "./useWidth";
import { factsOf, titleOf, type VersionMark, versionMarks } from "./versions";
import { scale, type View } from "./view";

const HEIGHT = 16;
const CARD = 340;

interface VersionMarksProps {
  readonly model: LineModel;
  readonly view: View;
}

/**
 * The versions of the source's columns, each a mark above its position. The card of a mark is shown while it has the
 * pointer or the focus. One tab stop leads to all marks, arrow keys walk them.
 */
export function VersionMarks({ model, view }: VersionMarksProps) {
  return model.versions.length === 0 ? null : <Strip model={model} view={view} />;
}

function Strip({ model, view }: VersionMarksProps) {
  const { line } = model;
  const id = useId();
  const [frame, width] = useWidth<HTMLDivElement>();
  const buttons = useRef<(HTMLButtonElement | null)[]>([]);
  const [stop, setStop] = useState(0);
  const [shown, setShown] = useState<number>();
  const marks = width > 0 ? versionMarks(line.schema_versions, model.versions.map(scale(view, width)), width) : [];
  const last = marks.length - 1;
  const current = shown === undefined ? undefined : marks[shown];
  const onKeyDown = (event: KeyboardEvent<HTMLElement>) => {
    const next = nextMark(event.key, Math.min(stop, last), last);
    if (event.key === "Escape") {
      setShown(undefined);
    } else if (next !== undefined) {
      event.preventDefault();
      buttons.current[next]?.focus();
    }
  };
  return (
    <Box onPointerLeave={() => setShown(undefined)} position="relative">
      <chakra.div
        aria-label={`Schema versions of partition ${visible(line.partition)}`}
        height={`${HEIGHT}px`}
        mt={1}
        onKeyDown={onKeyDown}
        position="relative"
        ref={frame}
        role="group"
      >
        {marks.map((mark, index) => (
          <chakra.button
            _focusVisible={{ outline: "2px solid", outlineColor: "brand.focusRing" }}
            aria-describedby={mark.versions.map((version) => `${id}-${version.version}`).join(" ")}
            aria-label={visible(mark.versions.map((version) => titleOf(version, line.generation)).join(", "))}
            data-testid="ckpt-schema-version"
            height={`${HEIGHT}px`}
            key={mark.versions[0]?.version}
            left={`${mark.x - HEIGHT / 2}px`}
            onBlur={() => setShown(undefined)}
            onFocus={() => {
              setStop(index);
              setShown(index);
            }}
            onPointerEnter={() => setShown(index)}
            position="absolute"
            ref={(element: HTMLButtonElement | null) => {
              buttons.current[index] = element;
            }}
            tabIndex={index === Math.min(stop, last) ? 0 : -1}
            type="button"
            width={`${HEIGHT}px`}
          >
            <Diamond isSeveral={mark.versions.length > 1} />
          </chakra.button>
        ))}
      </chakra.div>
      {current === undefined ? null : <Card generation={line.generation} mark={current} width={width} />}
      <chakra.ol aria-label={`Schema versions of partition ${visible(line.partition)} in view`} srOnly>
        {marks.flatMap((mark) =>
          mark.versions.map((version) => (
            <li id={`${id}-${version.version}`} key={version.version}>
              {visible([`${titleOf(version, line.generation)}.`, ...factsOf(version)].join(" "))}
            </li>
          )),
        )}
      </chakra.ol>
      {line.schema_versions_left_out ? (
        <Text color="fg.muted" fontSize="xs">
          Schema versions at smaller positions are left out; zoom in to see them.
        </Text>
      ) : null}
    </Box>
  );
}

/** The mark to which a key leads; undefined for any other key. */
function nextMark(key: string, from: number, last: number): number | undefined {
  switch (key) {
    case "ArrowRight":
      return Math.min(from + 1, last);
    case "ArrowLeft":
      return Math.max(from - 1, 0);
    case "Home":
      return 0;
    case "End":
      return last;
    default:
      return undefined;
  }
}

/** The sign of a schema version; with a second outline if it stands for several. */
function Diamond({ isSeveral = false }: { readonly isSeveral?: boolean }) {
  const middle = HEIGHT / 2;
  return (
    <svg aria-hidden="true" height={HEIGHT} style={{ display: "block" }} width={HEIGHT}>
      {isSeveral ? (
        <path d={`M${middle} 0l${middle} ${middle}l-${middle} ${middle}l-${middle} -${middle}z`} {...OUTLINE} />
      ) : null}
      <path d={`M${middle} 3l5 5l-5 5l-5 -5z`} fill={paint("purple.solid")} />
    </svg>
  );
}

const OUTLINE = { fill: "none", stroke: paint("purple.solid"), strokeWidth: 1 };

interface CardProps {
  readonly mark: VersionMark;
  readonly generation: number;
  readonly width: number;
}

/** What is known of the versions of a mark. The list for screen readers has the same text. */
function Card({ mark, generation, width }: CardProps) {
  return (
    <Box
      aria-hidden="true"
      bg="bg.panel"
      borderColor="border.emphasized"
      borderRadius="sm"
      borderWidth="1px"
      data-testid="ckpt-schema-card"
      fontSize="xs"
      left={`${Math.max(0, Math.min(mark.x - CARD / 2, width - CARD))}px`}
      maxHeight="16rem"
      overflowY="auto"
      p={2}
      position="absolute"
      shadow="md"
      top={`${HEIGHT + 4}px`}
      width={`${Math.min(CARD, width)}px`}
      zIndex="popover"
    >
      {mark.versions.map((version) => (
        <Box key={version.version} mb={1}>
          <Text fontWeight="semibold">{titleOf(version, generation)}</Text>
          {factsOf(version).map((fact) => (
            <UserText display="block" key={fact}>
              {fact}
            </UserText>
          ))}
        </Box>
      ))}
    </Box>
  );
}
