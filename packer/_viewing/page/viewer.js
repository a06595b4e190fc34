// The page as a whole. What is looked at stands in the address after "#", so that the browser's "back" goes back.

import { ask } from "./asking.js";
import { $, counted, describe, element, later } from "./elements.js";
import { Grid } from "./grid.js";
import { rangeSaid, showDuplicates, showFindings, showHistograms } from "./reports.js";
import { SampleDialog } from "./sample.js";

const VIEWS = ["pictures", "histograms", "duplicates", "findings"];
const QUERY = ["class", "name", "where", "measure", "low", "high", "order"];
const MOST_CLASSES = 1500; // that are listed at once

const state = { view: "pictures" };
let packs;
let shownQuery = null;

const grid = new Grid({ scroll: $("scroll"), spacer: $("spacer"), layer: $("layer"), open: (place) => sample.open(place), failed: fail });
const sample = new SampleDialog({ grid, failed: fail, changed: (place) => place !== null && grid.select(place) });

function fail(error) {
  $("error").hidden = false;
  $("error").textContent = error.message;
}

function read() {
  const said = new URLSearchParams(location.hash.slice(1));
  for (const key of QUERY) state[key] = said.get(key) ?? "";
  state.view = VIEWS.includes(said.get("view")) ? said.get("view") : "pictures";
}

/** Change what is looked at. */
function go(changes, replace = false) {
  const next = Object.fromEntries(Object.entries({ ...state, ...changes }).filter(([, value]) => value !== ""));
  const hash = `#${new URLSearchParams(next)}`;
  if (replace) history.replaceState(null, "", hash);
  else history.pushState(null, "", hash);
  refresh();
}

const query = () => Object.fromEntries(QUERY.filter((key) => state[key] !== "").map((key) => [key, state[key]]));

async function refresh() {
  read();
  for (const view of VIEWS) $(view).hidden = view !== state.view;
  for (const link of $("views").children) link.toggleAttribute("aria-current", link.hash === `#view=${state.view}`);
  $("bar").hidden = !["pictures", "histograms"].includes(state.view);
  $("bar").classList.toggle("figures", state.view === "histograms");
  $("error").hidden = true;
  fillControls();
  try {
    if (!(await find())) return;
    if (state.view === "pictures") grid.measure();
    if (state.view === "histograms") await showHistograms(query(), (range) => go({ ...range, view: "pictures" }));
    if (state.view === "duplicates") await showDuplicates(look);
    if (state.view === "findings") showFindings(packs, look);
  } catch (error) {
    fail(error);
  }
}

/** Ask how many samples the query finds, unless they are shown already; false where it was changed meanwhile. */
async function find() {
  const wanted = JSON.stringify(query());
  if (wanted === shownQuery) return true;
  const found = wanted === "{}" ? { count: packs.count, complete: true } : await ask("found", query());
  if (wanted !== JSON.stringify(query())) return false;
  if (wanted === shownQuery) return true; // shown by whoever asked at the same time: again, it would begin at the top
  shownQuery = wanted;
  const of = found.count === packs.count ? "" : ` of ${counted(packs.count)}`;
  $("count").textContent = `${found.complete ? "" : "the first "}${counted(found.count)}${of}`;
  $("nothing").hidden = found.count > 0;
  grid.show(found.count, query());
  return true;
}

function fillControls() {
  for (const [id, key] of [["search", "name"], ["where", "where"]]) if (document.activeElement !== $(id)) $(id).value = state[key];
  $("order").value = state.order;
  for (const option of $("classes").children) option.setAttribute("aria-selected", String(option.dataset.number === state.class));
  const chips = [];
  if (state.class !== "") chips.push([state.class === "-1" ? "unlabeled" : packs.classes[state.class]?.name ?? state.class, { class: "" }]);
  if (state.measure) chips.push([rangeSaid(state), { measure: "", low: "", high: "" }]);
  $("chips").replaceChildren(...chips.map(([text, without]) => {
    const chip = element("button", { className: "chip", title: "Remove" }, text, element("span", {}, "✕"));
    chip.onclick = () => go(without);
    return chip;
  }));
}

/** Look at one sample, whatever was looked for before. */
async function look(index) {
  go(Object.fromEntries([["view", "pictures"], ...QUERY.map((key) => [key, ""])]));
  await find();
  grid.select(index);
  sample.open(index);
}

