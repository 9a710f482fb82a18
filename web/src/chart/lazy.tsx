/** What is made when it comes into sight, and let go when it is far away.
 *
 * In:   children, the height of their place.
 * Out:  the place at once, the children in time.
 */

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

interface Entry {
  set(near: boolean): void;
}

// one observer for all places: ten thousand of them would be slow
const entries = new WeakMap<Element, Entry>();
let near: IntersectionObserver | null = null;

function observer(): IntersectionObserver {
  near ??= new IntersectionObserver(
    (found) => {
      for (const one of found) entries.get(one.target)?.set(one.isIntersecting);
    },
    { rootMargin: "900px 0px" },
  );
  return near;
}

const LEAVE_MS = 8000; // a chart scrolled past is kept for so long, for those who scroll back

/** eager: it is in sight from the start, and need not wait for the observer. */
export function Lazy({
  children,
  height,
  eager = false,
}: {
  children: ComponentChildren;
  height: number;
  eager?: boolean;
}) {
  const box = useRef<HTMLDivElement>(null);
  const [shown, show] = useState(eager);
  useEffect(() => {
    const node = box.current;
    if (!node) return;
    let leave: ReturnType<typeof setTimeout> | undefined;
    entries.set(node, {
      set(isNear) {
        clearTimeout(leave);
        if (isNear) show(true);
        else leave = setTimeout(() => !node.contains(document.activeElement) && show(false), LEAVE_MS);
      },
    });
    observer().observe(node);
    return () => {
      clearTimeout(leave);
      observer().unobserve(node);
    };
  }, []);
  return (
    <div ref={box} class="slot" style={{ minHeight: `${height}px` }}>
      {shown && children}
    </div>
  );
}

/** The end of what is shown so far: asks for more by itself when it is reached. */
export function More({ onSeen, left }: { onSeen: () => void; left: number }) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!box.current) return;
    const watch = new IntersectionObserver(([entry]) => entry?.isIntersecting && onSeen(), { rootMargin: "600px 0px" });
    watch.observe(box.current);
    return () => watch.disconnect();
  }, [left]);
  return (
    <div ref={box} class="more-panels">
      <button type="button" class="button" onClick={onSeen}>
        {left} more
      </button>
    </div>
  );
}
