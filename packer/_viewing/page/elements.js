// Functions that make elements. Text from a pack is always inserted as text, never as HTML.

export const $ = (id) => document.getElementById(id);

/** Return a new HTML element with properties and children; strings become text. */
export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

/** Return a new SVG element. */
export function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Fill a <dl> with pairs of term and text. */
export function describe(list, pairs) {
  list.replaceChildren(...pairs.flatMap(([term, text]) => [element("dt", {}, term), element("dd", {}, text)]));
}

export const counted = (number) => number.toLocaleString("en-US");

export function bytes(size) {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (size < 1000) return unit === "B" ? `${size} B` : `${size.toFixed(1)} ${unit}`;
    size /= 1000;
  }
  return `${size.toFixed(1)} TB`;
}

/** Return a debounced `call`: it runs when it has not been called again for some milliseconds. */
export function later(call, milliseconds) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...given), milliseconds);
  };
}
