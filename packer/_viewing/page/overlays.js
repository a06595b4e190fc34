// Draws the fields of a sample over its picture, in an <svg> whose units are the image's pixels.

import { picture } from "./asking.js";
import { svg } from "./elements.js";
import { place } from "./placing.js";

const GOLDEN_ANGLE = 137.508;
const SATURATION = 0.85;
const LIGHTNESS = 0.55;
const FONT = 12; // font size in pixels of the screen
const PADDING = 4;
const MOST_NAMES = 400; // most names that are drawn, because more would hide the picture

const hue = (number) => ((((number - 1) * GOLDEN_ANGLE) % 360) + 360) % 360;

/** Return the colour of a number, counted from 1. The server draws masks in the same colours. */
export const colour = (number) => `hsl(${hue(number)} ${SATURATION * 100}% ${LIGHTNESS * 100}%)`;

/** Return black or white, whichever is more legible on the colour of a number (by WCAG's relative luminance). */
function ink(number) {
  const reach = SATURATION * Math.min(LIGHTNESS, 1 - LIGHTNESS);
  const linear = [0, 8, 4].map((turn) => {
    const at = (turn + hue(number) / 30) % 12;
    const value = LIGHTNESS - reach * Math.max(-1, Math.min(at - 3, 9 - at, 1));
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] > 0.179 ? "#000" : "#fff";
}

/** Return the number that determines each object's colour: that of its class, or else its position in the field. */
export const numbers = (field, count) => Array.from({ length: count }, (_, at) => (field.ids?.[at] ?? at) + 1);

function boxes(field) {
  const tones = numbers(field, field.boxes.length);
  const drawn = field.boxes.map(([left, top, right, bottom], at) => {
    const about = { x: left, y: top, width: Math.max(right - left, 0), height: Math.max(bottom - top, 0) };
    return svg("rect", { ...about, class: "box", stroke: colour(tones[at]) });
  });
  return svg("g", {}, ...drawn);
}

function polygons(field) {
  const tones = numbers(field, field.polygons.length);
  const drawn = field.polygons.flatMap((shapes, at) =>
    shapes.map((shape) => svg("polygon", { points: shape.join(" "), class: "polygon", stroke: colour(tones[at]), fill: colour(tones[at]) })),
  );
  return svg("g", {}, ...drawn);
}

function keypoints(field, radius) {
  const tones = numbers(field, field.keypoints.length);
  const drawn = svg("g");
  field.keypoints.forEach((points, at) => {
    for (const [x, y, visible] of points) {
      if (visible > 0) drawn.append(svg("circle", { cx: x, cy: y, r: radius, class: visible > 1 ? "point" : "point hiddenPoint", fill: colour(tones[at]) }));
    }
  });
  return drawn;
}

/** Return the drawings of all fields that are not hidden, the lowest first; `failed(name)` is called if a mask cannot be shown. */
export function drawings(sample, side, hidden, failed = () => {}) {
  const longest = Math.max(sample.width, sample.height);
  const found = [];
  for (const field of sample.fields ?? []) {
    if (hidden.has(field.name)) continue;
    const drawn = svg("g", { "data-field": field.name });
    if (field.picture === "mask") {
      const href = picture("field", { index: sample.index, name: field.name, as: "mask", side });
      const mask = svg("image", { href, width: sample.width, height: sample.height, class: "mask", preserveAspectRatio: "none" });
      mask.addEventListener("error", () => failed(field.name));
      drawn.append(mask);
    }
    if (field.polygons) drawn.append(polygons(field));
    if (field.boxes) drawn.append(boxes(field));
    if (field.keypoints) drawn.append(keypoints(field, longest / 130));
    const above = field.keypoints ? 3 : field.boxes ? 2 : field.polygons ? 1 : 0;
    if (drawn.childNodes.length) found.push({ drawn, above });
  }
  return found.sort((one, other) => one.above - other.above).map(({ drawn }) => drawn);
}

const ruler = document.createElement("canvas").getContext("2d");

/** Return a <g> with the names of the boxes in these fields; `pixel` is the size of a screen pixel in image pixels. */
export function boxNames(sample, fields, pixel) {
  ruler.font = `600 ${FONT}px ${getComputedStyle(document.documentElement).fontFamily}`;
  const named = fields.flatMap((field) => {
    const tones = numbers(field, field.boxes.length);
    return field.boxes.flatMap(([left, top, right, bottom], at) => {
      const text = field.labels?.[at];
      if (!text) return [];
      const width = (ruler.measureText(text).width + 2 * PADDING) * pixel;
      return [{ text, number: tones[at], left, top, right, bottom, width, height: (FONT + 5) * pixel }];
    });
  });
  const shown = named.slice(0, MOST_NAMES);
  const drawn = svg("g", { class: "boxNames" });
  place(shown, sample.width, sample.height).forEach((spot, at) => {
    if (!spot) return;
    const { text, number } = shown[at];
    const { x, y, width, height } = spot;
    const plate = svg("rect", { x, y, width, height, rx: 3 * pixel, fill: colour(number) });
    const words = svg("text", { x: x + PADDING * pixel, y: y + height - 4.5 * pixel, "font-size": FONT * pixel, fill: ink(number) }, text);
    drawn.append(svg("g", { class: "boxName" }, plate, words));
  });
  return drawn;
}

/** Return the caption of a sample: the value of its first text field that is not hidden. */
export const caption = (sample, hidden) =>
  (sample.fields ?? []).find((field) => field.kind === "text" && !field.error && !hidden.has(field.name))?.text ?? "";
