import { useEffect, useState } from "react";

import { clock, duration, moment, since, zone } from "../format/times";

/** The present, each second anew while something on the page needs it. */
export function useNow(every = 1000): Date {
  const [now, setNow] = useState(() => new Date());
  useEffect(() => {
    const timer = setInterval(() => setNow(new Date()), every);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}

/** A moment in the user's time zone; in full, with the zone, for whoever points at it. */
export function Moment({ at }: { readonly at: string }) {
  return (
    <time dateTime={at} title={`${moment(at)} ${zone()}`}>
      {clock(at)}
    </time>
  );
}

/** How long ago something was. */
export function Since({ at }: { readonly at: string }) {
  const now = useNow(5000);
  return (
    <time dateTime={at} title={`${moment(at)} ${zone()}`}>
      {duration(since(at, now))}
    </time>
  );
}
