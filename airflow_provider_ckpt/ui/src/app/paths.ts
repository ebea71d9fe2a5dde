/** Addresses: of the pages of this app below the place that Airflow gives it, and of Airflow's own pages. */

import { useLocation } from "react-router-dom";

import type { Health, RunLink } from "../api/types";

export const VIEWS = ["line", "timeline", "batches", "dead-letters", "events", "declaration"] as const;
export type ViewName = (typeof VIEWS)[number];

/** The path at which Airflow has put this app: in its navigation, or in a tab of a DAG, run or task instance. */
export function rootOf(pathname: string): string {
  return /^.*?\/plugin\/[^/]+/.exec(pathname)?.[0] ?? pathname;
}

export function useRoot(): string {
  return rootOf(useLocation().pathname);
}

export function pipelinePath(
  root: string,
  pipeline: string,
  view: ViewName = "line",
  search?: Record<string, string>,
): string {
  const query = search === undefined ? "" : `?${new URLSearchParams(search)}`;
  return `${root}/pipelines/${encodeURIComponent(pipeline)}/${view}${query}`;
}

/** The list of a database's tables, of all or of those with one health. */
export function databasePath(root: string, database: string, health?: Health): string {
  return `${root}/databases/${encodeURIComponent(database)}${health === undefined ? "" : `?health=${health}`}`;
}

export function dagPath(dagId: string): string {
  return `/dags/${encodeURIComponent(dagId)}`;
}

export function runPath(run: Pick<RunLink, "dag_id" | "run_id">): string {
  return `${dagPath(run.dag_id)}/runs/${encodeURIComponent(run.run_id)}`;
}

/** The page of a task instance, which shows its log; of a group if the run is known to be one. */
export function taskPath(run: RunLink, isGroup: boolean): string {
  const task = encodeURIComponent(run.task_id);
  if (isGroup) {
    return `${runPath(run)}/tasks/group/${task}`;
  }
  return `${runPath(run)}/tasks/${task}${run.map_index < 0 ? "" : `/mapped/${run.map_index}`}`;
}
