// A grid of any number of pictures. Only visible cells exist as elements, and only their pictures are requested.
//
// No element can be high enough for millions of pictures: the limit of browsers is between 16 and 33 million pixels. So
// the scrolling element is at most HIGHEST pixels high, and its scroll position is mapped to a position in the grid. A
// small step, such as one of a wheel or a finger, moves the grid by the same number of pixels. A large step, such as a
// drag of the scroll bar, moves the grid in proportion.

import { askSheet } from "./asking.js";
import { element, svg } from "./elements.js";
import { caption, drawings } from "./overlays.js";

const HIGHEST = 8_000_000;
const GAP = 8;
const CAPTION = 38; // height of the lines with name and label
const NAME = 21;
const PAGE = 20; // pictures that are requested together, a page
const AT_ONCE = 4; // requests that run at once
const KEPT = 40; // pages that stay in memory
const FIRST = 3; // number of pages that fill most screens
const SIDES = [128, 192, 256, 384, 512];

/** Return the size of pictures for cells of this width. It does not depend on the layout of the page. */
function sideFor(cell) {
  const pixels = cell * Math.min(window.devicePixelRatio || 1, 2);
  return SIDES.find((side) => side >= pixels) ?? SIDES.at(-1);
}

export class Grid {
  /** `open(place)` is called with the position of a picture that the user chooses, `failed(error)` if a request fails. */
  constructor({ scroll, spacer, layer, open, failed }) {
    Object.assign(this, { scroll, spacer, layer, open, failed });
    this.count = null; // number of pictures; null if it is not known yet
    this.wanted = {};
    this.cell = 160;
    this.caption = CAPTION;
    this.fields = false;
    this.hidden = new Set(); // names of fields that are not drawn
    this.top = 0; // scroll position in the grid, in pixels; it can be far larger than that of the element
    this.last = 0; // the last scroll position of the element
    this.selected = 0;
    this.pages = new Map();
    this.asked = new Map();
    this.cells = new Map();
    this.frame = 0;
    scroll.addEventListener("scroll", () => this.scrolled());
    scroll.addEventListener("keydown", (event) => this.pressed(event));
    layer.addEventListener("click", (event) => {
      const cell = event.target.closest(".cell");
      if (cell) this.open(this.select(Number(cell.dataset.place)));
    });
    new ResizeObserver(() => this.measure()).observe(scroll);
  }

  /** Request the first pictures of the query `wanted`, before their number is known, and before the page is laid out. */
  hasten(wanted, cell, fields) {
    Object.assign(this, { wanted, cell, fields, side: sideFor(cell) });
    for (let number = 0; number < FIRST; number++) this.fetch(number);
  }

  /** Show `count` pictures of the query `wanted`, from the first one on; `anew` drops pictures that have been loaded. */
  show(count, wanted, anew = false) {
    if (anew || JSON.stringify(wanted) !== JSON.stringify(this.wanted)) this.forget();
    Object.assign(this, { count, wanted, selected: 0, top: 0 });
    this.dropParts();
    this.measure();
  }

  /** Show more pictures of the same query, because the server has found more. */
  extend(count) {
    this.count = count;
    this.dropParts();
    this.measure();
  }

  /** Drop pages that are incomplete, because they were requested when fewer pictures were known. */
  dropParts() {
    for (const [number, page] of this.pages) if (!this.isWhole(number, page)) this.discard(number);
  }

  isWhole(number, page) {
    return this.count === null || page.length >= Math.min(PAGE, this.count - number * PAGE);
  }

  discard(number) {
    this.pages.get(number).forEach((entry) => URL.revokeObjectURL(entry.url));
    this.pages.delete(number);
  }

  drop(place, cell) {
    cell.remove();
    this.cells.delete(place);
  }

  /** Reserve a line for labels and captions below the names if `labelled` is true. */
  describe(labelled) {
    this.caption = labelled ? CAPTION : NAME;
    this.measure();
  }

  forget() {
    for (const { controller } of this.asked.values()) controller.abort();
    for (const page of this.pages.values()) page.forEach((entry) => URL.revokeObjectURL(entry.url));
    for (const cell of this.cells.values()) cell.remove();
    this.asked.clear();
    this.pages.clear();
    this.cells.clear();
  }

