"use strict";
// The source of samples: the server, or this file itself. Both have the same functions.

const data = JSON.parse(document.getElementById("data").textContent);
const begin = data.begin;

async function ask(address, query = {}, signal = undefined) {
  const answer = await fetch(`${address}?${new URLSearchParams(query)}`, { signal });
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.error);
  return told;
}

const server = {
  count: begin.count,
  cells: (indices, signal) => ask("samples", { at: indices.join(",") }, signal),
  whole: (index) => ask("sample", { at: index }),
  picture: (cell, column, small) => `picture?${new URLSearchParams({ at: cell.at, column, ...(small ? { small: "" } : {}) })}`,
  find: async (what) => (await ask("find", { what })).at,
  facts: () => ask("facts"),
  sizes: () => ask("sizes"),
  columns: () => ask("columns"),
  async *matches(column, value, stopped) {
    const { id } = await ask("filter", column.damaged ? { column: column.name, damaged: "" } : { column: column.name, value });
    for (let after = 0; ; ) {
      const told = await ask("matches", stopped() ? { id, after, stop: "" } : { id, after });
      after += told.matches.length;
      yield told;
      if (stopped() || (told.ended && after >= told.found)) return;
      if (!told.matches.length) await new Promise((resolve) => setTimeout(resolve, 150));
    }
  },
};

const thisFile = {
  count: begin.kept,
  cells: async (indices) => indices.map((index) => data.cells[index]),
  whole: async (index) => ({ ...data.cells[index], fields: data.cells[index].whole }),
  picture: (cell, column) => cell.data[column],
  async find(what) {
    const index = /^-?\d+$/.test(what) ? Number(what) : data.cells.findIndex((cell) => cell.name === what);
    const found = index < 0 && what.startsWith("-") ? begin.count + index : index;
    if (found < 0 || found >= begin.kept) throw new Error(`${what} is not among the ${counted(begin.kept, "sample")} of this page`);
    return found;
  },
  facts: async () => data.facts,
  sizes: async () => data.sizes,
  columns: async () => data.columns,
  async *matches(column, value) {
    const isWanted = column.damaged ? null : matcher(value, column.classes);
    const valueOf = (cell) => cell.values[column.name];
    const matches = data.cells.filter((cell) => (isWanted ? isWanted(valueOf(cell)) : cell.error)).map((cell) => cell.at);
    const unreadable = isWanted ? data.cells.filter((cell) => valueOf(cell).unreadable).length : 0;
    yield { matches, found: matches.length, looked: begin.kept, total: begin.kept, ended: true, unreadable, failure: "" };
  },
};

const source = data.cells ? thisFile : server;

// Formatting of numbers, and creation of elements. Text stays text: nothing from a dataset becomes HTML.

const amount = (number) => number.toLocaleString("en-US");
const counted = (number, what) => `${amount(number)} ${what}${number === 1 ? "" : "s"}`;

function inBytes(size) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let power = 0;
  for (; size >= 999.5 && power < units.length - 1; power++) size /= 1000;
  return `${power ? Number(size.toPrecision(3)) : Math.round(size)} ${units[power]}`;
}

const plain = (number) => (Math.abs(number) >= 1e-4 && Math.abs(number) < 1e9
  ? number.toLocaleString("en-US", { maximumSignificantDigits: 5 }) : String(Number(number.toPrecision(5))));

function inWords(value) {
  if (typeof value === "number") return Number.isInteger(value) ? amount(value) : plain(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (value && typeof value === "object") return Object.entries(value).map(([name, each]) => `${name}: ${inWords(each)}`).join(", ");
  return String(value);
}

function make(tag, kind = "", text = "", ...children) {
  const made = document.createElement(tag);
  if (kind) made.className = kind;
  if (text) made.textContent = text;
  made.append(...children);
  return made;
}

const part = (id) => document.getElementById(id);

// The filter, like matching.py, for an exported page that has no server to ask.

const SPAN = "..";
const TRUTH = new Map([["true", 1], ["yes", 1], ["false", 0], ["no", 0]]);
const DIGITS = "\\d(?:_?\\d)*";
const NUMBER = new RegExp(`^[+-]?(?:${DIGITS}\\.?(?:${DIGITS})?|\\.${DIGITS})(?:e[+-]?${DIGITS})?$`);
const INFINITE = /^([+-]?)inf(?:inity)?$/;

function matcher(wanted, classes) {
  const parts = wanted.split(",").map((part) => folded(part.trim())).filter(Boolean);
  if (!parts.length) throw new Error("the filter is empty; enter values or text to look for");
  const spans = parts.flatMap((part) => spansOf(part, classes));
  return ({ number, text }) => {
    if (number !== undefined) return spans.some(([low, high]) => low <= Number(number) && Number(number) <= high);
    return text !== undefined && parts.some((part) => folded(text).includes(part));
  };
}

function spansOf(part, classes) {
  const found = classes ? classesOf(part, classes.map(folded)) : [];
  if (found.length) return found.map((number) => [number, number]);
  if (TRUTH.has(part)) return [[TRUTH.get(part), TRUTH.get(part)]];
  const at = part.indexOf(SPAN);
  const low = numberOf(at < 0 ? part : part.slice(0, at)), high = at < 0 ? low : numberOf(part.slice(at + SPAN.length));
  return Number.isNaN(low) || Number.isNaN(high) ? [] : [[low, high]]; // no range of numbers: the condition is text
}

function classesOf(part, names) {
  const numbers = names.map((_, number) => number), same = numbers.filter((number) => names[number] === part);
  if (same.length || /^\p{Nd}+$/u.test(part)) return same;
  return numbers.filter((number) => names[number].includes(part));
}

// Reads numbers as Python does. JavaScript takes "" for a number, and does not know 1_000 and inf.
function numberOf(text) {
  const trimmed = text.trim(), infinite = INFINITE.exec(trimmed);
  if (infinite) return infinite[1] === "-" ? -Infinity : Infinity;
  return NUMBER.test(trimmed) ? Number(trimmed.replaceAll("_", "")) : NaN;
}

// Folds case like str.casefold: toLowerCase alone would keep ß apart from ss. The dotless ı is not i, though both have the
// capital I.
const folded = (text) => text.split("ı").map((part) => part.toUpperCase().toLowerCase()).join("ı").replaceAll("ς", "σ");
