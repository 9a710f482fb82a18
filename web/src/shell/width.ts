/** How wide the window is, as far as the page's parts care.
 *
 * In:   a width in pixels.
 * Out:  whether the window is narrower, and a new drawing when that changes.
 */

import { useEffect, useState } from "preact/hooks";

export function useNarrow(pixels: number): boolean {
  const [narrow, set] = useState(() => matchMedia(`(max-width: ${pixels}px)`).matches);
  useEffect(() => {
    const media = matchMedia(`(max-width: ${pixels}px)`);
    const change = (): void => set(media.matches);
    media.addEventListener("change", change);
    change();
    return () => media.removeEventListener("change", change);
  }, [pixels]);
  return narrow;
}
