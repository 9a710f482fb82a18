/** What this browser remembers of a person's taste: theme, colours, widths. Never data.
 *
 * In:   a name and a plain value.
 * Out:  the value again, or the default where storage is off, full or damaged.
 */

export function kept<T>(name: string, otherwise: T): T {
  try {
    const text = localStorage.getItem(`barograph.${name}`);
    return text === null ? otherwise : (JSON.parse(text) as T);
  } catch {
    return otherwise;
  }
}

export function keep(name: string, value: unknown): void {
  try {
    localStorage.setItem(`barograph.${name}`, JSON.stringify(value));
  } catch {
    // private windows and full storages forget
  }
}
