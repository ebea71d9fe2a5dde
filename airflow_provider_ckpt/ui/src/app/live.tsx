import { createContext, type ReactNode, useContext, useMemo, useState } from "react";

interface Live {
  readonly isOn: boolean;
  readonly setOn: (on: boolean) => void;
  /** The time between two reads if the page refreshes itself; false if it does not. */
  readonly interval: (milliseconds: number) => number | false;
}

const LiveContext = createContext<Live>({ isOn: false, setOn: () => undefined, interval: () => false });

/** Whether the pages below read again by themselves. In a hidden tab nothing is read, whatever is chosen here. */
export function LiveRefresh({ children }: { readonly children: ReactNode }) {
  const [isOn, setOn] = useState(true);
  const value = useMemo(
    () => ({ isOn, setOn, interval: (milliseconds: number) => (isOn ? milliseconds : (false as const)) }),
    [isOn],
  );
  return <LiveContext.Provider value={value}>{children}</LiveContext.Provider>;
}

export function useLive(): Live {
  return useContext(LiveContext);
}
