/** Airflow's own API, with the rights of the user who is logged in: triggering DAGs and following their runs. */

import { useMutation, useQuery } from "@tanstack/react-query";

import { useLive } from "../app/live";
import { ApiError, fromBase } from "./client";

const ENDED = new Set(["success", "failed"]);

async function call(path: string, init: RequestInit = {}): Promise<Readonly<Record<string, unknown>>> {
  const answer = await fetch(fromBase(`api/v2/${path}`), {
    credentials: "same-origin",
    headers: { "Content-Type": "application/json" },
    ...init,
  });
  const body: unknown = await answer.json().catch(() => ({}));
  const content = (typeof body === "object" && body !== null ? body : {}) as Readonly<Record<string, unknown>>;
  if (!answer.ok) {
    const { detail } = content;
    throw new ApiError(answer.status, answer.statusText, typeof detail === "string" ? detail : JSON.stringify(detail));
  }
  return content;
}

export interface TriggeredRun {
  readonly dagId: string;
  readonly runId: string;
}

/** Triggers a DAG; its result is the run. */
export function useTrigger() {
  return useMutation({
    mutationFn: async (order: { readonly dagId: string; readonly conf: Readonly<Record<string, unknown>> }) => {
      const body = JSON.stringify({ logical_date: null, conf: order.conf });
      const run = await call(`dags/${encodeURIComponent(order.dagId)}/dagRuns`, { method: "POST", body });
      return { dagId: order.dagId, runId: String(run.dag_run_id) } satisfies TriggeredRun;
    },
  });
}

/** The state of a DAG run, until it has ended. */
export function useRunState(run: TriggeredRun) {
  const { interval } = useLive();
  return useQuery({
    queryKey: ["airflow", "run", run.dagId, run.runId],
    queryFn: async ({ signal }) => {
      const path = `dags/${encodeURIComponent(run.dagId)}/dagRuns/${encodeURIComponent(run.runId)}`;
      return String((await call(path, { signal })).state);
    },
    refetchInterval: (query) => (ENDED.has(query.state.data ?? "") ? false : interval(2_000)),
  });
}
