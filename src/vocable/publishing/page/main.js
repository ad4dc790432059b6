// The page around the search: its documents in numbers, and what a service worker keeps for use without a network.

const SMALL = 5e6; // bytes that are kept unasked
const PAUSE = 3000; // milliseconds after the start
const count = new Intl.NumberFormat("en");
const $ = (id) => document.getElementById(id);
const search = document.querySelector("vocable-search");

async function start() {
  search.focus();
  const worker = navigator.serviceWorker?.register("worker.js").then(() => navigator.serviceWorker.ready).catch(() => null);
  const collection = await search.open();
  $("about").textContent = `${count.format(collection.documents)} documents, searched in your browser.`;
  const active = (await worker)?.active;
  if (!active) return;
  navigator.serviceWorker.addEventListener("message", ({ data }) => {
    $("saved").textContent = data.left ? `Saving, ${count.format(data.left)} files left.` : "Works without a network.";
    $("save").hidden = true;
  });
  const names = await collection.files(), kept = collection.encoder?.files ?? [];
  const keep = () => active.postMessage({ names, kept });
  active.postMessage({ names, kept, onlyOld: true });
  if (collection.nbytes <= SMALL && !navigator.connection?.saveData) setTimeout(keep, PAUSE);
  else {
    $("save").textContent = `Save for use without a network (${(collection.nbytes / 1e6).toFixed(1)} MB)`;
    $("save").hidden = false;
    $("save").addEventListener("click", keep);
  }
}

start().catch(() => {}); // the search itself says what is wrong
