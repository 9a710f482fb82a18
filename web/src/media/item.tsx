/** One image, sound, film, table or file.
 *
 * In:   the item and its run.
 * Out:  it, with its caption; an image opens large with a click.
 */

import { useEffect, useRef } from "preact/hooks";
import type { Key, MediaItem } from "../api/types.ts";
import { Icon } from "../shell/icon.tsx";
import { duration, size, whole } from "../shell/text.ts";
import { fileOf, Table } from "./table.tsx";

/** What a screen reader says of it, and what stands below it. */
export function words(item: MediaItem): string {
  return [item.caption || item.name, `step ${whole(item.step)}`, item.rank ? `rank ${item.rank}` : ""]
    .filter(Boolean)
    .join(", ");
}

const SMALL = 128; // pixels: a smaller image is drawn larger with its pixels as squares

export function Item({ run, item, open }: { run: Key; item: MediaItem; open: (item: MediaItem) => void }) {
  const file = fileOf(run, item.file);
  if (!item.there)
    return (
      <figure class="media-item">
        <p class="media-gone quiet small">The file of {words(item)} is gone or not whole.</p>
      </figure>
    );
  return (
    <figure class={`media-item ${item.type}`}>
      {item.type === "image" && (
        <button type="button" class="media-open" aria-label={`Open ${words(item)}`} onClick={() => open(item)}>
          <img class={isSmall(item) ? "pixels" : ""} src={file} alt={words(item)} {...sizeOf(item)} loading="lazy" />
        </button>
      )}
      {item.type === "audio" && <audio controls preload="none" src={file} aria-label={words(item)} />}
      {item.type === "video" && <video controls preload="metadata" src={file} aria-label={words(item)} />}
      {item.type === "table" && (
        <Table key={item.file} run={run} file={item.file} label={words(item)} rows={item.shape[0]} />
      )}
      {item.type === "file" && (
        <a class="button" href={file} download={item.file}>
          <Icon name="download" /> {item.file.replace(/^[0-9a-f]{32}/, "") || "file"} · {size(item.bytes)}
        </a>
      )}
      {(item.caption || item.rank > 0 || item.seconds !== null) && (
        <figcaption class="small">
          {item.caption}
          <span class="quiet">
            {item.seconds !== null && ` ${duration(item.seconds)}`}
            {item.rank > 0 && ` rank ${item.rank}`}
          </span>
        </figcaption>
      )}
    </figure>
  );
}

/** Its place is kept while it loads. */
const sizeOf = ({ shape: [height, width] }: MediaItem) => (width && height ? { width, height } : {});

function isSmall(item: MediaItem): boolean {
  const [high = SMALL, wide = SMALL] = item.shape;
  return high < SMALL && wide < SMALL;
}

/** An image as large as the window; arrow keys go through its steps. */
export function Large({
  run,
  item,
  close,
  turn,
}: {
  run: Key;
  item: MediaItem;
  close: () => void;
  turn: (by: number) => void;
}) {
  const box = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (!box.current?.open) box.current?.showModal();
  }, []);
  const file = fileOf(run, item.file);
  const [high, wide] = item.shape;
  return (
    <dialog
      ref={box}
      class="media-large"
      aria-label={words(item)}
      onClose={close}
      onClick={(event) => event.target === box.current && box.current?.close()}
      onKeyDown={(event) => {
        if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
        event.preventDefault();
        event.stopPropagation();
        turn(event.key === "ArrowLeft" ? -1 : 1);
      }}
    >
      <img class={isSmall(item) ? "pixels" : ""} src={file} alt={words(item)} />
      <p class="media-foot">
        <span>
          <strong>{item.name}</strong> step {whole(item.step)}
          {item.caption && ` · ${item.caption}`}
          <span class="quiet">
            {wide !== undefined && ` · ${whole(wide)} × ${whole(high)}`} · {size(item.bytes)}
          </span>
        </span>
        <a class="button" href={file} download={item.file}>
          <Icon name="download" /> Save
        </a>
        <button type="button" class="button" onClick={() => box.current?.close()}>
          Close
        </button>
      </p>
    </dialog>
  );
}
