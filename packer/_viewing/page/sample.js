// The dialog of one sample: its picture with its fields drawn over it, its properties, tiles, and crops in several epochs.

import { ask, askSheet, picture } from "./asking.js";
import { $, bytes, counted, describe, element, later, svg } from "./elements.js";
import { boxNames, colour, drawings, numbers } from "./overlays.js";

export class SampleDialog {
  /** `grid` knows the sample at each position; `changed(place)` is called with the position that is shown, null for none. */
  constructor({ grid, changed, failed }) {
    Object.assign(this, { grid, changed, failed, place: 0, sample: null, hidden: new Set(), url: "", urls: [] });
    this.dialog = $("sample");
    $("previous").onclick = () => this.step(-1);
    $("next").onclick = () => this.step(1);
    $("close").onclick = () => this.dialog.close();
    this.dialog.addEventListener("close", () => {
      this.forget();
      this.place = null; // so that responses that are still to come are ignored
      changed(null);
      $("scroll").focus();
    });
    this.dialog.addEventListener("keydown", (event) => this.pressed(event));
    const again = later(() => this.cut(), 150);
    $("crops").querySelector("form").addEventListener("input", again);
    $("crops").querySelector("form").addEventListener("submit", (event) => event.preventDefault());
    $("crops").addEventListener("toggle", () => this.cut());
    $("tiles").addEventListener("toggle", () => this.draw());
    new ResizeObserver(() => this.nameBoxes()).observe($("canvas"));
  }

  async open(place) {
    this.place = place;
    try {
      const index = await this.grid.at(place);
      const longest = Math.max(innerWidth, innerHeight) * Math.min(devicePixelRatio || 1, 2);
      this.side = [800, 1200, 1600, 2400].find((one) => one >= longest) ?? 3200;
      const [sample, [shown]] = await Promise.all([ask("sample", { index }), askSheet("image", { index, side: this.side })]);
      if (this.place !== place) return URL.revokeObjectURL(shown.url);
      this.show({ ...sample, error: sample.error || shown.error }, shown.url);
      this.changed(place);
    } catch (error) {
      if (!this.dialog.open) this.failed(error); // which shows the error on the page, behind the dialog
      else if (this.place === place) this.damaged(error.message);
    }
  }

  show(sample, url) {
    this.forget();
    Object.assign(this, { sample, url });
    $("sampleName").textContent = sample.name;
    $("place").textContent = `${counted(this.place + 1)} of ${counted(this.grid.count)}`;
    $("previous").disabled = this.place === 0;
    $("next").disabled = this.place === this.grid.count - 1;
    this.damaged(sample.error ? `Damaged: ${sample.error}` : "");
    if (!sample.error) {
      $("picture").src = url;
      $("picture").width = sample.width;
      $("picture").height = sample.height;
      $("canvas").style.aspectRatio = `${sample.width} / ${sample.height}`;
      $("canvas").style.setProperty("--shape", sample.width / sample.height);
    }
    this.describe(sample);
    this.cuts = [];
    this.draw();
    this.cut();
    if (!this.dialog.open) {
      this.dialog.showModal();
      $("stage").focus();
    }
  }

  /** Show the reason why there is no picture; if `why` is empty, show the picture. */
  damaged(why) {
    $("damage").hidden = !why;
    $("damage").textContent = why;
    $("canvas").hidden = Boolean(why);
  }

  describe(sample) {
    const label = sample.number === null || sample.number < 0 ? sample.label || "none" : `${sample.label} (${sample.number})`;
    const values = sample.fields.filter(isValue);
    const pairs = [
      ["label", label],
      ...values.map((field) => [field.name, field.text]),
      ["size", `${sample.width} × ${sample.height} px`],
      ["bytes", `${bytes(sample.size)} (${counted(sample.size)})`],
      ["type", sample.type ?? sample.codec],
      ["CRC-32C", sample.crc32c || "none: this index has no checksums"],
      ["index", counted(sample.row)],
      ["pack", sample.pack],
    ];
    describe($("about"), pairs);
    $("about").append(...sample.findings.flatMap((finding) => [element("dt", {}, "finding"), element("dd", { className: "warn" }, finding)]));
    $("fields").replaceChildren(...sample.fields.filter((field) => !isValue(field)).map((field) => this.field(field)));
    $("tiles").hidden = !sample.tiles;
    if (sample.tiles) {
      const { rows, columns, tile_width: width, tile_height: height } = sample.tiles;
      $("tiles").querySelector("p").textContent = `${rows} rows of ${columns}, each ${width} × ${height} px`;
    }
    $("crops").hidden = Boolean(sample.error);
  }

  field(field) {
    const head = element("h3", {}, field.name, element("small", {}, field.kind));
    const made = element("div", { className: "field", id: `field-${field.name}` }, head);
    if (isDrawn(field)) {
      const box = element("input", { type: "checkbox", checked: !this.hidden.has(field.name) });
      box.addEventListener("change", () => {
        if (box.checked) this.hidden.delete(field.name);
        else this.hidden.add(field.name);
        this.draw();
      });
      const label = element("label", {}, box, field.name);
      head.replaceChildren(label, element("small", {}, field.kind));
    }
    if (field.error) made.append(element("p", { className: "bad" }, field.error));
    if (field.boxes && field.labels?.length) made.append(legend(field));
    else if (field.text && !isDrawn(field)) made.append(element("p", { className: field.kind === "json" ? "code" : "" }, field.text));
    if (field.picture === "image") {
      const image = element("img", { src: picture("field", { index: this.sample.index, name: field.name, side: 640 }), alt: field.name });
      image.onerror = () => undrawn(made);
      made.append(image);
    }
    return made;
  }

