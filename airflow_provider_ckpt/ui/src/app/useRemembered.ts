import { useCallback, useState } from "react";

/** Under it, the name of the pipeline that the user has just deleted, which the list mentions. */
export const DELETED = "deleted pipeline";

const remembered = new Map<string, unknown>();

/** State that outlives its component: Airflow mounts the whole app anew whenever its address changes. */
export function useRemembered<T>(key: string): readonly [T | undefined, (value: T | undefined) => void] {
  const [value, setValue] = useState(() => remembered.get(key) as T | undefined);
  const remember = useCallback(
    (next: T | undefined) => {
      remembered.set(key, next);
      setValue(next);
    },
    [key],
  );
  return [value, remember];
}
