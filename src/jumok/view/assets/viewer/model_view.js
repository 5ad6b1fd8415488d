// All heads of all layers at once, as small pictures; beside them the one under the pointer, large and with its numbers.
// A small picture is a matrix of weights pooled to few cells as groups of tokens are: summed over keys, averaged over
// queries. So a thin diagonal stays visible at 512 tokens, and the pictures of all heads share one scale.

import { button, choice } from "../base/controls.js";
import { scaleTable } from "../base/colours.js";
import { Bitmap } from "../base/painter.js";
import { decimal, percent, signed, t } from "../base/words.js";

/** @import { Theme } from "../base/colours.js" */
/** @import { Box, Painter } from "../base/painter.js" */
/** @import { TipLine } from "../base/tooltip.js" */
/** @import { Store } from "./store.js" */
/** @import { Token, Trace, Weights } from "./trace.js" */
/** @import { Host } from "./view.js" */

/** @typedef {{layer: number, head: number}} Place a head, by its numbers in the model */
/** @typedef {Place & {column: number, row: number, x: number, y: number, size: number}} Tile a small picture */
/**
 * @typedef {Box & {queries: Token[], keys: Token[], labelled: boolean, left: number, top: number, columns: number,
 *   rows: number, stats: number}} Inset the large picture: its cells start at (left, top), its numbers at `stats`
 */
/**
 * @typedef {{block: string, tiles: Tile[], layers: number[], numbers: number[], sorted: boolean, wide: boolean,
 *   inset: Inset, width: number, height: number, step: number, gap: number, gutter: number, header: number,
 *   caption: number, columns: number}} ModelLayout
 */
/**
 * @typedef {[label: string, read: (place: Place) => number|null, write: (value: number|null) => string,
 *   about: string]} StatLine
 */

const MODEL_STATS = ["entropy", "distance", "first", "previous", "self"];
const MODEL_THUMBNAIL_CELLS = 56;
const MODEL_AT_ONCE = 6;
const MODEL_INSET_CELLS = 320;
const MODEL_WIDE = 720;
const MODEL_LABEL = 11.5; // pixels that a row with a label needs
const MODEL_LARGEST_TILE = 132;

/** A number of a head as it is written on the page. @param {string} name @param {number|null|undefined} value */
function statText(name, value) {
  if (value === null || value === undefined) return "–";
  if (name === "entropy") return decimal(value, 2);
  return name === "distance" ? decimal(value, 1) : percent(value);
}

/** Which cell of so many each of n rows falls into, evenly. @param {number} n @param {number} cells */
function modelCells(n, cells) {
  return Int32Array.from({ length: n }, (_, i) => Math.floor((i * cells) / n));
}

/**
 * The weights as a picture of at most so many cells a side: the square root of the pooled weight gives the colour.
 * @param {Weights} weights @param {number} limit @param {Theme} theme
 */
function weightsBitmap({ t: rows, s: columns, data, causal }, limit, theme) {
  const height = Math.min(rows, limit);
  const width = Math.min(columns, limit);
  const pooled = new Float32Array(height * width);
  if (height === rows && width === columns) {
    pooled.set(data);
  } else {
    const rowCell = modelCells(rows, height);
    const columnCell = modelCells(columns, width);
    const members = new Float32Array(height);
    for (const cell of rowCell) members[cell] += 1;
    for (let i = 0; i < rows; i += 1) {
      const to = rowCell[i] * width;
      const share = 1 / members[rowCell[i]];
      const end = causal ? Math.min(columns, columns - rows + i + 1) : columns;
      for (let j = 0; j < end; j += 1) pooled[to + columnCell[j]] += data[i * columns + j] * share;
    }
  }
  const table = scaleTable("cool", theme);
  const rgba = new Uint8ClampedArray(4 * pooled.length);
  for (let i = 0; i < pooled.length; i += 1) {
    const at = 4 * Math.min(255, Math.round(255 * Math.sqrt(pooled[i])));
    rgba[4 * i] = table[at];
    rgba[4 * i + 1] = table[at + 1];
    rgba[4 * i + 2] = table[at + 2];
    rgba[4 * i + 3] = 255;
  }
  return new Bitmap(width, height, rgba);
}

// Safari has no requestIdleCallback.
/** @param {() => void} work */
const modelWhenIdle = (work) =>
  /** @type {{requestIdleCallback?: unknown}} */ (globalThis).requestIdleCallback
    ? requestIdleCallback(work, { timeout: 120 })
    : setTimeout(work, 8);

