// The panel beside the grid: one sample with all its columns.

const panel = part("panel");
let opened = 0; // number of the latest request; older answers are ignored

async function openPanel() {
  if (view.chosen < 0) return;
  const index = indexAt(view.chosen), mine = ++opened;
  panel.hidden = false;
  fit();
  let told;
  try {
    told = await source.whole(index);
  } catch (error) {
    told = { at: index, error: error.message, pictures: [], fields: [] };
  }
  if (mine === opened && !panel.hidden) showWhole(told);
}

function closePanel() {
  opened++;
  panel.hidden = true;
  fit();
  grid.focus();
}

function showWhole(told) {
  const bar = make("div", "bar", "", make("h2", "", told.name ? `${amount(told.at)} · ${told.name}` : amount(told.at)),
    button("‹", "previous sample", () => choose(view.chosen - 1)), button("›", "next sample", () => choose(view.chosen + 1)),
    button("✕", "close", closePanel));
  const parts = [bar];
  if (told.error) parts.push(make("p", "trouble", told.error));
  for (const column of told.pictures) {
    const frame = make("div", "shown");
    frame.append(picture(told, column, false, () => frame.append(make("p", "trouble unknown", "This browser cannot show the picture."))));
    parts.push(frame);
  }
  const list = make("dl", "told");
  for (const [name, value] of told.fields) row(list, name, value, value.includes("\n"));
  if (told.bytes !== undefined) row(list, "record", inBytes(told.bytes));
  if (told.file !== undefined) row(list, "file", told.file);
  if (told.place !== undefined) row(list, "index in the file", amount(told.place));
  parts.push(list);
  panel.replaceChildren(...parts);
}

function row(list, name, value, code = false) {
  list.append(make("dt", "", name), make("dd", code ? "code" : "", value));
}

function button(text, label, act) {
  const made = make("button", "", text);
  made.type = "button";
  made.setAttribute("aria-label", label);
  made.onclick = act;
  return made;
}

// Lays the grid out again after its width has changed, and keeps the chosen sample visible.
function fit() {
  if (grid.clientWidth === view.width && grid.clientHeight === view.height) return;
  layOut();
  if (view.chosen >= 0 && view.chosen < count()) {
    const y = Math.floor(view.chosen / view.columns) * view.rowHeight;
    if (y < view.top || y + view.rowHeight > view.top + view.height) setTop(y - (view.height - view.rowHeight) / 2);
  }
}
