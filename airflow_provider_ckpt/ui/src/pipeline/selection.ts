/** Batches that a user has selected for an action. */
export interface Selection {
  readonly batches: ReadonlySet<string>;
  /** Add names to the selection, or take them from it if all are in it already; without `add`, select only these. */
  readonly select: (names: readonly string[], add: boolean) => void;
  readonly clear: () => void;
}
