// The grid. Only visible cells have elements, however many samples there are.
//
// Browsers cannot show an element of a billion pixels. If the grid would be higher than CAP, its element is CAP high, and
// the scroll bar stands for the whole grid. `top` is the position in the whole grid. It follows small steps of the scroll
// bar (wheel, keys) exactly, and large steps in proportion. When scrolling ends, the bar moves to where `top` is.

const CAP = 8e6, EDGE = 2e5; // pixels; within EDGE of both ends the bar is exact
const SIZES = [64, 96, 132, 180, 260]; // about the pixels of a picture
const AHEAD = 1; // screens of cells that are requested before they are visible
const TOGETHER = 48, KEPT = 6000; // cells in one request; cells kept
const LATE = 150; // milliseconds; a picture that takes longer fades in
const PAUSE = 40; // milliseconds without scrolling before cells are requested

const grid = part("grid"), space = part("space");
const cells = new Map(); // index → cell, recently used ones at the end
const elements = new Map(); // position → element
const asked = new Set(); // { indices, abort }
const view = { matches: null, top: 0, last: 0, width: 1, height: 1, columns: 1, rowHeight: 100, chosen: -1, size: 2, kind: null };
const GAP = 10, CAPTION = 30, ROW = 19;

const count = () => (view.matches ? view.matches.length : source.count);
const indexAt = (position) => (view.matches ? view.matches[position] : position);
const rows = () => Math.ceil(count() / view.columns);
const whole = () => Math.max(rows() * view.rowHeight + GAP, view.height);
const clampTop = (top) => Math.min(Math.max(top, 0), whole() - view.height);

function toBar(top) {
  if (whole() <= CAP) return top;
  const last = whole() - view.height, end = CAP - view.height;
  if (top <= EDGE) return top;
  if (top >= last - EDGE) return end - (last - top);
  return EDGE + ((top - EDGE) / (last - 2 * EDGE)) * (end - 2 * EDGE);
}

function fromBar(bar) {
  if (whole() <= CAP) return bar;
  const last = whole() - view.height, end = CAP - view.height;
  if (bar <= EDGE) return bar;
  if (bar >= end - EDGE) return last - (end - bar);
  return EDGE + ((bar - EDGE) / (end - 2 * EDGE)) * (last - 2 * EDGE);
}

function setTop(top) {
  view.top = clampTop(top);
  grid.scrollTop = toBar(view.top);
  view.last = grid.scrollTop;
  render();
}

let settling = 0;
grid.addEventListener("scroll", () => {
  const bar = grid.scrollTop, step = bar - view.last;
  view.last = bar;
  if (step === 0) return;
  view.top = Math.abs(step) <= 1.5 * view.height ? clampTop(view.top + step) : clampTop(fromBar(bar));
  render();
  clearTimeout(settling);
  settling = setTimeout(() => { if (Math.abs(toBar(view.top) - grid.scrollTop) > 1) setTop(view.top); }, 200);
}, { passive: true });

function layOut() {
  const first = Math.floor(view.top / view.rowHeight) * view.columns, within = view.top % view.rowHeight;
  const before = view.columns;
  view.width = grid.clientWidth;
  view.height = Math.max(grid.clientHeight, 1);
  const pictures = view.kind !== "fields";
  const least = pictures ? SIZES[view.size] * (view.width < 500 ? 0.85 : 1) : Math.min(270, view.width - 2 * GAP);
  view.columns = Math.max(1, Math.floor((view.width - GAP) / (least + GAP)));
  view.cell = (view.width - GAP) / view.columns - GAP;
  view.cellHeight = pictures ? Math.round(view.cell) + CAPTION : CAPTION + 12 + ROW * Math.max(1, view.lines || 1);
  view.rowHeight = view.cellHeight + GAP;
  space.style.height = `${Math.min(whole(), CAP)}px`;
  for (const element of elements.values()) element.remove();
  elements.clear();
  setTop(before === view.columns ? view.top : Math.floor(first / view.columns) * view.rowHeight + Math.min(within, view.rowHeight - 1));
}

function seen(more = 0) {
  const start = Math.max(0, Math.floor((view.top - GAP) / view.rowHeight - more));
  const stop = Math.min(rows(), Math.ceil((view.top + view.height) / view.rowHeight) + more);
  return [start * view.columns, Math.min(stop * view.columns, count())];
}

function render() {
  const [start, stop] = seen(1);
  for (const [position, element] of elements) {
    if (position < start || position >= stop) { element.remove(); elements.delete(position); }
  }
  const drift = grid.scrollTop - view.top;
  for (let position = start; position < stop; position++) {
    let element = elements.get(position);
    if (!element) {
      element = make("div", "cell waiting");
      element.setAttribute("role", "option");
      element.id = `cell-${position}`;
      element.style.width = `${view.cell}px`;
      element.style.height = `${view.cellHeight}px`;
      element.position = position;
      elements.set(position, element);
      space.append(element);
      fill(element);
    }
    const x = GAP + (position % view.columns) * (view.cell + GAP);
    const y = GAP + Math.floor(position / view.columns) * view.rowHeight + drift;
    element.style.transform = `translate(${x}px, ${y}px)`;
    const chosen = position === view.chosen;
    if (element.classList.contains("chosen") !== chosen) {
      element.classList.toggle("chosen", chosen);
      element.setAttribute("aria-selected", chosen);
    }
  }
  say();
  want();
}

