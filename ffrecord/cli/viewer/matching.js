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
