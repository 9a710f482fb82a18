/** When the server is there again: what could not be asked is asked again.
 *
 * In:   what requests came to.
 * Out:  a number that grows whenever the server answers after it did not.
 */

import { useEffect, useState } from "preact/hooks";
import { watchServer } from "../api/client.ts";

export function useReturns(): number {
  const [returns, set] = useState(0);
  useEffect(() => {
    let away = false;
    return watchServer((reached) => {
      if (reached && away) set((before) => before + 1);
      away = !reached;
    });
  }, []);
  return returns;
}
