/** Moments and durations as text, in the time zone that the user has chosen in Airflow. */

const ZONE_KEY = "timezone";
const BROWSERS_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** A format takes long to make, and a list shows hundreds of moments. */
const formats = new Map<string, Intl.DateTimeFormat>();

/** The zone that Airflow's own pages show times in: what its menu stores in the browser, else the browser's. */
export function zone(): string {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(ZONE_KEY) ?? "null");
    if (typeof stored === "string") {
      formatOf(stored);
      return stored;
    }
  } catch {
    // Storage that is forbidden, holds no JSON or names no zone says nothing.
  }
  return BROWSERS_ZONE;
}

/** @throws RangeError if there is no such zone */
function formatOf(timeZone: string): Intl.DateTimeFormat {
  let format = formats.get(timeZone);
  if (format === undefined) {
    format = new Intl.DateTimeFormat("en", {
      timeZone,
      hourCycle: "h23",
      year: "numeric",
      month: "2-digit",
      day: "2-digit",
      hour: "2-digit",
      minute: "2-digit",
      second: "2-digit",
    });
    formats.set(timeZone, format);
  }
  return format;
}

function parts(at: Date, timeZone: string): Record<string, string> {
  return Object.fromEntries(
    formatOf(timeZone)
      .formatToParts(at)
      .map((part) => [part.type, part.value]),
  );
}

/** A moment in full, as Airflow writes it: `2026-11-25 07:42:10`. */
export function moment(at: string, timeZone = zone()): string {
  const { year, month, day, hour, minute, second } = parts(new Date(at), timeZone);
  return `${year}-${month}-${day} ${hour}:${minute}:${second}`;
}

/** A moment in short: the time of day, with the date unless it is today's. */
export function clock(at: string, now: Date = new Date(), timeZone = zone()): string {
  const then = moment(at, timeZone);
  const today = moment(now.toISOString(), timeZone);
  return then.slice(0, 10) === today.slice(0, 10) ? then.slice(11, 16) : then.slice(0, 16);
}

/** A duration in its one or two greatest units: `38 s`, `41 min`, `2 h 5 min`, `3 d 4 h`. */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 1) {
    return `${Math.max(0, Math.round(seconds * 1000))} ms`;
  }
  if (whole < 60) {
    return `${whole} s`;
  }
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) {
    return `${minutes} min`;
  }
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? two(hours, "h", minutes % 60, "min") : two(Math.floor(hours / 24), "d", hours % 24, "h");
}

function two(great: number, unit: string, rest: number, small: string): string {
  return rest === 0 ? `${great} ${unit}` : `${great} ${unit} ${rest} ${small}`;
}

export function since(at: string, now: Date = new Date()): number {
  return (now.getTime() - new Date(at).getTime()) / 1000;
}

/** The instant of a time of day in a zone, as a form's field gives it: `2026-11-25T07:42`. */
export function instantOf(local: string, timeZone = zone()): string {
  const asUtc = Date.parse(`${local}Z`);
  // The zone's offset depends on the instant, which is known only after the offset; the second guess is exact.
  const shown = (guess: number) => Date.parse(`${moment(new Date(guess).toISOString(), timeZone).replace(" ", "T")}Z`);
  const first = asUtc - (shown(asUtc) - asUtc);
  return new Date(first + (asUtc - shown(first))).toISOString();
}