export class ModelView {
  /** @type {Map<string, Bitmap|null>} */ thumbnails;
  /** @type {Map<string, Bitmap>} */ insets;
  /** @type {Theme} */ theme;
  /** @type {ModelLayout} */ layout;
  /** @type {Map<string, Tile>} */ byPlace;

  /** @param {Trace} trace @param {Store} store @param {Host} host */
  constructor(trace, store, host) {
    this.trace = trace;
    this.store = store;
    this.host = host;
    this.thumbnails = new Map(); // "block/layer/head/grouping/theme" -> Bitmap
    this.insets = new Map(); // the same, at the size of the inset; the last few
    /** @type {Set<string>} */
    this.wanted = new Set(); // insets that are being decoded
    this.working = false;
  }

  // --- what there is, and where it stands ---

  /** Every head in the file: {layer, head}, in the order of the model. */
  heads() {
    const { block } = this.store.state;
    return this.trace
      .attention(block)
      .layers.flatMap((layer) => this.trace.heads(block, layer).map((head) => ({ layer, head })));
  }

  /** @param {string} name @param {Place} place */
  stat(name, { layer, head }) {
    return this.trace.stat(name, this.store.state.block, layer, head);
  }

  /** The numbers that this block's heads have: between two texts there is no distance. */
  statNames() {
    const { stats } = this.trace.attention(this.store.get("block"));
    return MODEL_STATS.filter((name) => stats?.[name]);
  }

  /** What is sorted by, where this block has it. */
  criterion() {
    const { sort } = this.store.state;
    return this.statNames().includes(sort) ? sort : "order";
  }

  /** The change of loss without this head, if the probes were run. @param {Place} place */
  delta({ layer, head }) {
    const { block } = this.store.state;
    const found = this.trace.probes?.ablation?.find(
      (entry) => entry.block === block && entry.layer === layer && entry.head === head,
    );
    return found ? found.delta_nats : null;
  }

  /** @param {number} width @param {number} height */
  async prepare(width, height) {
    const sort = this.criterion();
    const places = this.heads();
    const sorted = sort !== "order";
    if (sorted) places.sort((a, b) => (this.stat(sort, b) ?? -Infinity) - (this.stat(sort, a) ?? -Infinity));
    const layers = [...new Set(places.map(({ layer }) => layer))];
    const numbers = [...new Set(places.map(({ head }) => head))].sort((a, b) => a - b);
    const wide = width >= MODEL_WIDE;
    const insetWidth = wide ? Math.min(460, Math.max(280, Math.round(width * 0.36))) : width - 16;
    const gutter = sorted ? (wide ? 20 : 8) : wide ? 64 : 26;
    const header = sorted ? 10 : 30;
    const columns = sorted ? Math.max(1, Math.min(places.length, numbers.length)) : Math.max(1, numbers.length);
    const rows = sorted ? Math.ceil(places.length / columns) : layers.length;
    const room = (wide ? width - insetWidth - 28 : width - 8) - gutter;
    const byWidth = Math.floor(room / columns);
    const written = sorted ? 17 : 0;
    const byHeight = Math.floor((height - header - 16) / Math.max(1, rows)) - written;
    const step = Math.max(sorted && !wide ? 44 : 20, Math.min(byWidth, Math.max(byHeight, 44), MODEL_LARGEST_TILE));
    // Where a number has no room, a strip of colour still shows it.
    const caption = written && step < 38 ? 6 : written;
    const perRow = sorted ? Math.max(1, Math.min(columns, Math.floor(room / step))) : columns;
    const gap = step >= 40 ? 6 : 3;
    const tiles = places.map((place, i) => {
      const column = sorted ? i % perRow : numbers.indexOf(place.head);
      const row = sorted ? Math.floor(i / perRow) : layers.indexOf(place.layer);
      return { ...place, column, row, x: gutter + column * step, y: header + row * (step + caption), size: step - gap };
    });
    const gridRows = tiles.length ? Math.max(...tiles.map(({ row }) => row)) + 1 : 0;
    const gridBottom = header + gridRows * (step + caption);
    const gridRight = gutter + perRow * step;
    const inset = /** @type {Inset} */ (
      wide
        ? { x: gridRight + 28, y: 0, width: Math.min(560, Math.max(insetWidth, width - gridRight - 44)) }
        : { x: 8, y: gridBottom + 18, width: insetWidth }
    );
    this.insetLayout(inset, wide ? height : Infinity);
    const block = this.store.get("block");
    const measures = { width, step, gap, gutter, header, caption, columns: perRow };
    this.layout = /** @type {ModelLayout} */ ({ block, tiles, layers, numbers, sorted, wide, inset, ...measures });
    this.byPlace = new Map(tiles.map((tile) => [`${tile.layer}.${tile.head}`, tile]));
    this.work();
    const bottom = wide ? Math.max(gridBottom, inset.y + inset.height) : inset.y + inset.height;
    this.layout.height = Math.ceil(bottom + 8);
    return { width: Math.max(width, wide ? 0 : gridRight), height: this.layout.height };
  }

