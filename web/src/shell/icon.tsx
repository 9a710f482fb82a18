/** Small drawings of 16 by 16, in the ink of the text around them.
 *
 * In:   a name; a label where the icon says what no text says.
 * Out:  an SVG.
 */

const PATHS = {
  run: "M8 1.8a6.2 6.2 0 1 1 0 12.4A6.2 6.2 0 0 1 8 1.8ZM6.4 5.1v5.8L11 8Z",
  evaluate: "M2 13.5h12M3.5 11V8M6.5 11V5M9.5 11V6.5M12.5 11V3",
  silent: "M8 1.8a6.2 6.2 0 1 1 0 12.4A6.2 6.2 0 0 1 8 1.8ZM6.3 5.4v5.2M9.7 5.4v5.2",
  stuck: "M4 2h8M4 14h8M5 2v2.2L8 8l3-3.8V2M5 14v-2.2L8 8l3 3.8V14",
  away: "M8 2a6 6 0 0 1 3 .8M13.2 5a6 6 0 0 1 .6 4M12 12.5a6 6 0 0 1-3 1.4M6 13.7a6 6 0 0 1-3-2.2M2 8.5a6 6 0 0 1 .9-3.6M8 5v3.2M8 10.6v.1",
  gone: "M8 1.8 14.5 13.5H1.5ZM8 6v3.5M8 11.4v.1",
  done: "M8 1.8a6.2 6.2 0 1 1 0 12.4A6.2 6.2 0 0 1 8 1.8ZM5.3 8.2l2 2 3.5-4",
  failed: "M8 1.8a6.2 6.2 0 1 1 0 12.4A6.2 6.2 0 0 1 8 1.8ZM5.8 5.8l4.4 4.4M10.2 5.8l-4.4 4.4",
  stopped: "M8 1.8a6.2 6.2 0 1 1 0 12.4A6.2 6.2 0 0 1 8 1.8ZM6 6h4v4H6Z",
  unknown: "M8 1.8a6.2 6.2 0 1 1 0 12.4A6.2 6.2 0 0 1 8 1.8ZM5.5 8h5",
  critical: "M5.3 1.8h5.4l3.5 3.5v5.4l-3.5 3.5H5.3l-3.5-3.5V5.3ZM8 4.8v4M8 11v.1",
  warning: "M8 1.8 14.5 13.5H1.5ZM8 6v3.5M8 11.4v.1",
  info: "M8 1.8a6.2 6.2 0 1 1 0 12.4A6.2 6.2 0 0 1 8 1.8ZM8 7.4v3.8M8 4.9v.1",
  eye: "M1.2 8S3.7 3.5 8 3.5 14.8 8 14.8 8 12.3 12.5 8 12.5 1.2 8 1.2 8ZM8 6a2 2 0 1 1 0 4 2 2 0 0 1 0-4Z",
  hidden:
    "M2 2l12 12M4.3 4.6C2.3 5.9 1.2 8 1.2 8s2.5 4.5 6.8 4.5c1.3 0 2.5-.4 3.5-1M7 3.6c4.7-.6 7.8 4.4 7.8 4.4s-.5.9-1.5 2",
  pin: "M5.5 2h5l-.7 4.5L12.5 9h-9l2.7-2.5ZM8 9v5",
  more: "M3.5 8v.01M8 8v.01M12.5 8v.01",
  close: "M4 4l8 8M12 4l-8 8",
  plus: "M8 3v10M3 8h10",
  search: "M7 2.5a4.5 4.5 0 1 1 0 9 4.5 4.5 0 0 1 0-9ZM10.3 10.3 14 14",
  down: "M4 6l4 4 4-4",
  right: "M6 4l4 4-4 4",
  up: "M4 10l4-4 4 4",
  columns: "M2 2.5h12v11H2ZM6 2.5v11M10 2.5v11",
  group: "M2 3h12M5 8h9M5 13h9",
  compare: "M5 2v12M5 2 2.5 4.5M5 2l2.5 2.5M11 14V2M11 14l-2.5-2.5M11 14l2.5-2.5",
  chart: "M2 2v12h12M4.5 10.5l3-4 2.5 2L14 3.5",
  scatter: "M2 2v12h12M5.5 10.5v.01M7.5 6.5v.01M10 8.5v.01M12 4v.01M12.5 10v.01",
  table: "M2 3h12v10H2ZM2 6.5h12M6 3v10",
  split: "M2 3h12v10H2ZM7 3v10",
  sun: "M8 5a3 3 0 1 1 0 6 3 3 0 0 1 0-6ZM8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1",
  moon: "M13.5 9.8A6 6 0 1 1 6.2 2.5a4.8 4.8 0 0 0 7.3 7.3Z",
  image: "M2 3h12v10H2ZM2 11l3.5-3.5L9 11M8 10l2-2 4 4M10.5 5.6v.1",
  system: "M2 3h12v8H2ZM6 14h4",
  help: "M8 1.8a6.2 6.2 0 1 1 0 12.4A6.2 6.2 0 0 1 8 1.8ZM6.2 6.3a1.8 1.8 0 1 1 2.6 1.6c-.5.3-.8.6-.8 1.2M8 11.2v.1",
  doctor: "M2 8.5h2.5L6 5l2.5 7L10.5 7l1 1.5H14",
  archive: "M2 3h12v3H2ZM3 6v7.5h10V6M6.5 9h3",
  trash: "M2.5 4h11M6 4V2.5h4V4M4 4l.7 9.5h6.6L12 4",
  pencil: "M2.5 13.5 3 11l7.5-7.5 2.3 2.3L5.2 13.2Z",
  copy: "M5.5 5.5h8v8h-8ZM10.5 5.5v-3h-8v8h3",
  link: "M6.5 9.5l3-3M5.5 7 3.8 8.7a2.5 2.5 0 0 0 3.5 3.5L9 10.5M10.5 9l1.7-1.7a2.5 2.5 0 0 0-3.5-3.5L7 5.5",
  download: "M8 2v8M4.5 6.8 8 10.3l3.5-3.5M2.5 13.5h11",
  check: "M3 8.5l3.5 3.5L13 4.5",
  arrow: "M3 8h10M9 4l4 4-4 4",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, label }: { name: IconName; label?: string }) {
  return (
    <svg
      class="icon"
      viewBox="0 0 16 16"
      fill="none"
      stroke="currentColor"
      stroke-width={name === "more" ? 2.2 : 1.4}
      stroke-linecap="round"
      stroke-linejoin="round"
      role={label ? "img" : undefined}
      aria-label={label}
      aria-hidden={label ? undefined : "true"}
    >
      <path d={PATHS[name]} />
    </svg>
  );
}

/** The page's mark: a recording drum with its trace. */
export function Mark() {
  return (
    <svg class="mark" viewBox="0 0 24 24" width="20" height="20" aria-hidden="true">
      <rect x="1.5" y="3.5" width="21" height="17" rx="3" fill="none" stroke="currentColor" stroke-width="1.5" />
      <path d="M1.5 9h21M1.5 15h21M8.5 3.5v17M15.5 3.5v17" stroke="currentColor" stroke-width="0.6" opacity="0.45" />
      <path
        d="M3 8c2 0 2.5 1 4 4.5S10 17 12 16s2.5-4.5 4.5-5 3 .5 4.5 0"
        fill="none"
        class="trace"
        stroke-width="2"
        stroke-linecap="round"
      />
    </svg>
  );
}