let wanting = 0;
function want() {
  clearTimeout(wanting);
  wanting = setTimeout(askForSeen, cells.size ? PAUSE : 0);
}

function askForSeen() {
  const [start, stop] = seen(Math.ceil((AHEAD * view.height) / view.rowHeight));
  const near = new Set();
  for (let position = start; position < stop; position++) near.add(indexAt(position));
  const coming = new Set();
  for (const each of asked) {
    if (each.indices.some((index) => near.has(index))) each.indices.forEach((index) => coming.add(index));
    else each.abort.abort();
  }
  const [first, last] = seen();
  const order = [];
  for (let position = first; position < last; position++) order.push(indexAt(position));
  const missing = [...new Set([...order, ...near])].filter((index) => !cells.has(index) && !coming.has(index));
  for (let at = 0; at < missing.length; at += TOGETHER) receive(missing.slice(at, at + TOGETHER));
}

async function receive(indices) {
  const request = { indices, abort: new AbortController() };
  asked.add(request);
  try {
    for (const cell of await source.cells(indices, request.abort.signal)) cells.set(cell.at, cell);
    tell("");
  } catch (error) {
    if (error.name !== "AbortError") tell(`The samples could not be loaded: ${error.message}`);
    return;
  } finally {
    asked.delete(request);
  }
  if (view.kind === null) decideKind();
  for (const [index] of cells) {
    if (cells.size <= KEPT) break;
    cells.delete(index);
  }
  const here = new Set(indices);
  for (const element of elements.values()) if (here.has(indexAt(element.position))) fill(element);
}

function decideKind() {
  const found = [...cells.values()];
  view.kind = found.some((cell) => cell.pictures.length) || found.every((cell) => cell.error) ? "pictures" : "fields";
  view.lines = Math.max(1, ...found.map((cell) => cell.fields.length));
  document.body.classList.toggle("fields", view.kind === "fields");
  layOut();
}

function fill(element) {
  const index = indexAt(element.position), cell = cells.get(index);
  const caption = make("div", "caption", "", make("span", "at", amount(index)));
  if (!cell) {
    element.replaceChildren(make("div", view.kind === "fields" ? "rows" : "thumb"), caption);
    return;
  }
  cells.delete(index);
  cells.set(index, cell); // now the most recently used
  element.classList.remove("waiting");
  element.classList.toggle("damaged", Boolean(cell.error));
  const name = cell.name ? cell.name.split("/").pop() : "";
  const what = view.kind === "fields" ? name : (cell.label ?? name);
  caption.append(make("span", "what", what));
  element.title = [cell.name, cell.error].filter(Boolean).join("\n");
  element.setAttribute("aria-label", `sample ${index}${what ? `, ${what}` : ""}${cell.error ? ", damaged" : ""}`);
  element.replaceChildren(...(view.kind === "fields" ? [caption, inRows(cell)] : [thumbnail(cell), caption]));
}

function inRows(cell) {
  const made = make("div", "rows");
  if (cell.error && !cell.fields.length) made.append(make("p", "trouble", cell.error));
  for (const [name, value] of cell.fields) made.append(make("div", "row", "", make("span", "", name), make("span", "", value)));
  return made;
}

function thumbnail(cell) {
  const made = make("div", "thumb");
  const unknown = () => made.append(make("p", "trouble unknown", "This browser cannot show the picture."));
  if (cell.pictures.length) made.append(picture(cell, cell.pictures[0], true, unknown));
  else if (cell.error) made.append(make("p", "trouble", cell.error));
  else made.append(inRows(cell));
  return made;
}

function picture(cell, column, small, failed) {
  const made = make("img");
  const late = source === server ? setTimeout(() => made.classList.add("coming"), LATE) : 0;
  made.alt = "";
  made.decoding = "async";
  made.draggable = false;
  made.onload = () => { clearTimeout(late); made.classList.remove("coming"); made.classList.toggle("pixels", Math.max(made.naturalWidth, made.naturalHeight) <= 96); };
  made.onerror = () => { clearTimeout(late); made.remove(); failed(); };
  made.src = source.picture(cell, column, small);
  return made;
}

function choose(position, centre = false) {
  if (!count()) return;
  view.chosen = Math.min(Math.max(position, 0), count() - 1);
  grid.setAttribute("aria-activedescendant", `cell-${view.chosen}`);
  const y = Math.floor(view.chosen / view.columns) * view.rowHeight;
  if (centre) setTop(y - (view.height - view.rowHeight) / 2);
  else if (y < view.top) setTop(y);
  else if (y + view.rowHeight + GAP > view.top + view.height) setTop(y + view.rowHeight + GAP - view.height);
  else render();
  if (!part("panel").hidden) openPanel();
}

grid.addEventListener("click", (event) => {
  const element = event.target.closest(".cell");
  if (!element) return;
  choose(element.position);
  openPanel();
});
