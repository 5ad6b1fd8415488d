// What the viewer's shell and its views know of each other.

import type { Child } from "../base/controls.js";
import type { Theme } from "../base/colours.js";
import type { Box } from "../base/painter.js";
import type { TipLine } from "../base/tooltip.js";
import type { State } from "./store.js";

/** What the shell does for a view. */
export interface Host {
  theme: Theme;
  ready: Promise<unknown>;
  repaint(): void;
  announce(text: string): void;
  scrollTo(x: number, y: number): void;
  window(): Box;
}

/** What stands at a point of a picture: where it is, what the tooltip says, and what a click changes. */
export interface Hit {
  id: string;
  place: any;
  tooltip?: (string | TipLine)[];
  select?: Partial<State> | null;
  cursor?: string;
  [more: string]: any;
}

export interface Table {
  caption: string;
  columns: (string | number)[];
  rows: (string | number)[][];
}

export type Controls = Child[];
