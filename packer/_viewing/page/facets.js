// The filters beside the pictures: classes, the categories of fields, and which fields are drawn.

import { ask } from "./asking.js";
import { $, counted, element } from "./elements.js";

const MOST_CLASSES = 1500; // that are listed at once
const MOST_READ = 20_000; // samples that are read for the labels of objects without being asked
const DRAWN = ["mask", "segmentation", "boxes", "keypoints", "text"];

/** Return a row with a name, a count, and a line below them as long as the count's share. */
function row(name, count, most, choose) {
  const made = element("button", { className: "class", title: name }, element("span", {}, name), element("span", {}, counted(count)));
  made.setAttribute("role", "option");
  made.style.setProperty("--share", most ? count / most : 0);
  made.onclick = choose;
  return made;
}

const largest = (counts) => Math.max(1, ...counts);

/** Move the focus up and down a list of rows. */
function walk(event) {
  const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
  const next = step && event.target.closest(".class")?.[step];
  if (!next) return;
  next.focus();
  event.preventDefault();
}

export class Facets {
  /** `choose(changes)` is called with the changes of the query, `draw(hidden)` with the names of hidden fields. */
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

  /** Show what is chosen. */
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

  /** Return the section of a field; its classes are counted when the section is open. */
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

  /** Count the classes of a field, slice by slice where samples have to be read. */
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

/** Tell whether fields of packs can be drawn. */
export const areDrawn = (fields) => fields.some(({ kind }) => DRAWN.includes(kind));
