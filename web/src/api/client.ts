/** The server, as functions.
 *
 * In:   keys, filters, edits, queries.
 * Out:  typed answers; ApiError with the server's sentence, `status` 0 where there is no server.
 */

import { outside } from "./base.ts";
import { decodeFrame, type Frame } from "./frame.ts";
import { groupsAmong, oneOf } from "./groups.ts";
import { ApiError } from "./values.ts";
import type {
  About,
  Deleted,
  Detail,
  Diagnosis,
  Edits,
  Key,
  Matching,
  Names,
  Row,
  RunGroups,
  Runs,
  SavedViews,
} from "./types.ts";
import type { SeriesFrame, SeriesQuery, Tree, ViewChanges } from "./types.ts";

export { ApiError };

/** Told of every answer (true) and of every failure to reach the server (false). */
type Watcher = (reached: boolean) => void;
const watchers = new Set<Watcher>();

export function watchServer(watcher: Watcher): () => void {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}

export function tellServer(reached: boolean): void {
  for (const watcher of watchers) watcher(reached);
}

async function ask(path: string, options: RequestInit = {}, again = PATIENCE): Promise<Response> {
  let answer: Response;
  try {
    answer = await fetch(outside(path), { credentials: "same-origin", ...options });
  } catch (error) {
    if ((error as Error).name === "AbortError") throw error;
    tellServer(false);
    throw new ApiError(0, "The server does not respond. Is `barograph view` still running?");
  }
  tellServer(true);
  if (answer.ok) return answer;
  if (answer.status === 503 && again > 0) {
    // what takes long goes on being worked out, and is asked for again
    const seconds = Number(answer.headers.get("Retry-After")) || 2;
    await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
    options.signal?.throwIfAborted();
    return ask(path, options, again - 1);
  }
  if (answer.status === 401)
    throw new ApiError(401, "This server needs its token: open the address that `barograph view` printed.");
  throw new ApiError(answer.status, await sentence(answer));
}

const PATIENCE = 40; // times that a slow answer is asked for again: with its 25 seconds each, a quarter of an hour

async function sentence(answer: Response): Promise<string> {
  try {
    const body = (await answer.json()) as { error?: unknown };
    if (typeof body.error === "string" && body.error) return body.error;
  } catch {
    // no JSON: the status has to do
  }
  return `the server answered ${answer.status} ${answer.statusText}`.trim();
}

export async function getJson<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await (await ask(path, { signal })).json()) as T;
}

export async function getFrame<Header>(path: string, signal?: AbortSignal): Promise<Frame<Header>> {
  return decodeFrame<Header>(await (await ask(path, { signal })).arrayBuffer());
}

/** Many series in one answer, in the order asked. */
export async function getSeries(query: SeriesQuery, signal?: AbortSignal): Promise<Frame<SeriesFrame>> {
  const body = JSON.stringify(withGroups(query));
  const headers = { "Content-Type": "application/json" };
  return decodeFrame(await (await ask("/api/series", { method: "POST", body, headers, signal })).arrayBuffer());
}

/** The request with the runs of the groups in it. */
const withGroups = (query: SeriesQuery): SeriesQuery => ({
  ...query,
  groups: groupsAmong(query.series.map((one) => one.run)),
});

/** Every point of a chart, as a file. */
export async function getPoints(query: SeriesQuery, format: "csv" | "parquet"): Promise<Blob> {
  const body = JSON.stringify(withGroups(query));
  const headers = { "Content-Type": "application/json" };
  return (await ask(`/api/series?format=${format}`, { method: "POST", body, headers })).blob();
}

// -- what there is ------------------------------------------------------------------------------------

let aboutOnce: Promise<About> | null = null;

/** Asked once; again after a failure. */
export function getAbout(fresh = false): Promise<About> {
  if (fresh || aboutOnce === null) {
    aboutOnce = getJson<About>("/api/about").catch((error: unknown) => {
      aboutOnce = null;
      throw error;
    });
  }
  return aboutOnce;
}

const FIRST_MILLISECONDS = 300; // what was read of thousands of runs by then is shown

/** All runs. soon: those that were read by then, if the server has only begun. */
export const getRuns = (soon = false): Promise<Runs> =>
  getJson(soon ? `/api/runs?within=${FIRST_MILLISECONDS}` : "/api/runs");

/** Which runs a filter lets through. */
export function getMatching(filter: string, signal?: AbortSignal): Promise<Matching> {
  return getJson(`/api/matching?filter=${encodeURIComponent(filter)}`, signal);
}

export function getGroups(query: URLSearchParams, signal?: AbortSignal): Promise<RunGroups> {
  return getJson(`/api/groups?${query}`, signal);
}

export const runPath = (key: Key, rest = ""): string => `/api/runs/${key}${rest}`;

export function getRun(key: Key, signal?: AbortSignal): Promise<Detail> {
  return getJson(runPath(key), signal);
}

export function getNames(key: Key, match?: string, limit?: number, signal?: AbortSignal): Promise<Names> {
  const query = new URLSearchParams();
  if (match !== undefined) query.set("match", match);
  if (limit !== undefined) query.set("limit", String(limit));
  return getJson(runPath(oneOf(key), `/names${query.size ? `?${query}` : ""}`), signal);
}

export function getTree(key: Key, prefix: string, signal?: AbortSignal): Promise<Tree> {
  return getJson(runPath(oneOf(key), `/names?tree=${encodeURIComponent(prefix)}`), signal);
}

export function getFindings(key: Key, signal?: AbortSignal): Promise<Diagnosis> {
  return getJson(runPath(key, "/findings"), signal);
}

// -- edits --------------------------------------------------------------------------------------------

async function edit(path: string, method: string, body?: unknown): Promise<Response> {
  const send = async (fresh: boolean): Promise<Response> =>
    ask(path, {
      method,
      body: body === undefined ? undefined : JSON.stringify(body),
      headers: { "Content-Type": "application/json", "X-Barograph-Token": (await getAbout(fresh)).edit_token },
    });
  try {
    return await send(false);
  } catch (error) {
    // a server that was started again has another token
    if (error instanceof ApiError && error.status === 403) return await send(true);
    throw error;
  }
}

export async function editRun(key: Key, changes: Edits): Promise<Row> {
  return (await (await edit(runPath(key), "PUT", changes)).json()) as Row;
}

/** To the trash; the answer's id brings it back. */
export async function deleteRun(key: Key): Promise<string> {
  return ((await (await edit(runPath(key), "DELETE")).json()) as Deleted).id;
}

export async function restoreRun(id: string): Promise<void> {
  await edit(`/api/trash/${encodeURIComponent(id)}/restore`, "POST");
}

export function getLayout<T>(project: string): Promise<T> {
  return getJson(`/api/projects/${encodeURIComponent(project)}/layout`);
}

export async function putLayout(project: string, layout: unknown): Promise<void> {
  await edit(`/api/projects/${encodeURIComponent(project)}/layout`, "PUT", layout);
}

/** project: "" for the views of the folder that is served. */
export function getViews(project: string): Promise<SavedViews> {
  return getJson(`/api/views?project=${encodeURIComponent(project)}`);
}

/** Only what is in the changes changes; what others saved meanwhile stays, and is in the answer. */
export async function changeViews(project: string, changes: ViewChanges): Promise<SavedViews> {
  return (await (await edit(`/api/views?project=${encodeURIComponent(project)}`, "PUT", changes)).json()) as SavedViews;
}
