/** The line between the table and the charts, that can be moved with the pointer and the arrow keys.
 *
 * In:   what this browser remembers.
 * Out:  `--table-share` on the split, in percent.
 */

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { keep, kept } from "../shell/keep.ts";

const LEAST = 20;
const MOST = 80;

export function Divider() {
  const [share, setShare] = useState(() => Math.min(MOST, Math.max(LEAST, Number(kept("share", 52)) || 52)));
  const line = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    line.current?.parentElement?.style.setProperty("--table-share", `${share}%`);
  }, [share]);
  const set = (value: number): void => {
    const next = Math.min(MOST, Math.max(LEAST, value));
    setShare(next);
    keep("share", next);
  };
  return (
    <div
      ref={line}
      class="divider"
      role="separator"
      tabIndex={0}
      aria-orientation="vertical"
      aria-label="Width of the table"
      aria-valuemin={LEAST}
      aria-valuemax={MOST}
      aria-valuenow={Math.round(share)}
      onKeyDown={(event) => {
        if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
        event.preventDefault();
        set(share + (event.key === "ArrowLeft" ? -2 : 2));
      }}
      onPointerDown={(event) => {
        event.preventDefault();
        event.currentTarget.setPointerCapture(event.pointerId);
      }}
      onPointerMove={(event) => {
        if (!event.currentTarget.hasPointerCapture(event.pointerId)) return;
        const around = event.currentTarget.parentElement?.getBoundingClientRect();
        if (around) set(((event.clientX - around.left) / around.width) * 100);
      }}
    />
  );
}
