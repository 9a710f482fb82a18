/** A button that opens a small pane beside itself.
 *
 * In:   what the button shows, what the pane holds.
 * Out:  a pane within the window's edges, closed by Escape, by a click elsewhere and by what is chosen in it.
 */

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

interface Props {
  /** What the button shows. */
  button: ComponentChildren;
  /** Its name for those who cannot see it, and the pane's. */
  label: string;
  class?: string;
  paneClass?: string;
  /** What the pane is for a screen reader. */
  role?: "menu" | "dialog";
  children: (close: () => void) => ComponentChildren;
  disabled?: boolean;
}

const EDGE = 8;

export function Pop({
  button,
  label,
  class: look = "button",
  paneClass = "",
  role = "dialog",
  children,
  disabled,
}: Props) {
  const [open, setOpen] = useState(false);
  const knob = useRef<HTMLButtonElement>(null);
  // who speaks to the page says what the button shows: its name begins with that
  useLayoutEffect(() => {
    const text = (knob.current?.textContent ?? "").trim().replace(/\s+/g, " ");
    const named = label.toLowerCase().includes(text.toLowerCase());
    knob.current?.setAttribute("aria-label", named ? label : `${text}: ${label}`);
  });
  const close = (): void => {
    setOpen(false);
    knob.current?.focus({ preventScroll: true });
  };
  return (
    <>
      <button
        type="button"
        ref={knob}
        class={look}
        aria-haspopup={role}
        aria-expanded={open}
        title={label}
        disabled={disabled}
        onClick={(event) => {
          event.stopPropagation();
          setOpen(!open);
        }}
      >
        {button}
      </button>
      {open && (
        <Pane
          anchor={knob.current}
          label={label}
          role={role}
          class={paneClass}
          close={close}
          leave={() => setOpen(false)}
        >
          {children(close)}
        </Pane>
      )}
    </>
  );
}

interface PaneProps {
  anchor: Element | null;
  label: string;
  role: "menu" | "dialog";
  class: string;
  close: () => void;
  /** As close, but the focus stays where the person put it. */
  leave: () => void;
  children: ComponentChildren;
}

export function Pane({ anchor, label, role, class: look, close, leave, children }: PaneProps) {
  const pane = useRef<HTMLDivElement>(null);

  useLayoutEffect(() => {
    const own = pane.current;
    if (!own || !anchor) return;
    own.showPopover?.(); // above everything, whatever it is in
    const place = (): void => {
      const around = anchor.getBoundingClientRect();
      const { offsetWidth: width, offsetHeight: height } = own;
      const below = around.bottom + 4 + height <= innerHeight - EDGE || around.top < innerHeight / 2;
      const left = Math.max(EDGE, Math.min(around.left, innerWidth - width - EDGE));
      const top = below ? around.bottom + 4 : around.top - 4 - height;
      own.style.left = `${left}px`;
      own.style.top = `${Math.max(EDGE, top)}px`;
      own.style.maxHeight = `${Math.max(120, below ? innerHeight - top - EDGE : around.top - EDGE * 2)}px`;
    };
    place();
    const watch = new ResizeObserver(place);
    watch.observe(own);
    const focusable = own.querySelector<HTMLElement>("[data-first], input, button, a[href], select");
    focusable?.focus({ preventScroll: true });
    return () => watch.disconnect();
  }, [anchor]);

  useEffect(() => {
    const outside = (event: Event): void => {
      const target = event.target as Node;
      if (!pane.current?.contains(target) && !anchor?.contains(target)) leave();
    };
    document.addEventListener("pointerdown", outside, true);
    addEventListener("resize", leave);
    return () => {
      document.removeEventListener("pointerdown", outside, true);
      removeEventListener("resize", leave);
    };
  }, [leave]);

  const onKeyDown = (event: KeyboardEvent): void => {
    event.stopPropagation(); // the page's keys rest while a pane is open
    if (event.key === "Escape") {
      event.preventDefault();
      close();
    } else if (event.key === "Tab" && role === "menu") {
      leave();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const all = [
        ...(pane.current?.querySelectorAll<HTMLElement>("button:not([disabled]), a[href], input, [tabindex='0']") ??
          []),
      ];
      const at = all.indexOf(document.activeElement as HTMLElement);
      const next = all[(at + (event.key === "ArrowDown" ? 1 : -1) + all.length) % all.length];
      if (next) {
        event.preventDefault();
        next.focus();
      }
    }
  };

  return (
    <div
      ref={pane}
      popover="manual"
      class={`pane ${look}`}
      role={role}
      aria-label={label}
      onKeyDown={onKeyDown}
      onClick={(event) => event.stopPropagation()}
    >
      {children}
    </div>
  );
}
