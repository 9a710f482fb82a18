/** Drawing again only what changed.
 *
 * In:   a component; calls that are made anew at each drawing.
 * Out:  the component, drawn when one of its properties is another; calls that stay the same and do the latest.
 */

import { Component, h, type FunctionComponent } from "preact";
import { useMemo, useRef } from "preact/hooks";

type Properties = Record<string, unknown>;

/** Properties are compared one by one, with ===. */
export function steady<P extends object>(draw: FunctionComponent<P>): FunctionComponent<P> {
  class Steady extends Component<P> {
    shouldComponentUpdate(next: Readonly<P>): boolean {
      const [now, then] = [this.props as Properties, next as Properties];
      for (const name in then) if (then[name] !== now[name]) return true;
      for (const name in now) if (!(name in then)) return true;
      return false;
    }
    render() {
      return h(draw, this.props as P);
    }
  }
  return Steady as unknown as FunctionComponent<P>;
}

/** An object of calls that stays the same. */
export function useSteady<T extends object>(calls: T): T {
  const latest = useRef(calls);
  latest.current = calls;
  return useMemo(() => {
    const made: Record<string, unknown> = {};
    for (const name of Object.keys(calls) as (keyof T & string)[]) {
      made[name] = (...given: unknown[]) => (latest.current[name] as (...given: unknown[]) => unknown)(...given);
    }
    return made as T;
  }, []);
}
