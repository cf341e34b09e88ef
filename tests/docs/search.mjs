// Answers queries as the site's search box does: runs the theme's own search worker on the built index.
// node search.mjs SITE QUERY...: prints {query: [page, ...]}, best page first.
import fs from "node:fs";
import path from "node:path";
import vm from "node:vm";

const [site, ...queries] = process.argv.slice(2);
const index = JSON.parse(fs.readFileSync(path.join(site, "search/search_index.json"), "utf8"));
const folder = path.join(site, "assets/javascripts/workers");
const [worker] = fs.readdirSync(folder).filter((name) => /^search\..*\.js$/.test(name));

// A worker's global scope, as far as the search uses it.
let receive, answer;
globalThis.self = globalThis;
globalThis.addEventListener = (_, listener) => (receive = listener);
globalThis.postMessage = (message) => answer(message);
vm.runInThisContext(fs.readFileSync(path.join(folder, worker), "utf8"));
const send = (type, data) => new Promise((resolve) => ((answer = resolve), receive({ data: { type, data } })));

await send(0, { ...index, options: {} });
const pages = {};
for (const query of queries) {
  const { data } = await send(2, query);
  pages[query] = data.items.map(([first]) => first.location.split("#")[0]);
}
console.log(JSON.stringify(pages));
