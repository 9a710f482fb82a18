/** A table that may be wider than its place: it scrolls by itself, by keys too.
 *
 * In:   the table; what it holds, for those who cannot see it.
 * Out:  the place.
 */

import type { ComponentChildren } from "preact";

export function Wide({ label, children }: { label: string; children: ComponentChildren }) {
  return (
    <div class="wide-table" tabIndex={0} role="group" aria-label={label}>
      {children}
    </div>
  );
}
