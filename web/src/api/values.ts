/** What the page makes of the server's answers: numbers, and what went wrong.
 *
 * In:   values as JSON has them.
 * Out:  numbers; errors with a sentence; the names of axes.
 */

export type Axis = "step" | "time" | "relative" | "tokens" | "samples" | (string & {});

/** What a fetch ended with: `status` 0 where the server was not there at all. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
    this.name = "ApiError";
  }
}

/** What a record says in text or as a number; the other where it says neither. */
export function word(value: unknown, other = ""): string {
  return typeof value === "string" || typeof value === "number" ? String(value) : other;
}

/** A number of the API as a number. */
export function num(value: unknown): number | null {
  if (typeof value === "number") return value;
  if (value === "NaN") return NaN;
  if (value === "Infinity") return Infinity;
  if (value === "-Infinity") return -Infinity;
  return null;
}
