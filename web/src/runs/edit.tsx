/** Text that is edited where it stands: a double click or a key opens it, Enter keeps, Escape leaves.
 *
 * In:   the text; what to do with a new one.
 * Out:  the text as it is shown, or a field.
 */

import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

interface Props {
  /** What the field begins with. */
  text: string;
  label: string;
  open: boolean;
  setOpen: (open: boolean) => void;
  save: (text: string) => void;
  placeholder?: string;
  /** What is shown while nobody edits. */
  children: ComponentChildren;
}

export function Edit({ text, label, open, setOpen, save, placeholder, children }: Props) {
  const field = useRef<HTMLInputElement>(null);
  const over = useRef(false);
  useEffect(() => {
    over.current = false;
    if (open) field.current?.select();
  }, [open]);
  if (!open) {
    return (
      <span
        class="editable"
        onDblClick={(event) => {
          event.preventDefault();
          event.stopPropagation();
          setOpen(true);
        }}
      >
        {children}
      </span>
    );
  }
  const end = (keep: boolean): void => {
    if (over.current) return; // a field that goes away loses the focus too
    over.current = true;
    const value = field.current?.value ?? text;
    setOpen(false);
    if (keep && value !== text) save(value);
  };
  return (
    <input
      ref={field}
      class="field edit-field"
      aria-label={label}
      defaultValue={text}
      placeholder={placeholder}
      maxLength={2000}
      onBlur={() => end(true)}
      onClick={(event) => event.stopPropagation()}
      onKeyDown={(event) => {
        if (event.key === "Enter" && !event.isComposing) end(true);
        else if (event.key === "Escape") end(false);
        else return event.stopPropagation();
        event.preventDefault();
        event.stopPropagation();
      }}
    />
  );
}

/** Words between commas, each once. */
export function tagsOf(text: string): string[] {
  return [
    ...new Set(
      text
        .split(/[,\n]/)
        .map((word) => word.trim())
        .filter(Boolean),
    ),
  ];
}
