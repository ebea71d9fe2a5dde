import { FATES, LOOKS, paint, TILE } from "./fates";

/** Name of the pattern of a fate, unique to one number line; for use in `fill`. */
export function patternId(id: string, fate: string): string {
  return `${id}-${fate}`;
}

/** The fates' patterns as SVG definitions. */
export function Patterns({ id }: { readonly id: string }) {
  return (
    <defs>
      {FATES.map((fate) => {
        const look = LOOKS[fate];
        return (
          <pattern height={TILE} id={patternId(id, fate)} key={fate} patternUnits="userSpaceOnUse" width={TILE}>
            <rect fill={paint(look.colour)} height={TILE} width={TILE} />
            <path d={look.motif} fill="none" stroke={paint("bg")} strokeOpacity={0.75} strokeWidth={look.strokeWidth} />
          </pattern>
        );
      })}
    </defs>
  );
}
