import { useIsMutating } from "@tanstack/react-query";
import { createContext, type ReactNode, useContext, useMemo, useState } from "react";

interface Live {
  readonly isOn: boolean;
  readonly setOn: (on: boolean) => void;
  /** The time between two reads if the page refreshes itself; false if it does not. */
  readonly interval: (milliseconds: number) => number | false;
}

const LiveContext = createContext<Live>({ isOn: false, setOn: () => undefined, interval: () => false });

/** The key of the mutation that carries an action out. */
export const CARRY_OUT = ["carry out"];

/**
 * Whether the pages below read again by themselves. In a hidden tab nothing is read, whatever is chosen here, nor while
 * an action is carried out: it may delete what would be read.
 */
export function LiveRefresh({ children }: { readonly children: ReactNode }) {
  const [isOn, setOn] = useState(true);
  const isActing = useIsMutating({ mutationKey: CARRY_OUT }) > 0;
  const value = useMemo(
    () => ({ isOn, setOn, interval: (milliseconds: number) => (isOn && !isActing ? milliseconds : (false as const)) }),
    [isOn, isActing],
  );
  return <LiveContext.Provider value={value}>{children}</LiveContext.Provider>;
}

export function useLive(): Live {
  return useContext(LiveContext);
}
