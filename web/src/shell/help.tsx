/** The list of keys, opened with `?`.
 *
 * In:   the keys that are bound where the page is now.
 * Out:  a dialog.
 */

import { useEffect, useRef } from "preact/hooks";
import { Icon } from "./icon.tsx";
import { keyList } from "./keys.ts";

const SHOWN: Record<string, string> = {
  Escape: "Esc",
  ArrowDown: "↓",
  ArrowUp: "↑",
  ArrowLeft: "←",
  ArrowRight: "→",
  Delete: "Del",
};

function Keys({ keys }: { keys: string }) {
  return (
    <>
      {keys.split(" ").map((one, at) => (
        <>
          {at > 0 && <span class="quiet"> then </span>}
          <kbd>{SHOWN[one] ?? one}</kbd>
        </>
      ))}
    </>
  );
}

export function Help({ close }: { close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog
      ref={dialog}
      class="dialog"
      aria-labelledby="help-title"
      onClose={close}
      onClick={(event) => event.target === dialog.current && close()}
    >
      <div class="dialog-inside">
        <header>
          <h1 id="help-title">Keys</h1>
          <button type="button" class="button bare icon-only" aria-label="Close" onClick={close}>
            <Icon name="close" />
          </button>
        </header>
        <div class="help-scopes">
          {keyList()
            .filter((scope) => scope.bindings.length > 0)
            .map((scope) => (
              <section key={scope.title}>
                <h3>{scope.title}</h3>
                <dl class="keys">
                  {scope.bindings.map((one) => (
                    <div key={one.keys}>
                      <dt>
                        <Keys keys={one.keys} />
                      </dt>
                      <dd>{one.says}</dd>
                    </div>
                  ))}
                </dl>
              </section>
            ))}
        </div>
      </div>
    </dialog>
  );
}
