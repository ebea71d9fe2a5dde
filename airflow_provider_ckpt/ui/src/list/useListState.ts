import { useMemo } from "react";
import { useParams, useSearchParams } from "react-router-dom";

import type { ListFilter } from "../api/queries";
import type { Health } from "../api/types";
import { HEALTHS } from "../elements/HealthMark";

export interface ListState {
  readonly filter: ListFilter;
  readonly setSearch: (text: string) => void;
  readonly setNeedsMe: (needsMe: boolean) => void;
  readonly toggleHealth: (health: Health) => void;
}

/** What the list is restricted to. It is in the address, so that a link shows the same. */
export function useListState(dagId: string | undefined, taskId: string | undefined): ListState {
  const { database } = useParams();
  const [params, setParams] = useSearchParams();
  const search = params.get("search") ?? "";
  const needsMe = params.get("needs") === "me";
  const chosen = params.getAll("health").join(" ");
  const filter = useMemo<ListFilter>(
    () => ({
      search,
      needsMe,
      health: HEALTHS.filter((health) => chosen.split(" ").includes(health)),
      database,
      dagId,
      taskId,
    }),
    [search, needsMe, chosen, database, dagId, taskId],
  );
  const change = (edit: (params: URLSearchParams) => void) =>
    setParams(
      (old) => {
        const next = new URLSearchParams(old);
        edit(next);
        return next;
      },
      { replace: true },
    );
  return {
    filter,
    setSearch: (text) => change((next) => (text === "" ? next.delete("search") : next.set("search", text))),
    setNeedsMe: (wanted) => change((next) => (wanted ? next.set("needs", "me") : next.delete("needs"))),
    toggleHealth: (health) =>
      change((next) => {
        const others = filter.health.filter((one) => one !== health);
        const all = others.length === filter.health.length ? [...others, health] : others;
        next.delete("health");
        for (const one of all) {
          next.append("health", one);
        }
      }),
  };
}
