/** Frames: many columns of numbers in one answer.
 *
 * In:   4 bytes little-endian length H, H bytes of JSON (padded so that 4 + H is a multiple of 8), float64 data.
 * Out:  the header, and views on its columns; nothing is copied.
 */

import type { ColumnRef } from "./types.ts";

export interface Frame<Header> {
  header: Header;
  /** The numbers of a column; empty for one that is missing. Throws RangeError outside the data. */
  column: (ref: ColumnRef | undefined) => Float64Array;
}

const EMPTY = new Float64Array(0);

/** Throws RangeError or SyntaxError for what is not a frame. */
export function decodeFrame<Header>(buffer: ArrayBuffer): Frame<Header> {
  if (buffer.byteLength < 4) throw new RangeError("the frame ends within its length");
  const length = new DataView(buffer).getUint32(0, true);
  const start = 4 + length;
  if (start > buffer.byteLength) throw new RangeError("the frame ends within its header");
  if (start % 8 !== 0) throw new RangeError("the frame's data do not begin at a multiple of 8 bytes");
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length))) as Header;
  const data = new Float64Array(buffer, start, Math.floor((buffer.byteLength - start) / 8));
  return {
    header,
    column(ref) {
      if (!ref) return EMPTY;
      if (ref.at < 0 || ref.n < 0 || ref.at + ref.n > data.length) {
        throw new RangeError("the frame names numbers that it does not hold");
      }
      return data.subarray(ref.at, ref.at + ref.n);
    },
  };
}
