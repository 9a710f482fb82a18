/** The uncommitted changes of a run, file by file.
 *
 * In:   a manifest.
 * Out:  the changed lines of each file, without the heads of the diff. Pure.
 */

export function patchesOf(manifest: Record<string, unknown>): Map<string, string> {
  const git = manifest.git;
  const diff = git !== null && typeof git === "object" ? (git as Record<string, unknown>).diff : undefined;
  const found = new Map<string, string>();
  if (typeof diff !== "string") return found;
  for (const piece of diff.split(/^(?=diff --git )/m)) {
    const name = /^diff --git a\/(.+?) b\//.exec(piece)?.[1];
    const body = piece.search(/^@@/m);
    if (name !== undefined) found.set(name, body < 0 ? piece : piece.slice(body));
  }
  return found;
}