  /**
   * Where the parts of the large picture go; its height follows from the number of tokens and what fits.
   * @param {Inset} inset @param {number} height
   */
  insetLayout(inset, height) {
    const { block, grouping } = this.store.state;
    const queries = this.trace.tokens(this.trace.queries(block), grouping);
    const keys = this.trace.tokens(this.trace.keys(block), grouping);
    const stats = this.statLines().length;
    const below = 34 + stats * 24;
    const room = Math.max(170, Math.min(inset.width, height - below - 64));
    const labelled = Math.max(queries.length, keys.length) * MODEL_LABEL <= Math.min(inset.width - 60, room - 20);
    const left = labelled ? 58 : 0;
    const top = labelled ? 78 : 46;
    const [across, down] = [(inset.width - left) / keys.length, (room - (labelled ? 20 : 0)) / queries.length];
    const unit = Math.min(across, down, labelled ? 26 : 13);
    const [columns, rows] = [Math.max(40, unit * keys.length), Math.max(40, unit * queries.length)];
    Object.assign(inset, { queries, keys, labelled, left, top, columns, rows, stats: top + rows + 30 });
    inset.height = inset.stats + stats * 24 + 6;
  }

  // --- decoding, a little at a time ---

  /** @param {Place} place */
  name({ layer, head }) {
    const { block, grouping } = this.store.state;
    return `${block}/${layer}/${head}/${grouping}/${this.theme?.name ?? "light"}`;
  }

  /** Whether what stands where was worked out for the block that is chosen now. */
  current() {
    return this.layout?.block === this.store.get("block");
  }

  /** The next heads without a picture: those on the screen first, several at once; the others one by one. */
  nextTiles() {
    const missing = this.layout.tiles.filter((tile) => !this.thumbnails.has(this.name(tile)));
    const seen = this.host.window();
    const visible = missing.filter((tile) => tile.y + tile.size > seen.y && tile.y < seen.y + seen.height);
    return visible.length ? visible.slice(0, MODEL_AT_ONCE) : missing.slice(0, 1);
  }

  work() {
    if (this.working || !this.theme) return;
    this.working = true;
    let shown = performance.now();
    const step = async () => {
      const tiles = this.current() && this.store.get("view") === "model" ? this.nextTiles() : [];
      if (!tiles.length) {
        this.working = false;
        this.host.repaint();
        return;
      }
      await Promise.all(tiles.map((tile) => this.thumbnail(tile)));
      if (performance.now() - shown > 60) {
        shown = performance.now();
        this.host.repaint();
      }
      if (tiles.length > 1) setTimeout(step);
      else modelWhenIdle(step);
    };
    this.host.ready.then(() => setTimeout(step)); // the page answers first
  }

  /** @param {Tile} tile */
  async thumbnail(tile) {
    const name = this.name(tile);
    const { theme } = this;
    const { block, grouping } = this.store.state;
    let bitmap = null;
    try {
      const weights = await this.trace.grouped(block, tile.layer, tile.head, grouping);
      bitmap = weightsBitmap(weights, MODEL_THUMBNAIL_CELLS, theme);
    } catch (error) {
      // Damaged: an empty frame, once, instead of the same failure for ever.
      this.host.announce(/** @type {Error} */ (error).message);
    }
    this.thumbnails.set(name, bitmap);
  }

