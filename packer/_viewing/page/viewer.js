// The page as a whole. The view and the query are in the URL after "#", so that the browser's "back" button works.

import { ask } from "./asking.js";
import { $, counted, describe, element, later } from "./elements.js";
import { Facets, areDrawn } from "./facets.js";
import { Grid } from "./grid.js";
import { rangeSaid, showDuplicates, showFindings, showHistograms } from "./reports.js";
import { SampleDialog } from "./sample.js";

const VIEWS = ["pictures", "histograms", "duplicates", "findings"];
const QUERY = ["class", "name", "where", "measure", "low", "high", "finding", "order"];
const CATEGORY = "in."; // the prefix of keys for fields: the value is the class in that field, "" for none

let state = { view: "pictures" };
let packs;
let shownQuery = null;

const grid = new Grid({ scroll: $("scroll"), spacer: $("spacer"), layer: $("layer"), open: (place) => sample.open(place), failed: fail });
const facets = new Facets({
  choose: (changes) => {
    closeMenu();
    go({ ...changes, view: ["pictures", "histograms"].includes(state.view) ? state.view : "pictures" });
  },
  draw: (hidden) => {
    if (!$("overlays").checked) $("overlays").click();
    grid.restyle({ hidden });
  },
});
const sample = new SampleDialog({ grid, failed: fail, changed: (place) => place !== null && grid.select(place) });

function fail(error) {
  $("error").hidden = false;
  $("error").textContent = error.message;
}

const isCategory = (key) => key.startsWith(CATEGORY);

function read() {
  const said = new URLSearchParams(location.hash.slice(1));
  state = Object.fromEntries(QUERY.map((key) => [key, said.get(key) ?? ""]));
  for (const [key, value] of said) if (isCategory(key)) state[key] = value;
  state.view = VIEWS.includes(said.get("view")) ? said.get("view") : "pictures";
}

/** Change the view or the query: keys of the URL with new values, or null to remove the class of a field. */
function go(changes, replace = false) {
  show({ ...state, ...changes }, replace);
}

function show(wanted, replace = false) {
  const next = Object.entries(wanted).filter(([key, value]) => value !== null && (value !== "" || isCategory(key)));
  const hash = `#${new URLSearchParams(next)}`;
  if (replace) history.replaceState(null, "", hash);
  else history.pushState(null, "", hash);
  return refresh();
}

const query = () => Object.fromEntries(Object.entries(state).filter(([key, value]) => isCategory(key) || (QUERY.includes(key) && value !== "")));

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

/** Request the samples that the query finds, unless they are shown already; return false if the query changed meanwhile. */
async function find() {
  const wanted = JSON.stringify(query());
  if (wanted === shownQuery) return true;
  let found = wanted === "{}" ? { count: packs.count, complete: true, unread: 0 } : await ask("found", query());
  if (wanted !== JSON.stringify(query())) return false;
  if (wanted === shownQuery) return true; // another call has shown them meanwhile; to show them again would scroll to the top
  shownQuery = wanted;
  tell(found);
  grid.show(found.count, query());
  if (found.unread) readOn(wanted, found);
  return true;
}

/** Repeat the request until the server has read all samples, and show the images that are found meanwhile. */
async function readOn(wanted, found) {
  try {
    while (found.unread && wanted === shownQuery) {
      found = await ask("found", JSON.parse(wanted));
      if (wanted !== shownQuery) return;
      tell(found);
      if (!state.order) grid.extend(found.count);
    }
    if (state.order && wanted === shownQuery) grid.show(found.count, JSON.parse(wanted), true);
  } catch (error) {
    shownQuery = null; // so that the next call repeats the request
    fail(error);
  }
}

/** Show how many images were found, and why there are fewer than the conversion counted. */
function tell({ count, complete, unread }) {
  const some = count === packs.count ? "" : ` of ${counted(packs.count)}`;
  const all = `${complete ? "" : "the first "}${counted(count)}${some} ${packs.count === 1 ? "image" : "images"}`;
  $("count").textContent = unread ? `${counted(count)} found so far` : all;
  $("reading").hidden = !unread;
  $("reading").max = packs.count;
  $("reading").value = packs.count - unread;
  $("nothing").hidden = count > 0;
  $("nothing").querySelector("p").textContent = unread ? "Reading the images …" : packs.count ? "No image matches the filters." : "There are no images.";
  $("clear").hidden = !Object.keys(query()).length;
  const [, expected = 0] = packs.findings.find(([name]) => name === state.finding) ?? [];
  const alone = Object.keys(query()).every((key) => ["finding", "order"].includes(key));
  $("note").hidden = unread > 0 || !alone || count >= expected;
  $("note").textContent = `The conversion counted ${counted(expected)} of the source files. ${count ? "The other images" : "The images"} were encoded again and no longer show it; packer convert --report lists the files.`;
}

function fillControls() {
  for (const [id, key] of [["search", "name"], ["where", "where"]]) if (document.activeElement !== $(id)) $(id).value = state[key];
  $("order").value = state.order;
  facets.mark(state);
  const chips = [];
  if (state.class !== "") chips.push([state.class === "-1" ? "unlabeled" : packs.classes[state.class]?.name ?? state.class, { class: "" }]);
  for (const key of Object.keys(state).filter(isCategory)) chips.push([`${key.slice(CATEGORY.length)}: ${state[key] || "none"}`, { [key]: null }]);
  if (state.finding) chips.push([state.finding, { finding: "" }]);
  if (state.measure) chips.push([rangeSaid(state), { measure: "", low: "", high: "" }]);
  $("chips").replaceChildren(...chips.map(([text, without]) => {
    const chip = element("button", { className: "chip", title: `Remove the filter: ${text}` }, element("span", {}, text), element("i", { ariaHidden: "true" }, "✕"));
    chip.onclick = () => go(without);
    return chip;
  }));
}

/** Show one sample, without any query. */
async function look(index) {
  await show({ view: "pictures" });
  grid.select(index);
  sample.open(index);
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
    // the browser does not allow local storage
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
  $("classSearch").oninput = later(() => facets.listClasses(), 80);
  $("clear").onclick = () => show({ view: "pictures" });
  $("cell").value = cell;
  $("cell").oninput = () => {
    stored("cell", $("cell").value);
    grid.restyle({ cell: Number($("cell").value) });
  };
  $("overlays").checked = grid.fields;
  $("overlays").onchange = () => {
    stored("fields", $("overlays").checked ? "shown" : "hidden");
    grid.restyle({ fields: $("overlays").checked });
  };
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
    else show({ view: "pictures" });
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
  grid.fields = stored("fields") !== "hidden";
  if (state.view === "pictures") grid.hasten(query(), cell, grid.fields);
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
  describe($("facts"), packs.facts.filter(([name, text]) => name !== "fields" && !(name === "classes" && text === "0")));
  $("order").append(...packs.orders.map((order) => element("option", { value: order }, order)));
  $("overlayToggle").hidden = !areDrawn(packs.fields);
  document.body.classList.toggle("classless", packs.classes.length === 0);
  grid.cell = cell;
  grid.describe(packs.labels !== "class" || packs.classes.length > 0 || packs.fields.some(({ kind }) => kind === "text"));
  await refresh();
  setTimeout(() => facets.show(packs)); // later, while the first pictures are being loaded
  $("scroll").focus();
}

begin();
