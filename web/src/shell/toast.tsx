/** Short notices at the foot of the page, with a way to undo.
 *
 * In:   a sentence, and what to do when a person asks for it back.
 * Out:  notices that go by themselves, and wait while the pointer or the focus is on them.
 */

import { useEffect, useState } from "preact/hooks";
import { Icon } from "./icon.tsx";

export interface Notice {
  text: string;
  tone?: "plain" | "bad";
  undo?: () => void;
}

interface Shown extends Notice {
  id: number;
}

const SECONDS = 8; // long enough to read a sentence and to find the button

let shown: Shown[] = [];
let count = 0;
const listeners = new Set<(notices: Shown[]) => void>();

function set(next: Shown[]): void {
  shown = next;
  for (const listener of listeners) listener(shown);
}

export function toast(notice: Notice): void {
  set([...shown.filter((one) => one.text !== notice.text), { ...notice, id: ++count }].slice(-3));
}

const drop = (id: number): void => set(shown.filter((one) => one.id !== id));

/** Undo what was done last, if it can be. */
export function undoLast(): boolean {
  const last = shown.findLast((one) => one.undo);
  if (!last) return false;
  drop(last.id);
  last.undo?.();
  return true;
}

function One({ notice }: { notice: Shown }) {
  const [held, hold] = useState(false);
  useEffect(() => {
    if (held) return;
    const timer = setTimeout(() => drop(notice.id), SECONDS * 1000);
    return () => clearTimeout(timer);
  }, [held, notice.id]);
  return (
    <div
      class={`toast ${notice.tone === "bad" ? "bad" : ""}`}
      onMouseEnter={() => hold(true)}
      onMouseLeave={() => hold(false)}
      onFocusIn={() => hold(true)}
      onFocusOut={() => hold(false)}
    >
      <span>{notice.text}</span>
      {notice.undo && (
        <button
          type="button"
          class="button"
          onClick={() => {
            drop(notice.id);
            notice.undo?.();
          }}
        >
          Undo
        </button>
      )}
      <button
        type="button"
        class="button bare icon-only"
        aria-label="Close this notice"
        onClick={() => drop(notice.id)}
      >
        <Icon name="close" />
      </button>
    </div>
  );
}

export function Toasts() {
  const [notices, update] = useState(shown);
  useEffect(() => {
    listeners.add(update);
    return () => void listeners.delete(update);
  }, []);
  return (
    <div class="toasts" role="status" aria-live="polite">
      {notices.map((notice) => (
        <One key={notice.id} notice={notice} />
      ))}
    </div>
  );
}