  /** The large picture of a head; until it is decoded, its small one. @param {Place} place */
  large(place) {
    const name = this.name(place);
    const known = this.insets.get(name);
    if (known) return known;
    if (!this.wanted.has(name) && this.current()) {
      this.wanted.add(name);
      const { block, grouping } = this.store.state;
      const { theme } = this;
      this.trace
        .grouped(block, place.layer, place.head, grouping)
        .then((weights) => {
          if (this.insets.size > 24) this.insets.delete(/** @type {string} */ (this.insets.keys().next().value));
          this.insets.set(name, weightsBitmap(weights, MODEL_INSET_CELLS, theme));
          this.host.repaint();
        })
        .catch((error) => this.host.announce(error.message))
        .finally(() => this.wanted.delete(name));
    }
    return this.thumbnails.get(name) ?? null;
  }

  // --- painting ---

  /** @param {Painter} painter @param {Theme} theme @param {Box} window */
  paint(painter, theme, window) {
    this.theme = theme;
    const { layout } = this;
    if (!this.current()) return;
    const { tiles, sorted, layers, numbers, gutter, header, step, caption, gap } = layout;
    const small = { size: 11, fill: theme.muted };
    if (!sorted) {
      if (layout.wide) painter.text(t("head"), gutter - 12, 12, { ...small, fill: theme.faint, align: "end" });
      for (const number of numbers) {
        const x = gutter + numbers.indexOf(number) * step + (step - gap) / 2;
        if (x <= gutter + layout.columns * step) painter.text(String(number), x, 12, { ...small, align: "center" });
      }
      for (const layer of layers) {
        const y = header + layers.indexOf(layer) * (step + caption) + (step - gap) / 2;
        const label = layout.wide ? t("layer.n", { n: layer }) : String(layer);
        painter.text(label, gutter - (layout.wide ? 12 : 8), y, { ...small, align: "end" });
      }
    }
    for (const tile of tiles) {
      if (tile.y + step + caption < window.y || tile.y > window.y + window.height) continue;
      this.paintTile(painter, theme, tile);
    }
    this.paintSelected(painter, theme);
    const { layer, head } = this.store.state;
    if (this.byPlace.has(`${layer}.${head}`)) this.paintInset(painter, theme, { layer, head }, window);
    if (tiles.some((tile) => !this.thumbnails.has(this.name(tile)))) this.work();
  }

  /** @param {Painter} painter @param {Theme} theme @param {Tile} tile */
  paintTile(painter, theme, tile) {
    const { caption } = this.layout;
    const { x, y, size } = tile;
    const bitmap = this.thumbnails.get(this.name(tile));
    if (bitmap) painter.image(bitmap, x, y, size, size);
    else painter.rect(x, y, size, size, { fill: theme.masked });
    painter.rect(x - 0.5, y - 0.5, size + 1, size + 1, { stroke: theme.rule });
    if (caption < 10) return;
    const sort = this.criterion();
    const value = statText(sort, this.stat(sort, tile));
    const middle = y + size + caption / 2 + 1;
    const font = { size: 11, maxWidth: size };
    const place = `${tile.layer}.${tile.head}`;
    if (size >= 62) {
      painter.text(place, x, middle, { ...font, fill: theme.ink, weight: 600 });
      painter.text(value, x + size, middle, { ...font, fill: theme.muted, align: "end" });
    } else {
      painter.text(place, x + size / 2, middle, { ...font, fill: theme.ink, align: "center" });
    }
  }

  /** @param {Painter} painter @param {Theme} theme */
  paintSelected(painter, theme) {
    const { layer, head } = this.store.state;
    const tile = this.byPlace.get(`${layer}.${head}`);
    if (tile) this.paintFrame(painter, tile, theme.accent);
  }

  /** @param {Painter} painter @param {{x: number, y: number, size: number}} tile @param {string} stroke */
  paintFrame(painter, { x, y, size }, stroke) {
    painter.rect(x - 2, y - 2, size + 4, size + 4, { stroke, width: 2, radius: 2 });
  }

  /** Beside the small pictures the large one stays in sight while they scroll. @param {Box} window */
  insetTop(window) {
    const { inset, wide, height } = this.layout;
    return wide ? Math.max(0, Math.min(window.y, height - inset.height)) : inset.y;
  }

