import { chakra, HStack } from "@chakra-ui/react";
import { NavLink } from "react-router-dom";

import type { PipelineDetail } from "../api/types";
import { pipelinePath, useRoot, type ViewName } from "../app/paths";
import { count } from "../format/numbers";

const Tab = chakra(NavLink, {
  base: {
    borderBottomWidth: "2px",
    borderColor: "transparent",
    color: "fg.muted",
    fontSize: "sm",
    fontWeight: "medium",
    px: 3,
    py: 2,
    _hover: { color: "fg" },
    "&[aria-current=page]": { borderColor: "brand.solid", color: "fg" },
  },
});

const LABELS: Readonly<Record<ViewName, string>> = {
  line: "Line",
  timeline: "Timeline",
  batches: "Batches",
  "dead-letters": "Dead letters",
  events: "Events",
  declaration: "Declaration",
};

/** The views of a pipeline, as links. */
export function ViewTabs({ detail }: { readonly detail: PipelineDetail; readonly view: ViewName }) {
  const root = useRoot();
  const counts: Partial<Record<ViewName, number>> = {
    batches: detail.planned + detail.in_flight + detail.held,
    "dead-letters": detail.dead_letters,
  };
  return (
    <HStack
      as="nav"
      aria-label="Views of the pipeline"
      borderBottomWidth="1px"
      borderColor="border"
      gap={0}
      wrap="wrap"
    >
      {Object.entries(LABELS).map(([view, label]) => {
        const number = counts[view as ViewName];
        return (
          <Tab key={view} to={pipelinePath(root, detail.name, view as ViewName)}>
            {label}
            {number === undefined ? "" : ` (${count(number)})`}
          </Tab>
        );
      })}
    </HStack>
  );
}