  draw() {
    const { sample } = this;
    if (!sample) return;
    const shapes = $("shapes");
    shapes.replaceChildren();
    if (sample.error) return;
    shapes.setAttribute("viewBox", `0 0 ${sample.width} ${sample.height}`);
    const failed = (name) => sample === this.sample && undrawn($(`field-${name}`));
    shapes.append(...drawings(sample, this.side, this.hidden, failed));
    if (sample.tiles && $("tiles").open) shapes.append(grid(sample.tiles, sample));
    if ($("crops").open) {
      this.cuts.forEach((cut, place) => {
        const { left: x, top: y, width, height } = cut;
        const turn = (place * 360) / Math.max(this.cuts.length, 1);
        shapes.append(svg("rect", { x, y, width, height, class: "cut", "data-epoch": cut.epoch, stroke: `hsl(${turn} 90% 60%)` }));
      });
    }
    this.nameBoxes();
  }

  /** Draw the names of boxes again, because their size on the screen does not depend on the picture's size. */
  nameBoxes() {
    const { sample } = this;
    const across = $("canvas").clientWidth; // 0 until the dialog is open
    $("shapes").querySelector(".boxNames")?.remove();
    if (!sample || sample.error || !across) return;
    const named = sample.fields.filter((field) => field.boxes && !this.hidden.has(field.name));
    $("shapes").append(boxNames(sample, named, sample.width / across));
  }

  /** Request the crops and show them, if the section of crops is open. */
  async cut() {
    const { sample } = this;
    const form = $("crops").querySelector("form");
    if (!sample || sample.error || !$("crops").open || !form.checkValidity()) return this.draw();
    const asked = (this.asked = {});
    try {
      const cuts = await askSheet("crops", { index: sample.index, ...Object.fromEntries(new FormData(form)) });
      if (asked !== this.asked || sample !== this.sample) return cuts.forEach((cut) => URL.revokeObjectURL(cut.url));
      this.forgetCuts();
      this.urls = cuts.map((cut) => cut.url);
      this.cuts = cuts;
      $("cuts").replaceChildren(...cuts.map((cut, place) => this.one(cut, place, cuts.length)));
      this.draw();
    } catch (error) {
      $("cuts").replaceChildren(element("p", { className: "bad" }, error.message));
    }
  }

  one(cut, place, count) {
    const image = element("img", { src: cut.url, alt: `epoch ${cut.epoch}` });
    image.style.outlineColor = `hsl(${(place * 360) / count} 90% 60%)`;
    const said = `${cut.width} × ${cut.height} at ${cut.left}, ${cut.top}`;
    const made = element("figure", { title: said }, image, element("figcaption", {}, `epoch ${cut.epoch}`));
    const mark = (on) => {
      for (const rect of $("shapes").querySelectorAll(".cut")) {
        rect.classList.toggle("faint", on && rect.dataset.epoch !== String(cut.epoch));
      }
    };
    made.onmouseenter = () => mark(true);
    made.onmouseleave = () => mark(false);
    return made;
  }

  forget() {
    URL.revokeObjectURL(this.url);
    $("picture").removeAttribute("src");
    this.forgetCuts();
  }

  forgetCuts() {
    for (const url of this.urls) URL.revokeObjectURL(url);
    this.urls = [];
    $("cuts").replaceChildren();
  }

  step(by) {
    const place = this.place + by;
    if (place < 0 || place >= this.grid.count) return;
    this.grid.select(place);
    this.open(place);
  }

  pressed(event) {
    if (event.target.matches("input, select") && event.target.type !== "checkbox") return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 };
    if (event.key in steps) this.step(steps[event.key]);
    else if (event.key === "c") $("crops").open = !$("crops").open;
    else if (event.key === "t") $("tiles").open = !$("tiles").open;
    else if (event.key === "o") this.toggleFields();
    else return;
    event.preventDefault();
  }

  toggleFields() {
    const names = this.sample.fields.filter(isDrawn).map((field) => field.name);
    const all = names.every((name) => this.hidden.has(name));
    for (const name of names) if (all) this.hidden.delete(name); else this.hidden.add(name);
    this.describe(this.sample);
    this.draw();
  }
}

/** Tell whether the value of a field is a single number or class, which is listed with the properties. */
const isValue = (field) => ["scalar", "class"].includes(field.kind) && !field.error;

/** Tell whether a field is drawn over the picture. */
const isDrawn = (field) => Boolean(field.picture === "mask" || field.boxes || field.polygons || field.keypoints);

/** Return a legend of the boxes' classes: the colour, the name and the number of boxes of each class. */
function legend({ boxes, labels, ids }) {
  const tones = numbers({ ids }, boxes.length);
  const found = new Map();
  labels.forEach((name, at) => found.set(name, { tone: found.get(name)?.tone ?? tones[at], count: (found.get(name)?.count ?? 0) + 1 }));
  const made = [...found].map(([name, { tone, count }]) => {
    const swatch = element("i");
    swatch.style.background = colour(tone);
    return element("span", {}, swatch, count > 1 ? `${name} × ${counted(count)}` : name);
  });
  return element("p", { className: "legend" }, ...made);
}

/** Show an error in a field's section, because its picture cannot be shown. */
function undrawn(field) {
  if (!field.querySelector(".bad")) field.append(element("p", { className: "bad" }, "It cannot be decoded."));
}

function grid({ rows, columns, tile_width: across, tile_height: down }, { width, height }) {
  const drawn = svg("g", { class: "tileLines" });
  for (let row = 1; row < rows; row++) drawn.append(svg("line", { x1: 0, x2: width, y1: row * down, y2: row * down }));
  for (let column = 1; column < columns; column++) drawn.append(svg("line", { x1: column * across, x2: column * across, y1: 0, y2: height }));
  return drawn;
}