  /** @param {Painter} painter @param {Theme} theme @param {Place} place @param {Box} window */
  paintInset(painter, theme, place, window) {
    const { inset } = this.layout;
    const y = this.insetTop(window);
    const { x, left, top, columns, rows, queries, keys, labelled } = inset;
    painter.text(t("place", place), x, y + 12, { size: 15, weight: 600, fill: theme.ink });
    painter.text(t("model.axes"), x, y + 31, { size: 11, fill: theme.muted, maxWidth: inset.width });
    const bitmap = this.large(place);
    const [a, b] = [x + left, y + top];
    if (bitmap) painter.image(bitmap, a, b, columns, rows);
    else painter.rect(a, b, columns, rows, { fill: theme.masked });
    painter.rect(a - 0.5, b - 0.5, columns + 1, rows + 1, { stroke: theme.rule });
    if (labelled) {
      const unit = { x: columns / keys.length, y: rows / queries.length };
      const font = { size: Math.min(11, Math.floor(unit.y) - 1), fill: theme.ink };
      queries.forEach((token, i) =>
        painter.text(token.text, a - 6, b + (i + 0.5) * unit.y, { ...font, align: "end", maxWidth: left - 8 }),
      );
      keys.forEach((token, j) =>
        painter.text(token.text, a + (j + 0.5) * unit.x + 2, b - 6, { ...font, angle: -60, maxWidth: 38 }),
      );
    }
    this.paintStats(painter, theme, place, y + inset.stats);
  }

  /**
   * What is told of a head, a line each: [label, number of a head, how it is written, what it means].
   * @returns {StatLine[]}
   */
  statLines() {
    const block = this.store.get("block");
    const { probes } = this.trace;
    /** @type {StatLine[]} */
    const lines = this.statNames().map((name) => [
      t(`stat.${name}`),
      (place) => this.stat(name, place),
      (value) => statText(name, value),
      t(`stat.${name}About`),
    ]);
    for (const [name, label] of /** @type {const} */ ([
      ["previous", "induction.previous"],
      ["induction", "induction"],
    ])) {
      const scores = probes?.[name]?.[block];
      if (!scores) continue;
      /** @param {Place} place */
      const read = ({ layer, head }) => {
        const [row, column] = this.trace.place(block, layer, head);
        return scores[row]?.[column] ?? null;
      };
      const about = t(name === "previous" ? "induction.previousAbout" : "induction.about");
      lines.push([t(label), read, (value) => (value === null ? "–" : percent(value)), about]);
    }
    if (probes?.ablation?.some((entry) => entry.block === block)) {
      /** @param {number|null} value */
      const write = (value) => (value === null ? "–" : signed(value, 4));
      lines.push([t("ranking.delta"), (place) => this.delta(place), write, t("ranking.deltaAbout")]);
    }
    return lines;
  }

  /**
   * Each number of the head on a line that shows where all other heads stand.
   * @param {Painter} painter @param {Theme} theme @param {Place} place @param {number} top
   */
  paintStats(painter, theme, place, top) {
    const { inset, tiles } = this.layout;
    const { x, width } = inset;
    const nameWidth = Math.min(130, width * 0.36);
    const valueWidth = 58;
    const from = x + nameWidth + valueWidth + 14;
    const to = x + width - 8;
    const lines = this.statLines();
    lines.forEach(([label, read, write], i) => {
      const y = top + i * 24;
      const value = read(place);
      const values = tiles.map(read).filter((other) => other !== null);
      painter.text(label, x, y, { size: 12, fill: theme.muted, maxWidth: nameWidth });
      painter.text(write(value), x + nameWidth + valueWidth, y, {
        size: 12,
        weight: 600,
        fill: theme.ink,
        align: "end",
      });
      if (!values.length) return;
      const [low, high] = [Math.min(...values), Math.max(...values)];
      /** @param {number} v */
      const at = (v) => (high > low ? from + ((v - low) / (high - low)) * (to - from) : (from + to) / 2);
      painter.line(from, y, to, y, { stroke: theme.rule });
      const tick = { stroke: theme.faint, opacity: values.length > 60 ? 0.35 : 0.6 };
      for (const other of values) painter.line(at(other), y - 4, at(other), y + 4, tick);
      if (value !== null) painter.circle(at(value), y, 4.5, { fill: theme.accent, stroke: theme.surface, width: 1.5 });
    });
  }

  /** @param {Painter} painter @param {Theme} theme @param {Box} window @param {{id: string}|null} pick */
  paintHover(painter, theme, window, pick) {
    const tile = pick ? this.byPlace?.get(pick.id) : null;
    if (!tile || !this.current()) return;
    const { inset } = this.layout;
    this.paintFrame(painter, tile, theme.ink);
    painter.rect(inset.x - 4, this.insetTop(window), inset.width + 12, inset.height, { fill: theme.surface });
    this.paintInset(painter, theme, tile, window);
  }

