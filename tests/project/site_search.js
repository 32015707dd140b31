// Search the built site with the site's own search worker. Usage: node site_search.js SITE < queries, one a line.
// Prints a line of JSON for each query: the places found, as [page, section …], best page first.
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const site = process.argv[2];
const workers = path.join(site, "assets", "javascripts", "workers");
const worker = fs.readdirSync(workers).find((name) => /^search\..*\.js$/.test(name));
let answer, receive;
globalThis.self = globalThis;
globalThis.addEventListener = (kind, listener) => { receive = listener; };
globalThis.postMessage = (message) => answer(message);
vm.runInThisContext(fs.readFileSync(path.join(workers, worker), "utf8"));

function ask(type, data) {
  return new Promise((resolve) => { answer = resolve; receive({ data: { type, data } }); });
}

async function main() {
  const { config, docs } = JSON.parse(fs.readFileSync(path.join(site, "search", "search_index.json"), "utf8"));
  await ask(0, { config, docs, options: {} });
  for (const query of fs.readFileSync(0, "utf8").trim().split("\n")) {
    const found = (await ask(2, query)).data.items.map((page) => page.map((part) => part.location));
    process.stdout.write(`${JSON.stringify(found)}\n`);
  }
}

main();
