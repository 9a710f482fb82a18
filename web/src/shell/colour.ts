/** The colours of lines, one palette for the page, the report and the notebook.
 *
 * In:   what is drawn together, by its keys: runs, or the labels of groups; the theme.
 * Out:  a colour for each, by the keys alone: the same in every browser and for everybody who opens a link, and none
 *       twice among those drawn together. Pure.
 */

import { theme, type Theme } from "./theme.ts";

/** At least 3 : 1 against the panels of their theme. The first eight are those of every picture that Python draws
 *  (`views/draw/palette.py`). All twelve stay apart for eyes that see few colours: web/tests/shell-colour.test.ts. */
// prettier-ignore
export const PALETTE: Record<Theme, readonly string[]> = {
  light: [
    "#0e30cf", "#db6c09", "#00a478", "#9270ae", "#9c6a37", "#4777ff", "#823236", "#504761",
    "#481800", "#300c78", "#785490", "#000ca8",
  ],
  dark: [
    "#8276ff", "#f19756", "#32f8a6", "#af73ad", "#f0d228", "#98c9ff", "#e14e6d", "#bfc3c7",
    "#248400", "#f0f0fc", "#8454b4", "#54a8f0",
  ],
};

// prettier-ignore
export const COLOUR_NAMES: Record<Theme, readonly string[]> = {
  light: [
    "blue", "orange", "green", "purple", "brown", "azure", "maroon", "slate", "umber", "indigo", "plum", "navy",
  ],
  dark: [
    "violet", "orange", "green", "purple", "yellow", "sky", "red", "silver", "forest", "white", "grape", "azure",
  ],
};

/** From little to much in heat maps, in both themes: that of every picture that Python draws (viridis). */
// prettier-ignore
export const RAMP: readonly string[] = [
  "#440154", "#472c7a", "#3b518b", "#2c718e", "#21908d", "#27ad81", "#5cc863", "#aadc32", "#fde725",
];

/** Where a value is not finite. */
export const MARK: Record<Theme, string> = { light: "#b3261e", dark: "#ff8a80" };

const SIZE = PALETTE.light.length;

export const isPlace = (place: unknown): place is number => Number.isInteger(place) && (place as number) >= 0;

/** The colour of a place. Behind the palette's end hues go on by the golden angle, so that no two are the same. */
export function colourAt(place: number, theme: Theme): string {
  return PALETTE[theme][place] ?? further(place - SIZE, theme);
}

const LIGHTNESS: Record<Theme, readonly number[]> = { light: [0.5, 0.41, 0.58], dark: [0.78, 0.68, 0.87] };

function further(at: number, theme: Theme): string {
  const hue = ((at * 137.508 + 45) * Math.PI) / 180;
  return oklch(LIGHTNESS[theme][at % 3] ?? 0.6, 0.1, hue);
}

/** A colour of Björn Ottosson's OKLCH space, where equal steps look equal, as #rrggbb. */
function oklch(lightness: number, chroma: number, hue: number): string {
  const [a, b] = [chroma * Math.cos(hue), chroma * Math.sin(hue)];
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  const byte = (value: number): string => {
    const held = Math.min(1, Math.max(0, value));
    const encoded = held <= 0.0031308 ? 12.92 * held : 1.055 * held ** (1 / 2.4) - 0.055;
    return Math.round(255 * encoded)
      .toString(16)
      .padStart(2, "0");
  };
  return `#${linear.map(byte).join("")}`;
}

/** The place that a key has where it is drawn alone, in every browser the same (FNV-1a): one of the first eight. */
export function placeByKey(key: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < key.length; at++) hash = Math.imul(hash ^ key.charCodeAt(at), 0x01000193);
  return (hash >>> 0) % FIRST;
}

const FIRST = 8; // of the palette: those that differ most

/** Places in the palette for what is drawn together, none of them twice but where a person chose so: each takes its own,
 *  or the next of the first eight that is free, then the others in their order. The order of `keys` makes no difference.
 *
 *  chosen: what a person said.
 */
export function assign(
  keys: readonly string[],
  chosen: (key: string) => number | undefined = () => undefined,
): Map<string, number> {
  const places = new Map<string, number>();
  const taken = new Set<number>();
  const sorted = [...new Set(keys)].sort();
  const give = (key: string, place: number): void => {
    places.set(key, place);
    taken.add(place);
  };
  for (const key of sorted) {
    const place = chosen(key);
    if (isPlace(place)) give(key, place);
  }
  const open = sorted.filter((key) => !places.has(key));
  // first those that get their own: who gives way takes it from nobody
  for (const key of open) if (!taken.has(placeByKey(key))) give(key, placeByKey(key));
  let next = 0;
  for (const key of open.filter((key) => !places.has(key))) {
    while (taken.has(next)) next++;
    give(key, next);
  }
  return places;
}

/** The colours of what is drawn together, by key. */
export function colours(keys: readonly string[], now: Theme = theme()): Map<string, string> {
  return new Map([...assign(keys)].map(([key, place]) => [key, colourAt(place, now)]));
}

type Rgb = readonly [number, number, number];

// dark blue, teal, amber: lightness rises or falls with depth, and blue and amber are distinguished by all
// prettier-ignore
const RAMPS: Record<Theme, readonly Rgb[]> = {
  light: [[24, 60, 140], [30, 120, 140], [90, 130, 70], [170, 110, 10], [190, 70, 20]],
  dark: [[120, 165, 255], [90, 195, 215], [140, 210, 140], [235, 195, 90], [250, 150, 95]],
};

export function mix(stops: readonly Rgb[], share: number): Rgb {
  const at = Math.max(0, Math.min(1, share)) * (stops.length - 1);
  const low = Math.min(stops.length - 2, Math.floor(at));
  const part = at - low;
  const [a, b] = [stops[low] ?? [0, 0, 0], stops[low + 1] ?? [0, 0, 0]];
  return [0, 1, 2].map((channel) =>
    Math.round((a[channel] ?? 0) * (1 - part) + (b[channel] ?? 0) * part),
  ) as unknown as Rgb;
}

/** Colours of lines that have an order, as layers and ranks: from blue (first) to amber (last). */
export function sequence(count: number, theme: Theme): string[] {
  return Array.from(
    { length: count },
    (_, at) => `rgb(${mix(RAMPS[theme], count > 1 ? at / (count - 1) : 0).join(",")})`,
  );
}

/** Colours for the lines of one chart: the palette from a place on; a sequence where it has too few. */
export function lineColours(first: number, count: number, theme: Theme): string[] {
  if (count > SIZE) return sequence(count, theme);
  return Array.from({ length: count }, (_, at) => colourAt(at ? (first + at) % SIZE : first, theme));
}