  /** Show the pictures in another size, or with other fields drawn over them. */
  restyle({ cell = this.cell, fields = this.fields, hidden = this.hidden }) {
    const before = this.side;
    const again = fields !== this.fields;
    const first = Math.floor(this.top / this.rowHeight) * this.columns;
    Object.assign(this, { cell, fields, hidden: new Set(hidden) });
    this.arrange();
    this.top = Math.floor(first / this.columns) * this.rowHeight;
    if (again || this.side !== before) this.forget();
    for (const [place, one] of this.cells) this.drop(place, one);
    this.measure();
  }

  arrange() {
    const width = Math.max(this.scroll.clientWidth - 2 * GAP, 60);
    this.columns = Math.max(1, Math.floor((width + GAP) / (this.cell + GAP)));
    this.across = (width - GAP * (this.columns - 1)) / this.columns;
    this.rowHeight = this.across + this.caption + GAP;
    this.rows = Math.ceil(this.count / this.columns);
    this.side = sideFor(this.cell);
  }

  measure() {
    if (this.count === null || !this.scroll.clientHeight) return; // the height is 0 while another view is shown
    this.arrange();
    this.height = this.scroll.clientHeight;
    this.total = this.rows * this.rowHeight + GAP;
    this.farthest = Math.max(this.total - this.height, 0);
    this.travel = Math.min(this.total, HIGHEST) - this.height;
    this.spacer.style.height = `${Math.min(this.total, HIGHEST)}px`;
    this.layer.style.height = `${this.height}px`;
    this.moveTo(this.top);
  }

  /** Move the grid to the scroll position `top`, and the element to the position that corresponds to it. */
  moveTo(top) {
    this.top = Math.min(Math.max(top, 0), this.farthest);
    this.settle();
    this.draw();
  }

  settle() {
    const place = this.farthest > 0 ? (this.top / this.farthest) * Math.max(this.travel, 0) : 0;
    if (Math.abs(place - this.scroll.scrollTop) > 0.5) this.scroll.scrollTop = place;
    this.last = this.scroll.scrollTop;
  }

  scrolled() {
    const now = this.scroll.scrollTop;
    const step = now - this.last;
    if (step === 0) return;
    this.last = now;
    const mapped = this.travel > 0 ? (now / this.travel) * this.farthest : 0;
    const near = Math.abs(step) < this.height && this.farthest > this.travel && now > 0 && now < this.travel;
    this.top = Math.min(Math.max(near ? this.top + step : mapped, 0), this.farthest);
    clearTimeout(this.still);
    this.still = setTimeout(() => this.settle(), 200);
    if (!this.frame) this.frame = requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.frame = 0;
    const first = Math.max(Math.floor(this.top / this.rowHeight) - 1, 0) * this.columns;
    const end = Math.min(Math.ceil((this.top + this.height) / this.rowHeight + 1) * this.columns, this.count);
    for (const [place, cell] of this.cells) {
      if (place < first || place >= end) this.drop(place, cell);
    }
    for (let place = first; place < end; place++) {
      let cell = this.cells.get(place);
      if (!cell) {
        cell = this.blank(place);
        this.cells.set(place, cell);
        this.layer.append(cell);
      }
      const x = GAP + (place % this.columns) * (this.across + GAP);
      const y = GAP + Math.floor(place / this.columns) * this.rowHeight - this.top;
      cell.style.transform = `translate(${x}px, ${y}px)`;
      cell.style.width = `${this.across}px`;
      cell.style.height = `${this.across + this.caption}px`;
      cell.classList.toggle("selected", place === this.selected);
      cell.setAttribute("aria-selected", String(place === this.selected));
      if (!cell.dataset.filled) this.fill(place, cell);
    }
    this.scroll.setAttribute("aria-activedescendant", `cell${this.selected}`);
    const top = Math.floor(this.top / this.rowHeight) * this.columns;
    const bottom = Math.min(Math.ceil((this.top + this.height) / this.rowHeight) * this.columns, this.count);
    this.inSight = [Math.floor(top / PAGE), Math.ceil(bottom / PAGE)];
    this.seen = [Math.floor(first / PAGE), Math.ceil(end / PAGE)];
    clearTimeout(this.soon);
    this.soon = setTimeout(() => this.load(), this.asked.size ? 40 : 0);
  }

  blank(place) {
    const cell = element("div", { className: "cell", id: `cell${place}` });
    cell.dataset.place = place;
    cell.setAttribute("role", "option");
    cell.setAttribute("aria-posinset", String(place + 1));
    cell.setAttribute("aria-setsize", String(this.count));
    return cell;
  }

