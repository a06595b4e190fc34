// The fields of a sample drawn over its picture, in an <svg> whose units are the image's pixels.

import { picture } from "./asking.js";
import { svg } from "./elements.js";

const GOLDEN_ANGLE = 137.508;

/** Return the colour of an object's number, counted from 1; the server gives masks the same. */
export const colour = (number) => `hsl(${((number - 1) * GOLDEN_ANGLE) % 360} 85% 55%)`;

function colours(field, count) {
  const names = field.labels ?? [];
  const numbers = new Map();
  for (const name of names) if (!numbers.has(name)) numbers.set(name, numbers.size + 1);
  return Array.from({ length: count }, (_, place) => colour(numbers.get(names[place]) ?? place + 1));
}

function boxes(field, words, size) {
  const drawn = svg("g");
  const tones = colours(field, field.boxes.length);
  field.boxes.forEach(([left, top, right, bottom], place) => {
    const about = { x: left, y: top, width: Math.max(right - left, 0), height: Math.max(bottom - top, 0) };
    drawn.append(svg("rect", { ...about, class: "box", stroke: tones[place] }));
    const name = field.labels?.[place];
    if (words && name) {
      const y = top > size ? top - size * 0.3 : top + size;
      const text = svg("text", { x: Math.max(left, 0) + size * 0.15, y, class: "boxName", "font-size": size, fill: tones[place] });
      text.textContent = name;
      drawn.append(text);
    }
  });
  return drawn;
}

function polygons(field) {
  const drawn = svg("g");
  const tones = colours(field, field.polygons.length);
  field.polygons.forEach((shapes, place) => {
    for (const shape of shapes) {
      drawn.append(svg("polygon", { points: shape.join(" "), class: "polygon", stroke: tones[place], fill: tones[place] }));
    }
  });
  return drawn;
}

function keypoints(field, radius) {
  const drawn = svg("g");
  const tones = colours(field, field.keypoints.length);
  field.keypoints.forEach((points, place) => {
    for (const [x, y, visible] of points) {
      if (visible > 0) drawn.append(svg("circle", { cx: x, cy: y, r: radius, class: visible > 1 ? "point" : "point hiddenPoint", fill: tones[place] }));
    }
  });
  return drawn;
}

/**
 * Return what is drawn of each field that can be, the lowest first: [name, <g>]. `words` says whether boxes have their
 * names; `failed(name)` is called of a mask that cannot be shown.
 */
export function drawings(sample, side, words, failed = () => {}) {
  const longest = Math.max(sample.width, sample.height);
  const found = [];
  for (const field of sample.fields ?? []) {
    const drawn = svg("g", { "data-field": field.name });
    if (field.picture === "mask") {
      const href = picture("field", { index: sample.index, name: field.name, as: "mask", side });
      const mask = svg("image", { href, width: sample.width, height: sample.height, class: "mask", preserveAspectRatio: "none" });
      mask.addEventListener("error", () => failed(field.name));
      drawn.append(mask);
    }
    if (field.polygons) drawn.append(polygons(field));
    if (field.boxes) drawn.append(boxes(field, words, longest / 38));
    if (field.keypoints) drawn.append(keypoints(field, longest / 130));
    const above = field.keypoints ? 3 : field.boxes ? 2 : field.polygons ? 1 : 0;
    if (drawn.childNodes.length) found.push([field.name, drawn, above]);
  }
  return found.sort((one, other) => one[2] - other[2]);
}

/** Return the caption of a sample: its first field of text. */
export const caption = (sample) => (sample.fields ?? []).find((field) => field.kind === "text" && !field.error)?.text ?? "";
