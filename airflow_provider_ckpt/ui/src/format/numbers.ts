/** Numbers and positions as text. A position is a 64-bit integer, which is exact in a bigint and not in a number. */

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** The position before all values that a cursor can have, which has no digits of its own anywhere in the product. */
export const START = -(2n ** 63n);

export function count(value: number): string {
  return whole.format(value);
}

/** A number in few characters, such as `18.2K`, for axes and narrow columns. */
export function compact(value: number): string {
  return Math.abs(value) < 10_000 ? whole.format(value) : short.format(value);
}

export function position(value: bigint): string {
  return value === START ? "start" : whole.format(value);
}

export function range(start: bigint, end: bigint): string {
  return `[${position(start)}, ${position(end)})`;
}

export function many(value: number, one: string, more = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : more}`;
}

/** A share as a percentage that is 100 only if nothing is missing, and 0 only if there is nothing. */
export function percent(part: number): string {
  if (part <= 0 || part >= 1) {
    return part <= 0 ? "0 %" : "100 %";
  }
  return `${Math.min(99, Math.max(1, Math.round(part * 100)))} %`;
}

export function rate(perSecond: number): string {
  return perSecond >= 100 || perSecond === 0 ? `${compact(perSecond)}/s` : `${perSecond.toPrecision(2)}/s`;
}

export function bytes(size: number): string {
  const units = ["B", "kB", "MB", "GB"];
  let value = size;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toPrecision(3)} ${units[unit]}`;
}
