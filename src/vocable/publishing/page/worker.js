// Keeps the page and what was read of the collection and its encoder, for use without a network. Files of the data never
// change: their names have their checksums. All others are read anew while there is a network.

const CACHE = `vocable ${self.registration.scope}`;
const inScope = (path) => new URL(path, self.registration.scope).href;
const AT_ONCE = 6; // files that are fetched at the same time

self.addEventListener("install", (event) => event.waitUntil((async () => {
  const manifest = await (await fetch(inScope("manifest.json"), { cache: "no-cache" })).json();
  const cache = await caches.open(CACHE);
  const page = Object.keys(manifest.collection.page).filter((name) => !name.startsWith("encoder/"));
  const paths = ["./", "manifest.json", `data/${manifest.collection.directory}.bin`, ...page];
  await cache.addAll(paths.map(inScope));
  await self.skipWaiting();
})()));

self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

self.addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.method !== "GET" || !request.url.startsWith(self.registration.scope)) return;
  event.respondWith(answer(request, (work) => event.waitUntil(work)));
});

async function answer(request, later) {
  const cache = await caches.open(CACHE), address = request.url.replace(/[?#].*/s, "");
  const isData = address.startsWith(inScope("data/")) && request.cache !== "reload";
  const kept = await cache.match(address);
  if (isData && kept) return kept;
  try {
    const response = await fetch(request);
    if (response.ok && response.type === "basic") later(cache.put(address, response.clone()).catch(() => {})); // no room
    return response;
  } catch (error) {
    if (kept) return kept;
    throw error;
  }
}

// A page names all files of its collection, and those of its encoder, which are `kept` if they are there: others are
// removed, and missing ones of the collection fetched, unless it asks not to.
self.addEventListener("message", (event) => event.waitUntil((async () => {
  const cache = await caches.open(CACHE), { names, kept } = event.data;
  const [wanted, others] = [names, kept].map((some) => new Set(some.map((name) => inScope(`data/${name}.bin`))));
  for (const { url } of await cache.keys()) {
    if (wanted.has(url)) wanted.delete(url);
    else if (url.startsWith(inScope("data/")) && !others.has(url)) await cache.delete(url);
  }
  if (event.data.onlyOld) return;
  const left = [...wanted], say = () => event.source.postMessage({ left: left.length });
  let told = Date.now();
  await Promise.all(Array.from({ length: AT_ONCE }, async () => {
    while (left.length) {
      await cache.add(left.pop());
      if (Date.now() - told > 500) {
        told = Date.now();
        say();
      }
    }
  }));
  say();
})()));
