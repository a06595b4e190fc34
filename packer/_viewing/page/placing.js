// Positions for the names of boxes: near the boxes, inside of the picture, and without overlaps.

const MOST_STEPS = 16; // most positions that are tried along an edge of a box

function* candidates({ left, top, right, bottom, width, height }) {
  yield [left, top - height]; // above the box, where the name does not hide the box
  yield [left, top];
  yield [right - width, top - height];
  yield [left, bottom];
  yield [right - width, top];
  yield [left, bottom - height];
  for (let step = 1; step <= MOST_STEPS && top + step * height < bottom; step++) {
    yield [left, top + step * height];
    yield [right - width, top + step * height];
  }
  for (let step = 1; step <= MOST_STEPS; step++) {
    yield [left, top - (step + 1) * height];
    yield [left, bottom + step * height];
  }
}

const meet = (one, other) =>
  one.x < other.x + other.width && other.x < one.x + one.width && one.y < other.y + other.height && other.y < one.y + one.height;

/**
 * Return the rectangle for each name, { x, y, width, height }, or null for a name without a free position.
 *
 * Each of `names` has { left, top, right, bottom } of a box and { width, height } of its name. `width` and `height` are
 * those of the picture. Names of small boxes are placed first, because the names of large boxes have more positions.
 */
export function place(names, width, height) {
  const area = ({ left, top, right, bottom }) => (right - left) * (bottom - top);
  const order = names.map((_, number) => number).sort((one, other) => area(names[one]) - area(names[other]));
  const placed = names.map(() => null);
  const taken = [];
  for (const number of order) {
    const name = names[number];
    if (name.width > width || name.height > height) continue;
    for (const [left, top] of candidates(name)) {
      const x = Math.min(Math.max(left, 0), width - name.width);
      const y = Math.min(Math.max(top, 0), height - name.height);
      const one = { x, y, width: name.width, height: name.height };
      if (taken.some((other) => meet(one, other))) continue;
      placed[number] = one;
      taken.push(one);
      break;
    }
  }
  return placed;
}
