/** What the pages read, as hooks. They read again while the tab is visible, unless the user has turned that off. */

import { keepPreviousData, useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";

import { CARRY_OUT, useLive } from "../app/live";
import { ApiError, client, contentOf } from "./client";
import type { ActionWish, DeadLetterFilter, Health } from "./types";

/** Time between two reads in milliseconds; the audit, which reads more, rests longer. */
export const REFRESH = 5_000;
const REFRESH_AUDIT = 60_000;

export function shouldRetry(failures: number, error: Error): boolean {
  const isTemporary = !(error instanceof ApiError) || error.status === 0 || error.status >= 500;
  return isTemporary && failures < 2;
}

export interface ListFilter {
  readonly search: string;
  readonly needsMe: boolean;
  readonly health: readonly Health[];
  readonly database: string | undefined;
  readonly dagId: string | undefined;
  readonly taskId: string | undefined;
}

export function usePipelines(filter: ListFilter) {
  const { interval } = useLive();
  return useInfiniteQuery({
    queryKey: ["pipelines", filter],
    queryFn: ({ pageParam, signal }) =>
      contentOf(
        client.GET("/api/pipelines", {
          params: {
            query: {
              limit: 50,
              ...(filter.search === "" ? {} : { search: filter.search }),
              ...(filter.needsMe ? { needs_me: true } : {}),
              ...(filter.health.length > 0 ? { health: [...filter.health] } : {}),
              ...(filter.database === undefined ? {} : { database: filter.database }),
              ...(filter.dagId === undefined ? {} : { dag_id: filter.dagId }),
              ...(filter.taskId === undefined ? {} : { task_id: filter.taskId }),
              ...cursor(pageParam),
            },
          },
          signal,
        }),
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next,
    placeholderData: keepPreviousData,
    refetchInterval: interval(REFRESH),
  });
}

export function usePipeline(pipeline: string) {
  const { interval } = useLive();
  return useQuery({
    queryKey: ["pipeline", pipeline],
    queryFn: ({ signal }) =>
      contentOf(client.GET("/api/pipelines/{pipeline}", { params: { path: { pipeline } }, signal })),
    refetchInterval: interval(REFRESH),
  });
}

export function useAccounted(pipeline: string) {
  const { interval } = useLive();
  return useQuery({
    queryKey: ["pipeline", pipeline, "accounted"],
    queryFn: ({ signal }) =>
      contentOf(client.GET("/api/pipelines/{pipeline}/accounted", { params: { path: { pipeline } }, signal })),
    staleTime: REFRESH_AUDIT,
    refetchInterval: interval(REFRESH_AUDIT),
  });
}

/** Number lines of all partitions, each in its whole window. */
export function useLines(pipeline: string, buckets: number) {
  const { interval } = useLive();
  return useInfiniteQuery({
    queryKey: ["pipeline", pipeline, "line", buckets],
    queryFn: ({ pageParam, signal }) =>
      contentOf(
        client.GET("/api/pipelines/{pipeline}/line", {
          params: { path: { pipeline }, query: { buckets, ...cursor(pageParam) } },
          signal,
        }),
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next,
    placeholderData: keepPreviousData,
    refetchInterval: interval(REFRESH),
  });
}

export interface Window {
  readonly partition: string;
  readonly start: string;
  readonly end: string;
}

/** A part of the number line of one partition, in more detail; nothing is read without a window. */
export function useLineDetail(pipeline: string, window: Window | undefined, buckets: number) {
  const { interval } = useLive();
  return useQuery({
    queryKey: ["pipeline", pipeline, "line", window, buckets],
    queryFn: ({ signal }) =>
      contentOf(
        client.GET("/api/pipelines/{pipeline}/line", {
          params: { path: { pipeline }, query: { buckets, ...window } },
          signal,
        }),
      ),
    enabled: window !== undefined,
    placeholderData: keepPreviousData,
    refetchInterval: interval(REFRESH),
  });
}

export function useTimeline(pipeline: string, start: string, end: string | undefined) {
  const { interval } = useLive();
  return useQuery({
    queryKey: ["pipeline", pipeline, "timeline", start, end],
    queryFn: ({ signal }) =>
      contentOf(
        client.GET("/api/pipelines/{pipeline}/timeline", {
          params: { path: { pipeline }, query: { start, ...(end === undefined ? {} : { end }) } },
          signal,
        }),
      ),
    placeholderData: keepPreviousData,
    refetchInterval: interval(REFRESH),
  });
}

export interface BatchFilter {
  readonly states: readonly string[];
  readonly partition: string;
  readonly search: string;
}

export function useBatches(pipeline: string, filter: BatchFilter) {
  const { interval } = useLive();
  return useInfiniteQuery({
    queryKey: ["pipeline", pipeline, "batches", filter],
    queryFn: ({ pageParam, signal }) =>
      contentOf(
        client.GET("/api/pipelines/{pipeline}/batches", {
          params: {
            path: { pipeline },
            query: {
              limit: 100,
              ...(filter.states.length > 0 ? { state: [...filter.states] as never } : {}),
              ...(filter.partition === "" ? {} : { partition: filter.partition }),
              ...(filter.search === "" ? {} : { search: filter.search }),
              ...cursor(pageParam),
            },
          },
          signal,
        }),
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next,
    placeholderData: keepPreviousData,
    refetchInterval: interval(REFRESH),
  });
}

export function useBatch(pipeline: string, name: string) {
  const { interval } = useLive();
  return useQuery({
    queryKey: ["pipeline", pipeline, "batch", name],
    queryFn: ({ signal }) =>
      contentOf(
        client.GET("/api/pipelines/{pipeline}/batch", { params: { path: { pipeline }, query: { name } }, signal }),
      ),
    refetchInterval: interval(REFRESH),
  });
}

export interface EventFilter {
  readonly kind: string;
  readonly actor: string;
}

export function useEvents(pipeline: string, filter: EventFilter) {
  const { interval } = useLive();
  return useInfiniteQuery({
    queryKey: ["pipeline", pipeline, "events", filter],
    queryFn: ({ pageParam, signal }) =>
      contentOf(
        client.GET("/api/pipelines/{pipeline}/events", {
          params: {
            path: { pipeline },
            query: {
              limit: 100,
              ...(filter.kind === "" ? {} : { kind: [filter.kind] }),
              ...(filter.actor === "" ? {} : { actor: filter.actor }),
              ...cursor(pageParam),
            },
          },
          signal,
        }),
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next,
    placeholderData: keepPreviousData,
    refetchInterval: interval(REFRESH),
  });
}

export function useDeclaration(pipeline: string) {
  return useQuery({
    queryKey: ["pipeline", pipeline, "declaration"],
    queryFn: ({ signal }) =>
      contentOf(client.GET("/api/pipelines/{pipeline}/declaration", { params: { path: { pipeline } }, signal })),
  });
}

export function useDeadLetterGroups(pipeline: string, states: readonly string[]) {
  const { interval } = useLive();
  return useQuery({
    queryKey: ["pipeline", pipeline, "dead-letters", "groups", states],
    queryFn: ({ signal }) =>
      contentOf(
        client.GET("/api/pipelines/{pipeline}/dead-letters/groups", {
          params: { path: { pipeline }, query: states.length > 0 ? { state: [...states] as never } : {} },
          signal,
        }),
      ),
    placeholderData: keepPreviousData,
    refetchInterval: interval(REFRESH),
  });
}

/** Dead letters with their bytes. Each look is an event of the audit log, so they are read once and not again and again. */
export function useRecords(pipeline: string, filter: DeadLetterFilter, query: string) {
  return useInfiniteQuery({
    queryKey: ["pipeline", pipeline, "dead-letters", "records", filter, query],
    queryFn: ({ pageParam, signal }) =>
      contentOf(
        client.POST("/api/pipelines/{pipeline}/dead-letters/records", {
          params: { path: { pipeline } },
          body: { filter, limit: 20, ...(query === "" ? {} : { query }), ...cursor(pageParam) },
          signal,
        }),
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next,
    refetchOnWindowFocus: false,
    refetchOnReconnect: false,
    staleTime: Number.POSITIVE_INFINITY,
  });
}

export function useProposals(pipeline: string) {
  const { interval } = useLive();
  return useQuery({
    queryKey: ["pipeline", pipeline, "proposals"],
    queryFn: ({ signal }) =>
      contentOf(client.GET("/api/pipelines/{pipeline}/proposals", { params: { path: { pipeline } }, signal })),
    refetchInterval: interval(REFRESH),
  });
}

export function usePreview(pipeline: string) {
  return useMutation({
    mutationFn: (wish: ActionWish) =>
      contentOf(
        client.POST("/api/pipelines/{pipeline}/actions/preview", { params: { path: { pipeline } }, body: wish }),
      ),
  });
}

/** Carries an action out; afterwards everything that is shown of the pipeline is read again, if it is still there. */
export function useCarryOut(pipeline: string) {
  const queries = useQueryClient();
  return useMutation({
    mutationKey: CARRY_OUT,
    mutationFn: (order: { readonly id: string; readonly reason: string | null; readonly name?: string }) =>
      contentOf(client.POST("/api/pipelines/{pipeline}/actions", { params: { path: { pipeline } }, body: order })),
    onMutate: () => queries.cancelQueries({ queryKey: ["pipeline", pipeline] }),
    onSuccess: async (outcome) => {
      if (outcome.kind === "delete_pipeline") return;
      await Promise.all([
        queries.invalidateQueries({ queryKey: ["pipelines"] }),
        queries.invalidateQueries({
          queryKey: ["pipeline", pipeline],
          predicate: (query) => query.queryKey[3] !== "records",
        }),
      ]);
    },
  });
}

function cursor(page: string | null): { cursor?: string } {
  return page === null ? {} : { cursor: page };
}