  fill(place, cell) {
    const entry = this.pages.get(Math.floor(place / PAGE))?.[place % PAGE];
    if (!entry) return;
    cell.dataset.filled = "yes";
    const frame = element("span", { className: "frame" });
    if (entry.error) {
      cell.classList.add("damaged");
      cell.title = entry.error;
      frame.append(element("span", { className: "why" }, "damaged"), element("span", { className: "reason" }, entry.error));
    } else {
      frame.append(element("img", { src: entry.url, alt: "", decoding: "async", draggable: false }));
      cell.title = `${entry.name}\n${entry.width} × ${entry.height} px`;
    }
    const drawn = drawings(entry, this.side, this.hidden);
    if (drawn.length) {
      const over = svg("svg", { viewBox: `0 0 ${entry.width} ${entry.height}`, class: "over" });
      over.append(...drawn);
      frame.append(over);
    }
    const said = [entry.label, caption(entry, this.hidden)].filter(Boolean).join(" · ");
    const short = entry.name.slice(entry.name.lastIndexOf("/") + 1);
    cell.append(frame, element("span", { className: "name" }, short));
    if (this.caption === CAPTION) cell.append(element("span", { className: "said" }, said));
    cell.setAttribute("aria-label", entry.error ? `${entry.name}, damaged` : `${entry.name}, ${entry.label}`);
  }

  /** Request the missing pages that are visible, and then those next to them; drop pages that are far away. */
  load() {
    const [first, end] = this.seen;
    for (const [number, { controller }] of this.asked) {
      if (number < first || number >= end) {
        controller.abort();
        this.asked.delete(number);
      }
    }
    const inSight = this.missing(this.inSight);
    for (const number of inSight.length ? inSight : this.missing(this.seen)) {
      if (this.asked.size < AT_ONCE && !this.asked.has(number)) this.fetch(number);
    }
    for (const number of this.pages.keys()) {
      if (this.pages.size <= KEPT) break;
      if (number < first || number >= end) this.discard(number);
    }
  }

  missing([first, end]) {
    return Array.from({ length: Math.max(end - first, 0) }, (_, place) => first + place).filter((number) => !this.pages.has(number));
  }

  async fetch(number) {
    const controller = new AbortController();
    const request = { controller };
    this.asked.set(number, request);
    const which = { start: number * PAGE, count: PAGE, side: this.side, fields: this.fields ? 1 : "" };
    try {
      const entries = await askSheet("sheet", { ...this.wanted, ...which }, controller.signal);
      if (this.asked.get(number) !== request) return entries.forEach((entry) => URL.revokeObjectURL(entry.url));
      this.asked.delete(number);
      this.pages.set(number, entries);
      if (!this.isWhole(number, entries)) this.discard(number);
      if (this.columns) this.draw();
    } catch (error) {
      if (this.asked.get(number) === request) this.asked.delete(number);
      if (error.name !== "AbortError") this.failed(error);
    }
  }

  /** Select a picture and scroll to it; return its position. */
  select(place) {
    this.selected = Math.min(Math.max(place, 0), Math.max(this.count - 1, 0));
    const y = Math.floor(this.selected / this.columns) * this.rowHeight;
    if (y < this.top) this.moveTo(y);
    else if (y + this.rowHeight + GAP > this.top + this.height) this.moveTo(y + this.rowHeight + GAP - this.height);
    else this.draw();
    return this.selected;
  }

  pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const screen = Math.max(Math.floor(this.height / this.rowHeight), 1) * this.columns;
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns, PageUp: -screen, PageDown: screen };
    if (event.key in steps) this.select(this.selected + steps[event.key]);
    else if (event.key === "Home") this.select(0);
    else if (event.key === "End") this.select(this.count - 1);
    else if (event.key === "Enter" || event.key === " ") this.open(this.selected);
    else return;
    event.preventDefault();
  }

  /** Return the number of the sample at a position in the grid; request it if the page is not loaded. */
  async at(place) {
    const known = this.pages.get(Math.floor(place / PAGE))?.[place % PAGE];
    if (known) return known.index;
    const [entry] = await askSheet("sheet", { ...this.wanted, start: place, count: 1, side: 16 });
    URL.revokeObjectURL(entry.url);
    return entry.index;
  }
}
