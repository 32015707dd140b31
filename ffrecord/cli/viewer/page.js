// Controls and keys.

const where = part("where"), wanted = part("wanted"), column = part("column");
let filter = null; // { text, stop, told }

function say() {
  if (filter) {
    const { told, text } = filter;
    const found = told ? `${amount(view.matches.length)} found` : "…";
    const looked = told && !told.ended ? `, ${amount(told.looked)} of ${amount(told.total)} looked at` : "";
    const more = told && told.full ? ", the limit of a filter" : told && told.unreadable ? `, ${amount(told.unreadable)} unreadable` : "";
    part("status").textContent = `${text}: ${found}${looked}${more}`;
    return;
  }
  const [start, stop] = seen();
  const total = source.count < begin.count ? `${amount(source.count)}, the first of ${amount(begin.count)}` : amount(begin.count);
  part("status").textContent = count() ? `${amount(start)} – ${amount(stop - 1)} of ${total}` : "no samples";
}

function tell(text) {
  part("remark").hidden = !(text || begin.remark);
  part("remark").textContent = text || begin.remark;
}

part("jump").addEventListener("submit", async (event) => {
  event.preventDefault();
  const what = where.value.trim().replace(/^(-?\d{1,3})((,\d{3})+)$/, (text) => text.replaceAll(",", ""));
  if (!what) return;
  try {
    const index = await source.find(what);
    if (view.matches && !view.matches.includes(index)) showAll();
    choose(view.matches ? view.matches.indexOf(index) : index, true);
    grid.focus();
    tell("");
  } catch (error) {
    tell(error.message);
    where.select();
  }
});

part("filter").addEventListener("submit", (event) => {
  event.preventDefault();
  startFilter();
});

// Without a column to filter by, "damaged" would be the first choice, and choosing it would fire no change event.
const choices = begin.columns.every((each) => each.damaged) ? [{ name: "all samples", all: true }, ...begin.columns] : begin.columns;
const columnChosen = () => choices[column.selectedIndex];

function prepareFilter() {
  part("choices").replaceChildren(...(columnChosen().classes || []).slice(0, 2000).map((name) => { const made = make("option"); made.value = name; return made; }));
  wanted.disabled = Boolean(columnChosen().damaged || columnChosen().all);
}

column.addEventListener("change", () => {
  prepareFilter();
  if (columnChosen().damaged) startFilter();
  else if (filter) { showAll(); wanted.value = ""; }
});

async function startFilter() {
  const by = columnChosen(), value = wanted.value.trim();
  if (!by.damaged && !value) { showAll(); return; }
  if (filter) filter.stop = true;
  const mine = filter = { text: by.damaged ? "damaged" : `${by.name} ${value}`, stop: false, told: null };
  view.matches = [];
  view.chosen = -1;
  part("clear").hidden = false;
  if (!panel.hidden) closePanel();
  refresh(0);
  try {
    for await (const told of source.matches(by, value, () => mine.stop)) {
      if (mine !== filter) continue;
      mine.told = told;
      for (const index of told.matches) view.matches.push(index);
      part("progress").hidden = told.ended;
      part("progress").value = told.total ? told.looked / told.total : 1;
      if (told.failure && told.failure !== "stopped") tell(told.failure);
      grow();
    }
  } catch (error) {
    if (mine === filter) { tell(error.message); showAll(); }
  }
}

function showAll() {
  if (filter) filter.stop = true;
  filter = null;
  if (columnChosen().damaged) { column.selectedIndex = 0; prepareFilter(); }
  const index = view.matches && view.chosen >= 0 ? view.matches[view.chosen] : -1;
  view.matches = null;
  view.chosen = index;
  part("clear").hidden = true;
  part("progress").hidden = true;
  refresh(0);
  if (index >= 0) choose(index, true);
}

function refresh(top) {
  view.top = top;
  layOut();
  emptiness();
}

function grow() {
  space.style.height = `${Math.min(whole(), CAP)}px`;
  render();
  emptiness();
}

function emptiness() {
  const text = count() ? "" : !filter ? "This dataset has no samples." : filter.told && filter.told.ended ? "No sample matches." : "Looking …";
  grid.querySelector(".nothing")?.remove();
  if (text) grid.append(make("p", "nothing", text));
}

part("clear").addEventListener("click", () => { wanted.value = ""; showAll(); grid.focus(); });
part("tell").addEventListener("click", () => toggleFacts());
part("help").addEventListener("click", () => part("keys").showModal());
part("theme").addEventListener("click", switchTheme);

function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
}

function resize(step) {
  view.size = Math.min(Math.max(view.size + step, 0), SIZES.length - 1);
  const first = view.chosen >= 0 ? view.chosen : seen()[0];
  layOut();
  setTop(Math.floor(first / view.columns) * view.rowHeight);
}

const screen = () => Math.max(1, Math.floor(view.height / view.rowHeight)) * view.columns;
const MOVES = {
  ArrowLeft: () => view.chosen - 1, ArrowRight: () => view.chosen + 1,
  ArrowUp: () => view.chosen - view.columns, ArrowDown: () => view.chosen + view.columns,
  PageUp: () => view.chosen - screen(), PageDown: () => view.chosen + screen(),
  Home: () => 0, End: () => count() - 1,
};
const KEYS = {
  "/": () => where.select(), g: () => where.select(), f: () => wanted.select(), i: () => toggleFacts(), d: switchTheme,
  "?": () => part("keys").showModal(), "+": () => resize(1), "=": () => resize(1), "-": () => resize(-1),
  Enter: () => (panel.hidden ? openPanel() : closePanel()),
  Escape: () => { if (!facts.hidden) toggleFacts(false); else if (!panel.hidden) closePanel(); else { wanted.value = ""; showAll(); } },
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || part("keys").open) return;
  const typing = event.target.matches("input, select");
  if (typing && event.key === "Escape") { event.target.blur(); grid.focus(); return; }
  if (typing || (event.target.matches("button") && event.key === "Enter")) return;
  if (MOVES[event.key] && facts.hidden) {
    event.preventDefault();
    choose(view.chosen < 0 && event.key !== "End" && event.key !== "Home" ? seen()[0] : MOVES[event.key]());
  } else if (KEYS[event.key]) {
    event.preventDefault();
    KEYS[event.key]();
  }
});

function start() {
  const name = begin.source.replace(/\/+$/, "").split("/").pop() || begin.source;
  document.title = `${name} – ffrecord`;
  part("name").textContent = name;
  part("name").title = begin.source;
  part("about").textContent = `${begin.format} · ${counted(begin.count, "sample")}`;
  where.placeholder = begin.named ? "go to index or name" : "go to index";
  for (const each of choices) { const made = make("option", "", each.name); column.append(made); }
  prepareFilter();
  tell("");
  new ResizeObserver(fit).observe(grid);
  refresh(0);
  grid.focus();
}

start();
