/** Where the page's parts meet: the properties of what one part draws inside another.
 *
 * In:   nothing.
 * Out:  types. `shell`, `runs`, `compare` and `doctor` call `RunView`, `Panels` and `Chart`; the run view calls `DoctorView`.
 *
 * Colours are by key (`shell/colour.ts`: colourOf, useColours), the theme's inks by name (`shell/theme.ts`: token,
 * useTheme), state in the address (`shell/route.ts`: go, useRoute), short numbers and durations in `shell/words.ts`.
 */

import type { Axis } from "./values.ts";
import type { Key } from "./types.ts";

/** `tab`: the last part of /run/KEY/TAB. `query`: the address's parameters as they are. */
export interface RunViewProps {
  runKey: Key;
  tab: string;
  query: URLSearchParams;
}

export interface DoctorViewProps {
  runKey: Key;
}

export interface ChartSeries {
  run: Key;
  name: string;
  label: string;
  colour: string;
  dim?: boolean;
}

/** One chart that reads its own data. What is optional has a default; the chart may take more than this. */
export interface ChartProps {
  series: ChartSeries[];
  x: Axis;
  title?: string;
  height?: number;
  smooth?: string | number;
  logX?: boolean;
  logY?: boolean;
}

/** Charts of many runs at once, a panel per metric. labels: a name per run, by key. */
export interface PanelsProps {
  runs: Key[];
  labels: Record<Key, string>;
  /** Of charts without a group of their own. */
  x?: Axis;
  smooth?: string | number;
  /** The project whose saved layout is used, "" where the runs are of several. */
  project: string;
  /** The run under the pointer or the keyboard, to be drawn above the others. */
  highlight?: Key | null;
}
