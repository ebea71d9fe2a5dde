/** Text that others wrote (errors, reasons, file names, records), made safe to look at. */

/** Control characters other than line feed and tab, line separators, and whatever is invisible or sets the direction. */
const HIDDEN = /(?![\n\t])[\p{Cc}\p{Cf}\u2028\u2029]/gu;

/** Emoji are made of several characters with this one, which is invisible, between them. */
const JOINER = "\u200d";

/**
 * Text in which characters that show nothing, or change the order in which other characters are shown, are written as
 * escapes such as `\u202e`. Line feeds and tabs stay.
 */
export function visible(text: string): string {
  return text.replace(HIDDEN, (character) =>
    character === JOINER ? character : `\\u${(character.codePointAt(0) ?? 0).toString(16).padStart(4, "0")}`,
  );
}
