// The views other than the pictures: histograms, duplicates, and findings (unusual properties of images).

import { ask, askSheet } from "./asking.js";
import { $, bytes, counted, element } from "./elements.js";

const NAMES = { width: "width", height: "height", aspect: "aspect ratio", size: "bytes", label: "class" };

/** Show histograms of the samples that the query `wanted` finds; `narrow(range)` is called with the range of a clicked bar. */
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
  place.replaceChildren(...(drawn.length ? drawn : [element("p", { className: "empty" }, "No image matches the filters.")]));
}

/** Return a range of a measure as text. */
export function rangeSaid({ measure, low, high }) {
  const short = (text) => Number(text).toLocaleString("en-US", { maximumFractionDigits: 3 });
  return `${NAMES[measure]} ≥ ${short(low)} and < ${short(high)}`;
}

/** Show groups of samples with identical image bytes; `look(index)` is called with the sample that the user clicks. */
export async function showDuplicates(look) {
  const place = $("duplicates");
  place.replaceChildren(element("p", { className: "empty" }, "Comparing checksums …"));
  const { groups, candidates, reason } = await ask("duplicates");
  const said = reason || (candidates === 0 ? "No duplicates: every image is different." : summary(groups, candidates));
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
  const same = `${counted(candidates)} ${candidates === 1 ? "group" : "groups"} of images with the same checksum and size`;
  return `${same}. ${counted(groups.length)} compared byte by byte and identical.`;
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

/** Show findings and files that were left out, and a button that checks all samples; `look(index)` is called with a clicked sample. */
export function showFindings(packs, look) {
  const place = $("findings");
  const check = element("button", {}, "Check every image");
  const progress = element("progress", { max: Math.max(packs.count, 1), value: 0, hidden: true, ariaLabel: "Images checked" });
  const shown = { check, progress, place, look, packs, damaged: element("div", { className: "strip" }), listed: element("div") };
  shown.outcome = element("p", { className: "lead" }, "Reads and decodes every image, and lists the damaged ones here.");
  check.onclick = () => checkAll(packs.count, shown);
  place.replaceChildren(
    part("Damage", element("div", { className: "row" }, check, progress), shown.outcome, shown.damaged),
    part("Findings", shown.listed),
    part("Left out of the pack", table(packs.leftOut, "Every file of the source is in the pack.")),
  );
  if (packs.leftOutCount > packs.leftOut.length) place.append(element("p", {}, `The first ${counted(packs.leftOut.length)} of ${counted(packs.leftOutCount)}.`));
  listFindings([], shown);
  ask("check").then((said) => (said.count || said.findings.length) && listChecked(said, shown), () => {});
}

const part = (title, ...children) => element("section", { className: "part" }, element("h2", {}, title), ...children);

async function checkAll(count, shown) {
  shown.check.disabled = true;
  shown.progress.hidden = false;
  try {
    let said = { next: 0 };
    while ((said.next < count || said.unread) && !shown.place.hidden) {
      said = await ask("check", { start: said.next });
      shown.progress.value = said.next;
      listChecked(said, shown, said.next === count);
    }
  } catch (error) {
    shown.outcome.textContent = error.message;
  }
  shown.check.disabled = false;
}

function listChecked({ damaged, count, next, findings }, shown, done) {
  const without = done ? `All ${counted(next)} images are whole.` : `${counted(next)} images checked, none damaged`;
  shown.outcome.textContent = count ? `${counted(count)} damaged` : without;
  if (count) shown.outcome.append(" ", element("a", { href: "#finding=damaged" }, count === 1 ? "Show it" : "Show them"));
  shown.damaged.replaceChildren(...damaged.map(({ index, error }) => {
    const made = element("button", { className: "thumb wide" }, element("span", { className: "why" }, `sample ${counted(index)}`), element("span", { className: "reason" }, error));
    made.onclick = () => shown.look(index);
    return made;
  }));
  listFindings(findings, shown);
}

/** List the findings of the conversion, and those that only the check has found, each with a link to its images. */
function listFindings(checked, { listed, packs }) {
  const known = new Set(packs.findings.map(([name]) => name));
  const all = [...packs.findings, ...checked.filter(([name]) => !known.has(name))];
  const rows = all.map(([name, count]) => {
    const link = element("a", { className: "finding", href: `#${new URLSearchParams({ finding: name })}` });
    link.append(element("span", {}, name), element("span", {}, counted(count)), element("span", { ariaHidden: "true" }, "›"));
    return link;
  });
  const nothing = element("p", { className: "lead" }, "The conversion found nothing unusual.");
  listed.replaceChildren(rows.length ? element("div", { className: "findings" }, ...rows) : nothing);
  if (rows.length && !packs.kept) listed.append(element("p", { className: "lead" }, ENCODED));
}

const ENCODED = "These were counted in the source files. Images that were encoded again no longer show what their files had.";

function table(pairs, nothing) {
  if (!pairs.length) return element("p", { className: "lead" }, nothing);
  const rows = pairs.map(([name, said]) => element("tr", {}, element("td", {}, name), element("td", {}, typeof said === "number" ? counted(said) : said)));
  return element("table", {}, element("tbody", {}, ...rows));
}
