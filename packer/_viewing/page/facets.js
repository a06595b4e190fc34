// The filters next to the pictures: classes, the classes of fields, and which fields are drawn.

import { ask } from "./asking.js";
import { $, counted, element } from "./elements.js";

const MOST_CLASSES = 1500; // most classes that are listed at once
const MOST_READ = 20_000; // with more samples, the classes of objects are only counted when the user opens the section
const DRAWN = ["mask", "segmentation", "boxes", "keypoints", "text"];

/** Return a row with a name, a count, and below them a line whose length is in proportion to the count. */
function row(name, count, most, choose) {
  const made = element("button", { className: "class", title: name }, element("span", {}, name), element("span", {}, counted(count)));
  made.setAttribute("role", "option");
  made.style.setProperty("--share", most ? count / most : 0);
  made.onclick = choose;
  return made;
}

const largest = (counts) => Math.max(1, ...counts);

/** Move the focus up or down in a list of rows with the arrow keys. */
function walk(event) {
  const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
  const next = step && event.target.closest(".class")?.[step];
  if (!next) return;
  next.focus();
  event.preventDefault();
}

export class Facets {
  /** `choose(changes)` is called with changes of the query, and `draw(hidden)` with the names of hidden fields. */
  constructor({ choose, draw }) {
    Object.assign(this, { choose, draw, hidden: new Set(), state: {}, lists: new Map() });
    $("facets").addEventListener("keydown", walk);
  }

  /** Show the classes, categories and fields of packs. */
  show(packs) {
    this.packs = packs;
    $("classSearch").hidden = packs.classes.length < 12;
    this.listClasses();
    const categories = packs.fields.filter((field) => field.category);
    document.body.classList.toggle("faceted", categories.length > 0);
    $("categories").replaceChildren(...categories.map((field) => this.category(field)));
    $("fieldFacet").hidden = packs.fields.length === 0;
    $("fieldList").replaceChildren(...packs.fields.map((field) => this.field(field)));
  }

  /** Mark the rows of the classes that the query selects. */
  mark(state) {
    this.state = state;
    for (const option of $("classes").querySelectorAll(".class")) option.setAttribute("aria-selected", String(option.dataset.number === state.class));
    for (const [name, list] of this.lists) {
      for (const option of list.children) option.setAttribute("aria-selected", String(option.dataset.value === state[`in.${name}`]));
    }
  }

  listClasses() {
    const { packs } = this;
    const part = $("classSearch").value.toLowerCase();
    const all = [["", "all", packs.count], ...(packs.unlabeled ? [["-1", "unlabeled", packs.unlabeled]] : [])];
    const named = packs.classes.map(({ name, count }, number) => [String(number), name, count]);
    const shown = named.filter(([, name]) => name.toLowerCase().includes(part));
    const most = largest(packs.classes.map(({ count }) => count));
    const rows = [...(part ? [] : all), ...shown.slice(0, MOST_CLASSES)].map(([number, name, count]) => {
      const option = row(name, count, number === "" ? 0 : most, () => this.choose({ class: number }));
      option.dataset.number = number;
      return option;
    });
    $("classes").replaceChildren(...rows);
    const more = shown.length - MOST_CLASSES;
    if (more > 0) $("classes").append(element("p", { className: "more" }, `${counted(more)} more: search for one`));
    if (!shown.length && part) $("classes").append(element("p", { className: "more" }, "No class has this in its name."));
    this.mark(this.state);
  }

  /** Return the section of a field. The classes of the field are counted when the section is opened. */
  category({ name, kind }) {
    const list = element("div", { className: "values" });
    list.setAttribute("role", "listbox");
    list.setAttribute("aria-label", name);
    const reading = element("small");
    const made = element("details", { className: "facet" }, element("summary", {}, name, reading), list);
    this.lists.set(name, list);
    made.addEventListener("toggle", () => made.open && !list.children.length && this.count(name, list, reading));
    made.open = kind !== "labels" || this.packs.count <= MOST_READ;
    return made;
  }

  /** Count the classes of a field, with several requests if samples have to be read for that. */
  async count(name, list, reading) {
    try {
      let said;
      do {
        said = await ask("category", { field: name });
        reading.textContent = said.unread ? `${Math.floor((1 - said.unread / this.packs.count) * 100)} %` : counted(said.counts.length);
        this.list(name, list, said);
      } while (said.unread && list.closest("details").open);
    } catch (error) {
      list.replaceChildren(element("p", { className: "more bad" }, error.message));
    }
  }

  list(name, list, { counts, more }) {
    const key = `in.${name}`;
    const most = largest(counts.map(([, count]) => count));
    const rows = counts.map(([value, count]) => {
      const option = row(value || "none", count, most, () => this.choose({ [key]: this.state[key] === value ? null : value }));
      option.dataset.value = value;
      return option;
    });
    list.replaceChildren(...rows);
    if (more) list.append(element("p", { className: "more" }, `${counted(more)} more`));
    this.mark(this.state);
  }

  field({ name, kind }) {
    const said = [element("span", {}, name), element("small", {}, kind)];
    if (!DRAWN.includes(kind)) return element("div", { className: "fieldRow" }, element("i"), ...said);
    const box = element("input", { type: "checkbox", checked: true });
    box.dataset.field = name;
    box.onchange = () => {
      if (box.checked) this.hidden.delete(name);
      else this.hidden.add(name);
      this.draw(this.hidden);
    };
    return element("label", { className: "fieldRow" }, box, ...said);
  }
}

/** Tell whether any of these fields can be drawn. */
export const areDrawn = (fields) => fields.some(({ kind }) => DRAWN.includes(kind));