function listClasses() {
  const part = $("classSearch").value.toLowerCase();
  const all = [["", "all", packs.count], ...(packs.unlabeled ? [["-1", "unlabeled", packs.unlabeled]] : [])];
  const named = packs.classes.map(({ name, count }, number) => [String(number), name, count]);
  const shown = named.filter(([, name]) => name.toLowerCase().includes(part));
  const most = Math.max(1, ...packs.classes.map(({ count }) => count));
  $("classes").replaceChildren(...[...(part ? [] : all), ...shown.slice(0, MOST_CLASSES)].map(([number, name, count]) => {
    const option = element("button", { className: "class", title: name }, element("span", {}, name), element("span", {}, counted(count)));
    option.setAttribute("role", "option");
    option.dataset.number = number;
    option.style.setProperty("--share", number === "" ? 0 : count / most);
    option.onclick = () => {
      closeMenu();
      go({ class: number, view: ["pictures", "histograms"].includes(state.view) ? state.view : "pictures" });
    };
    return option;
  }));
  const more = shown.length - MOST_CLASSES;
  if (more > 0) $("classes").append(element("p", { className: "more" }, `${counted(more)} more: search for one`));
  fillControls();
}

function closeMenu() {
  document.body.classList.remove("open");
  $("menu").setAttribute("aria-expanded", "false");
}

function stored(key, value) {
  try {
    if (value === undefined) return localStorage.getItem(`packer.${key}`);
    localStorage.setItem(`packer.${key}`, value);
  } catch {
    // a browser that keeps nothing
  }
  return null;
}

function theme(chosen) {
  if (chosen) document.documentElement.dataset.theme = chosen;
}

function prepareControls(cell) {
  const typed = (id, key) => {
    const change = later(() => go({ [key]: $(id).value }, true), 180);
    $(id).addEventListener("input", change);
    $(id).addEventListener("keydown", (event) => {
      if (event.key === "Enter") $("scroll").focus();
      if (event.key === "Escape") {
        $(id).value = "";
        go({ [key]: "" }, true);
        $("scroll").focus();
      }
    });
  };
  typed("search", "name");
  typed("where", "where");
  $("order").onchange = () => go({ order: $("order").value });
  $("classSearch").oninput = later(listClasses, 80);
  $("cell").value = cell;
  $("cell").oninput = () => {
    stored("cell", $("cell").value);
    grid.restyle({ cell: Number($("cell").value) });
  };
  $("overlays").onchange = () => grid.restyle({ fields: $("overlays").checked });
  $("menu").onclick = () => $("menu").setAttribute("aria-expanded", String(document.body.classList.toggle("open")));
  $("help").onclick = () => $("keys").showModal();
  $("theme").onclick = () => {
    const dark = getComputedStyle(document.documentElement).getPropertyValue("--is-dark").trim() === "1";
    theme(dark ? "light" : "dark");
    stored("theme", dark ? "light" : "dark");
  };
  document.addEventListener("keydown", pressed);
  addEventListener("popstate", refresh);
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=checkbox], [type=range]), select")) return;
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "/") $("search").focus();
  else if (event.key === "?") $("keys").showModal();
  else if (event.key === "o" && !$("overlayToggle").hidden) $("overlays").click();
  else if (event.key === "+" || event.key === "-") {
    $("cell").value = Number($("cell").value) + (event.key === "+" ? 24 : -24);
    $("cell").oninput();
  } else if (event.key === "Escape") {
    if (document.body.classList.contains("open")) closeMenu();
    else go(Object.fromEntries([["view", "pictures"], ...QUERY.map((key) => [key, ""])]));
  } else if (event.target === document.body && /^(Arrow|Page|Home|End|Enter)/.test(event.key)) {
    $("scroll").focus();
    grid.pressed(event);
    return;
  } else return;
  event.preventDefault();
}

async function begin() {
  theme(stored("theme"));
  read();
  const cell = Number(stored("cell") ?? (innerWidth < 600 ? 104 : 160));
  if (state.view === "pictures") grid.hasten(query(), cell);
  prepareControls(cell);
  try {
    packs = await ask("packs");
  } catch (error) {
    fail(error);
    return;
  }
  document.title = packs.title;
  $("title").textContent = packs.title;
  $("title").title = packs.paths.join("\n");
  describe($("facts"), packs.facts);
  $("order").append(...packs.orders.map((order) => element("option", { value: order }, order)));
  $("overlayToggle").hidden = packs.fields.length === 0;
  document.body.classList.toggle("classless", packs.classes.length === 0);
  grid.cell = cell;
  await refresh();
  setTimeout(listClasses); // while the first pictures are under way
  $("scroll").focus();
}

begin();
