// The views beside the pictures: histograms, duplicates, findings.

import { ask, askSheet } from "./asking.js";
import { $, bytes, counted, element } from "./elements.js";

const NAMES = { width: "width", height: "height", aspect: "width by height", size: "bytes", label: "class" };

/** Draw the histograms of what is wanted; `narrow(range)` is called when a bar is chosen. */
export async function showHistograms(wanted, narrow) {
  const place = $("histograms");
  const found = await ask("histograms", wanted);
  const drawn = found.map(({ measure, svg }) => {
    const read = new DOMParser().parseFromString(svg, "image/svg+xml").documentElement;
    const made = document.importNode(read, true);
    made.addEventListener("click", (event) => {
      const { low, high } = event.target.dataset;
      if (low !== undefined) narrow({ measure, low, high });
    });
    return element("figure", { className: "card" }, made);
  });
  place.replaceChildren(...(drawn.length ? drawn : [element("p", { className: "empty" }, "Nothing is found.")]));
}

/** Return what a range is called. */
export function rangeSaid({ measure, low, high }) {
  const short = (text) => Number(text).toLocaleString("en-US", { maximumFractionDigits: 3 });
  return `${NAMES[measure]} ${short(low)} to below ${short(high)}`;
}

/** Show samples whose images are the same bytes; `look(index)` is called with one that is chosen. */
export async function showDuplicates(look) {
  const place = $("duplicates");
  place.replaceChildren(element("p", { className: "empty" }, "Looking for duplicates …"));
  const { groups, candidates, reason } = await ask("duplicates");
  const said = reason || (candidates === 0 ? "No image lies in the pack twice." : summary(groups, candidates));
  place.replaceChildren(element("p", { className: "lead" }, said));
  for (const group of groups) {
    const row = element("div", { className: "strip" });
    place.append(element("h3", {}, `${counted(group.count)} times, ${bytes(group.size)} each`), row);
    for (const index of group.indices.slice(0, 12)) {
      const entry = (await askSheet("sheet", { start: index, count: 1, side: 192 }))[0];
      row.append(thumbnail(entry, look));
      if (place.hidden) return;
    }
  }
}

function summary(groups, candidates) {
  const same = `Groups of samples that have the same checksum and size: ${counted(candidates)}`;
  return `${same}. Compared byte by byte, and the same image: ${counted(groups.length)}.`;
}

function thumbnail(entry, look) {
  const name = element("span", { className: "name" }, entry.name);
  const shown = entry.error
    ? element("span", { className: "frame damaged", title: entry.error }, element("span", { className: "why" }, "damaged"))
    : element("span", { className: "frame" }, element("img", { src: entry.url, alt: "" }));
  const made = element("button", { className: "thumb", title: entry.name }, shown, name, element("span", { className: "said" }, entry.label));
  made.onclick = () => look(entry.index);
  return made;
}

/** Show what conversions found and left out, and check all samples when asked to. */
export function showFindings(packs, look) {
  const place = $("findings");
  const check = element("button", {}, "Read and decode every sample");
  const progress = element("progress", { max: Math.max(packs.count, 1), value: 0, hidden: true });
  const damaged = element("div", { className: "strip" });
  const outcome = element("p", {}, "Samples that were looked at and are damaged are listed here.");
  check.onclick = () => checkAll(packs.count, { check, progress, outcome, damaged, place, look });
  place.replaceChildren(
    element("h2", {}, "Damage"), element("div", { className: "row" }, check, progress), outcome, damaged,
    element("h2", {}, "Findings of the conversion"), table(packs.findings, "Nothing unusual was found."),
    element("h2", {}, "Left out"),
    table(packs.leftOut, "No file was left out."),
  );
  if (packs.leftOutCount > packs.leftOut.length) place.append(element("p", {}, `The first ${counted(packs.leftOut.length)} of ${counted(packs.leftOutCount)}.`));
  ask("check", { start: packs.count }).then((said) => said.count && listDamaged(said, { outcome, damaged, look }), () => {});
}

async function checkAll(count, shown) {
  shown.check.disabled = true;
  shown.progress.hidden = false;
  try {
    let said = { next: 0 };
    while (said.next < count && !shown.place.hidden) {
      said = await ask("check", { start: said.next });
      shown.progress.value = said.next;
      listDamaged(said, shown, said.next === count);
    }
  } catch (error) {
    shown.outcome.textContent = error.message;
  }
  shown.check.disabled = false;
}

function listDamaged({ damaged, count, next }, shown, done) {
  shown.outcome.textContent = count ? `${counted(count)} damaged` : done ? "No sample is damaged." : `${counted(next)} looked at, none damaged`;
  shown.damaged.replaceChildren(...damaged.map(({ index, error }) => {
    const made = element("button", { className: "thumb wide" }, element("span", { className: "why" }, `sample ${counted(index)}`), element("span", { className: "reason" }, error));
    made.onclick = () => shown.look(index);
    return made;
  }));
}

function table(pairs, nothing) {
  if (!pairs.length) return element("p", {}, nothing);
  const rows = pairs.map(([name, said]) => element("tr", {}, element("td", {}, name), element("td", {}, typeof said === "number" ? counted(said) : said)));
  return element("table", {}, element("tbody", {}, ...rows));
}
