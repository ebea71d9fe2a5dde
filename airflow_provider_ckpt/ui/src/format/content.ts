/** The bytes of a record as text, as JSON and as a hex dump. */

const PER_LINE = 16;

export function decode(base64: string): Uint8Array {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

export function asText(content: Uint8Array): string {
  return new TextDecoder().decode(content);
}

/** Offset, bytes and printable characters, 16 bytes a line. */
export function asHex(content: Uint8Array): string {
  const lines: string[] = [];
  for (let offset = 0; offset < content.length; offset += PER_LINE) {
    const part = [...content.subarray(offset, offset + PER_LINE)];
    const digits = part.map((byte) => byte.toString(16).padStart(2, "0"));
    const pairs = `${digits.slice(0, 8).join(" ")}  ${digits.slice(8).join(" ")}`.padEnd(PER_LINE * 3);
    const shown = part.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${offset.toString(16).padStart(6, "0")}  ${pairs}  ${shown}`);
  }
  return lines.join("\n");
}

/**
 * JSON text with a line for each member. Nothing but white space is changed: numbers keep all of their digits, and keys
 * that appear twice stay, as they would not if the text were parsed and written again.
 */
export function indented(json: string): string {
  let result = "";
  let depth = 0;
  const line = () => `\n${"  ".repeat(depth)}`;
  for (const [token] of json.matchAll(/"(?:[^"\\]|\\.)*"?|[{}[\],:]|[^\s{}[\],:"]+/gs)) {
    switch (token) {
      case "{":
      case "[":
        depth += 1;
        result += token + line();
        break;
      case "}":
      case "]":
        depth = Math.max(0, depth - 1);
        result = result.trimEnd().endsWith(token === "}" ? "{" : "[")
          ? result.trimEnd() + token
          : result + line() + token;
        break;
      case ",":
        result += token + line();
        break;
      case ":":
        result += ": ";
        break;
      default:
        result += token;
    }
  }
  return result;
}
