/** A view that fails takes nothing else with it.
 *
 * In:   a view; the address it was made for.
 * Out:  the view, or what went wrong, until the address changes.
 */

import { Component, type ComponentChildren } from "preact";

interface Props {
  at: string;
  children?: ComponentChildren;
}

export class Crash extends Component<Props, { error: Error | null; at: string }> {
  state = { error: null, at: "" };

  static getDerivedStateFromError(error: Error) {
    return { error };
  }

  static getDerivedStateFromProps(props: Props, state: { error: Error | null; at: string }) {
    return state.at === props.at ? null : { at: props.at, error: null };
  }

  componentDidCatch(error: Error): void {
    console.error(error);
  }

  render() {
    const error: Error | null = this.state.error;
    if (!error) return this.props.children;
    return (
      <div class="message" role="alert">
        <h1>This view failed</h1>
        <p class="mono small">{(error as Error).message}</p>
        <p>
          <button type="button" class="button" onClick={() => this.setState({ error: null })}>
            Try again
          </button>
        </p>
      </div>
    );
  }
}
