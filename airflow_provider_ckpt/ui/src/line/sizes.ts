/** Heights of the parts of a number line, in pixels. */

/** Labels of checkpoint, watermark and the source's end, above the band. */
export const MARKS = 30;
/** The band with the ranges. */
export const BAND = 30;
/** Marks of dead letters, below the band. */
export const FEET = 10;
export const OVERVIEW = 7;

/** Number of pieces from which a number line is painted on a canvas instead of made of elements. */
export const CANVAS_FROM = 2000;