  // --- pointing, keys, words ---

  /** @param {number} x @param {number} y */
  at(x, y) {
    const { step, caption } = this.layout;
    return this.layout.tiles.find(
      (tile) => x >= tile.x - 2 && x < tile.x + step - 2 && y >= tile.y - 2 && y < tile.y + step + caption - 2,
    );
  }

  /** @param {number} x @param {number} y */
  pick(x, y) {
    if (!this.current()) return null;
    const tile = this.at(x, y);
    if (!tile) return this.pickStat(x, y);
    const { layer, head } = tile;
    /** @type {TipLine[]} */
    const lines = [{ text: t("place", { layer, head }), strong: true }];
    if (!this.layout.wide) {
      for (const name of this.statNames()) {
        lines.push({ text: t(`stat.${name}`), value: statText(name, this.stat(name, tile)) });
      }
    } else if (this.layout.sorted) {
      const sort = this.criterion();
      lines.push({ text: t(`stat.${sort}`), value: statText(sort, this.stat(sort, tile)) });
    }
    return { id: `${layer}.${head}`, tooltip: lines, select: { layer, head, heads: [head] }, cursor: "pointer" };
  }

  /** What a number beside the large picture means. @param {number} x @param {number} y */
  pickStat(x, y) {
    const { inset } = this.layout;
    const line = Math.floor((y - this.insetTop(this.host.window()) - inset.stats + 12) / 24);
    const found = x >= inset.x && x < inset.x + inset.width ? this.statLines()[line] : null;
    if (!found) return null;
    return {
      id: `stat ${line}`,
      tooltip: [
        { text: found[0], strong: true },
        { text: found[3], muted: true },
      ],
    };
  }

  /** Closer to one head: its lines. @param {Place} place */
  opened({ layer, head }) {
    const view = this.store.get("block") === "cross" && this.trace.blocks.length > 1 ? "cross" : "heads";
    return { layer, head, heads: [head], view };
  }

  /** @param {number} x @param {number} y */
  alternate(x, y) {
    const tile = this.layout && this.at(x, y);
    return tile ? this.opened(tile) : null;
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const { layer, head } = this.store.state;
    if (event.key === "Enter") {
      this.store.set(this.opened({ layer, head }));
      return true;
    }
    /** @type {Record<string, number[]>} */
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const move = moves[event.key];
    if (!move || !this.layout || event.ctrlKey || event.metaKey || event.altKey) return false;
    const { tiles } = this.layout;
    const from = this.byPlace.get(`${layer}.${head}`) ?? tiles[0];
    const next = tiles.find(({ column, row }) => column === from.column + move[0] && row === from.row + move[1]);
    if (next) {
      this.store.set({ layer: next.layer, head: next.head, heads: [next.head] });
      const seen = this.host.window();
      const hidden = next.y < seen.y || next.y + next.size > seen.y + seen.height;
      if (hidden) this.host.scrollTo(seen.x, Math.max(0, next.y - 40));
    }
    return true;
  }

  controls() {
    const names = this.statNames()
      .filter((name) => name !== "self")
      .map((name) => [name, t(`stat.${name}`)]);
    const options = [["order", t("sort.order")], ...names];
    return [
      choice(t("sort"), options, this.criterion(), (value) => this.store.set({ sort: value })),
      button(t("model.open"), { onclick: () => this.store.set(this.opened(this.store.state)) }),
    ];
  }

  title() {
    return t("tab.model");
  }

  legend() {
    return [{ scale: "sequential", from: "0", to: "1", text: t("legend.weight") }];
  }

  summary() {
    const { layer, head } = this.store.state;
    const place = { layer, head };
    const numbers = this.statNames().map((name) => `${t(`stat.${name}`)} ${statText(name, this.stat(name, place))}`);
    return `${t("tab.model")}. ${t("place", place)}: ${numbers.join(", ")}.`;
  }

  note() {
    return t("legend.root");
  }

  table() {
    const columns = [t("layer"), t("head"), ...this.statNames().map((name) => t(`stat.${name}`))];
    const rows = this.heads().map((place) => [
      place.layer,
      place.head,
      ...this.statNames().map((name) => statText(name, this.stat(name, place))),
    ]);
    return { caption: t("tab.model"), columns, rows };
  }

  panel() {
    return null;
  }
}
