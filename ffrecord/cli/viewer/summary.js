// The summary of the dataset: facts, sizes of records, contents of columns.

const facts = part("facts");
let factsAsked = false;

function toggleFacts(open = facts.hidden) {
  facts.hidden = !open;
  part("tell").setAttribute("aria-pressed", open);
  (open ? facts : grid).focus();
  if (!open || factsAsked) return;
  factsAsked = true;
  const boxes = { facts: make("div", "box"), schema: make("div", "box two"), sizes: make("div", "box wide"), columns: make("div", "wide") };
  const inner = make("div", "inner", "", ...Object.values(boxes));
  facts.replaceChildren(inner);
  for (const [name, box] of Object.entries(boxes)) box.append(make("h2", "", `${name} …`));
  show(boxes.facts, async () => showFacts(boxes.facts, boxes.schema, await source.facts()));
  show(boxes.sizes, () => follow(source.sizes, boxes.sizes, "Sizes of records", (told) => showSizes(boxes.sizes, told.sizes)));
  show(boxes.columns, () => follow(source.columns, boxes.columns, "Columns", (told) => showColumns(inner, boxes.columns, told)));
}

async function show(box, fill) {
  try {
    await fill();
  } catch (error) {
    box.append(make("p", "trouble unknown", error.message));
  }
}

async function follow(asks, box, title, done) {
  for (;;) {
    const told = await asks();
    if (told.ended) {
      if (told.failure) throw new Error(told.failure);
      done(told);
      return;
    }
    box.replaceChildren(heading(title, `${amount(told.looked)} of ${amount(told.total)} looked at …`));
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

const heading = (text, more = "") => make("h2", "", text, ...(more ? [make("small", "", more)] : []));

function showFacts(box, schemaBox, told) {
  const list = make("dl", "told");
  for (const [name, value] of Object.entries(told)) {
    if (name === "schema" || value === null || name === "size") continue;
    const words = Array.isArray(value) ? value.join("; ") : inWords(value);
    row(list, name, name === "bytes" ? `${told.size ?? inBytes(value)} (${amount(value)})` : words);
  }
  box.replaceChildren(heading("Dataset"), list);
  const columns = Object.entries(told.schema || {});
  schemaBox.replaceChildren(heading("Schema", columns.length ? counted(columns.length, "column") : ""));
  if (!columns.length) schemaBox.append(make("p", "soft", "This dataset has no schema: its records hold bytes, or describe themselves."));
  const schema = make("dl", "told");
  for (const [name, field] of columns) row(schema, name, field, true);
  schemaBox.append(schema);
}

function showSizes(box, told) {
  const estimated = told.histogram_of_every > 1 ? `; bars estimated from one record in ${told.histogram_of_every}` : "";
  box.replaceChildren(heading("Sizes of records", `${counted(told.records, "record")}, ${inBytes(told.bytes)}${estimated}`));
  if (!told.records) return;
  const most = Math.max(...told.histogram), bars = make("div", "bars"), edges = make("div", "edges");
  told.histogram.forEach((found, i) => {
    const bar = make("div", "", "", make("b", "", found ? short(found) : ""));
    bar.style.height = `${(100 * found) / most}%`;
    if (found) bar.style.minHeight = "2px";
    bar.title = `${inBytes(told.edges[i])} to ${inBytes(told.edges[i + 1])}: ${amount(found)}`;
    bars.append(bar);
  });
  const labels = told.edges.length > 7 ? told.edges.filter((_, i) => i % Math.ceil((told.edges.length - 1) / 6) === 0) : told.edges;
  for (const edge of labels) edges.append(make("span", "", inBytes(edge)));
  const numbers = make("div", "numbers");
  for (const [name, value] of Object.entries({ mean: told.mean, ...told.percentiles })) numbers.append(make("div", "", "", make("span", "", name), inBytes(value)));
  box.append(bars, edges, numbers);
}

const short = (number) => Intl.NumberFormat("en-US", { notation: "compact", maximumSignificantDigits: 3 }).format(number);

function showColumns(inner, box, told) {
  const columns = Object.entries(told.columns);
  box.replaceChildren(heading("Columns", `by ${counted(told.total, "sample")}, spread over the dataset`));
  box.hidden = !columns.length;
  for (const [name, { kind, frequent, samples, ...rest }] of columns) {
    const list = make("dl", "told");
    for (const [fact, value] of Object.entries(rest)) row(list, fact, inWords(value));
    const card = make("div", "box", "", heading(name, kind), list);
    if (frequent && Object.keys(frequent).length) card.append(often(frequent));
    inner.append(card);
  }
}

function often(frequent) {
  const made = make("div", "often"), most = Math.max(...Object.values(frequent));
  for (const [value, found] of Object.entries(frequent)) {
    const bar = make("i");
    bar.style.width = `${(100 * found) / most}%`;
    made.append(make("span", "", value), bar, make("em", "", amount(found)));
  }
  return made;
}
