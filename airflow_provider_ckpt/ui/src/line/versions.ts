/** Versions of the source's columns on a number line: which of them share a mark, and what is said of each. */

import type { ColumnChange, SchemaVersion } from "../api/types";
import { count, many, position } from "../format/numbers";
import { moment, zone } from "../format/times";

/** Least distance of two marks in pixels; versions that are nearer to each other share one. */
export const LEAST = 14;

export interface VersionMark {
  /** Distance from the left edge, in pixels. */
  readonly x: number;
  /** Versions that begin here, by position. */
  readonly versions: readonly SchemaVersion[];
}

/**
 * The marks of the versions in view, from left to right.
 *
 * @param versions versions by position
 * @param at distance of each version from the left edge, in pixels
 * @param width width of the line, in pixels
 */
export function versionMarks(versions: readonly SchemaVersion[], at: readonly number[], width: number): VersionMark[] {
  const marks: VersionMark[] = [];
  for (const [index, version] of versions.entries()) {
    const x = at[index] ?? 0;
    if (x < -0.5 || x > width + 0.5) {
      continue;
    }
    const last = marks.at(-1);
    if (last !== undefined && x - last.x < LEAST) {
      marks[marks.length - 1] = { x: last.x, versions: [...last.versions, version] };
    } else {
      marks.push({ x, versions: [version] });
    }
  }
  return marks;
}

/** Number and position of a version, with its generation if it is not that of the line. */
export function titleOf(version: SchemaVersion, generation: number): string {
  const other = version.generation === generation ? "" : `, in generation ${version.generation}`;
  return `Schema version ${version.version} from ${position(BigInt(version.position))}${other}`;
}

/** What changed, what was decided, and who recorded the version when: one sentence each. */
export function factsOf(version: SchemaVersion): string[] {
  return [
    changesOf(version),
    ...(version.decision.length === 0 ? [] : [`Decision: ${version.decision.join("; ")}.`]),
    `Recorded by ${actorOf(version)} at ${moment(version.at)} ${zone()}.`,
  ];
}

function changesOf(version: SchemaVersion): string {
  if (version.version === 1) {
    return `First version, with ${many(version.columns, "column")}.`;
  }
  if (version.changes.length === 0) {
    return "No column of the source changed.";
  }
  const rest = version.changes_left_out === 0 ? [] : [`${count(version.changes_left_out)} more`];
  return `Changed: ${[...version.changes.map(changeOf), ...rest].join("; ")}.`;
}

function changeOf({ kind, column, before, after, new_name: newName }: ColumnChange): string {
  switch (kind) {
    case "added":
      return `column ${column} (${after}) added`;
    case "dropped":
      return `column ${column} (${before}) dropped`;
    case "retyped":
      return `column ${column} retyped from ${before} to ${after}`;
    case "renamed":
      return `column ${column} renamed to ${newName}${before === after ? "" : `, retyped from ${before} to ${after}`}`;
    case "replaced":
      return `column ${column} (${before}) replaced by another of its name (${after})`;
  }
}

function actorOf({ run, actor }: SchemaVersion): string {
  return run === null ? actor : `run ${run.run_id} of DAG ${run.dag_id}`;
}
