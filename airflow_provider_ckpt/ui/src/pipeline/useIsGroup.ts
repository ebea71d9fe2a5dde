import { useQuery } from "@tanstack/react-query";

import { fromBase } from "../api/client";
import type { RunLink } from "../api/types";

/**
 * Whether the task of a lease is a task group, whose tasks share the lease: then Airflow has no task of that name. While
 * this is not known, it is taken for a task.
 */
export function useIsGroup(run: RunLink | null): boolean {
  const { data } = useQuery({
    queryKey: ["airflow", "task", run?.dag_id, run?.task_id],
    queryFn: async ({ signal }) => {
      const path = `api/v2/dags/${encodeURIComponent(run?.dag_id ?? "")}/tasks/${encodeURIComponent(run?.task_id ?? "")}`;
      const answer = await fetch(fromBase(path), { credentials: "same-origin", signal });
      return answer.status === 404;
    },
    enabled: run !== null,
    staleTime: Number.POSITIVE_INFINITY,
  });
  return data ?? false;
}
