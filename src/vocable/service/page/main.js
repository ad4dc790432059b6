// The page: what is typed, chosen and dragged becomes the state, the state a request, the answer what is seen.

import { keepToken, Refused, request } from "./client.js";
import { columnOf, costsOf, count, effectOf, element, facetsOf, groupsOf, linkOf, nameOf, postingsOf, RANKINGS } from "./draw.js";
import { change, setUsual, START, state, whenGone } from "./state.js";

const WAIT = 150; // milliseconds without a key, before a query is sent
const SECOND = "second"; // the other model, in the list of what may stand beside
const PARTS = "parts"; // the rankings of all spaces, in the same list
const MOST = 50; // documents of a ranking
const $ = (id) => document.getElementById(id);
const wide = matchMedia("(min-width: 62rem)");

let info = null; // of the service
let seen = null; // the last answer
let all = false; // all terms are listed
let asking = new AbortController();
let timer = 0;

async function start() {
  try {
    info = await request("info");
  } catch (error) {
    return failed(error);
  }
  $("title").textContent = info.title;
  $("about").textContent = `${info.documents === null ? "" : `${count.format(info.documents)} documents, `}${short(info.model_id)}`;
  const fused = Object.keys(info.weights); // by a hybrid search; one alone if the model does not know the language
  const rankings = [...info.spaces, ...(fused.length > 1 ? ["hybrid"] : []), ...(info.rerank ? ["reranked"] : [])];
  setUsual(fused.length > 1 ? "hybrid" : fused[0]);
  $("by").replaceChildren($("by").firstElementChild, ...rankings.flatMap((name) => [
    element("input", { type: "radio", name: "by", id: `by-${name}`, value: name }),
    element("label", { for: `by-${name}` }, RANKINGS[name]),
  ]));
  $("by").hidden = rankings.length < 2;
  const others = [["", "nothing"], ...rankings.slice(1).map((name) => [name, RANKINGS[name]])];
  if (rankings.length > 1) others.splice(1, 0, ["sparse", RANKINGS.sparse]);
  if (info.spaces.length > 2) others.push([PARTS, `each of ${info.spaces.map((name) => RANKINGS[name]).join(", ")}`]);
  if (info.compare_with) others.push([SECOND, `second index, ${short(info.compare_with)}`]);
  $("beside").replaceChildren(...others.map(([value, label]) => element("option", { value }, label)));
  $("beside-field").hidden = others.length < 2;
  $("pruning").open = wide.matches || state.top > 0 || state.min > 0;
  show();
}

const short = (name) => name.split("/").filter(Boolean).slice(-2).join("/").replace(/^.*\/(?=[^/]*$)/, name.startsWith("/") ? "" : "$&");

/** Put the state into the controls, what a link got wrong aside, and ask. */
function show() {
  const isThere = (name, value) => [...document.querySelectorAll(name)].some((one) => one.value === value);
  if (info && !isThere("#by input", state.by)) state.by = START.by;
  if (info && !isThere("#beside option", state.beside)) state.beside = "";
  $("query").value = state.q;
  $("filter").value = state.filter;
  $("beside").value = state.beside;
  if (info) $(`by-${state.by}`).checked = true;
  ask();
  openTerm();
}

function later() {
  clearTimeout(timer);
  timer = setTimeout(ask, WAIT);
}

/** The rankings of this index that stand beside the one that is chosen. */
const besides = () => (state.beside === PARTS ? info.spaces : [state.beside].filter((name) => name in RANKINGS)).filter((name) => name !== state.by);

/** The rankings of documents like another: neither words nor a reranker know a query. */
function likenesses() {
  const kinds = info.spaces.filter((name) => name !== "bm25");
  return kinds.length > 1 ? [...kinds, "hybrid"] : kinds;
}

/** Ask for what the state says; an answer to an earlier question is thrown away. */
async function ask() {
  clearTimeout(timer);
  asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  if (state.like && info) {
    const by = likenesses().includes(state.by) ? state.by : likenesses().at(-1);
    Object.assign(state, { by, beside: "" });
    $(`by-${by}`).checked = true;
  }
  $("hint").hidden = Boolean(state.q.trim() || state.like);
  $("liked").hidden = !state.like;
  $("liked").querySelector("strong").textContent = state.like;
  const title = info?.title ?? "vocable";
  document.title = state.q || state.like ? `${state.q || `like ${state.like}`} – ${title}` : title;
  if (!(state.q.trim() || state.like) || !info) {
    $("view").hidden = $("suggestion").hidden = $("missing").hidden = $("note").hidden = true;
    $("ask").removeAttribute("aria-busy");
    return said("", "");
  }
  $("ask").setAttribute("aria-busy", "true");
  const body = { k: state.k, show: [state.by, ...besides()] };
  Object.assign(body, state.like ? { like: state.like } : { query: state.q });
  if (state.filter.trim()) body.filter = state.filter;
  if (state.top) body.max_terms = state.top;
  if (state.min) body.min_weight = state.min;
  const second = state.beside === SECOND && info.compare_with
    ? request("compare-with/view", { body: { ...body, show: ["sparse"] }, signal }).catch((error) => error) : null;
  try {
    const view = await request("view", { body, signal });
    const other = await second;
    if (signal.aborted) return;
    said("", "");
    draw(view, other);
  } catch (error) {
    if (!signal.aborted) failed(error);
  } finally {
    if (!signal.aborted) $("ask").removeAttribute("aria-busy");
  }
}

function failed(error) {
  if (error.status === 401) return askForToken();
  if (!(error instanceof Refused)) throw error;
  const wrong = error.message.replace(/^filter(:| (['"]).*?\2:) /, "");
  if (error.status === 422 && wrong !== error.message) {
    said("", `${wrong[0].toUpperCase()}${wrong.slice(1)}${wrong.endsWith("?") ? "" : "."}${seen ? " The documents are those of before." : ""}`);
  }
  else said(error.status === 429 ? `The service is busy (${error.message}). Type on in a moment.` : error.message, "");
}

/** Say what is wrong, with the request or with its filter. */
function said(error, filter) {
  $("error").textContent = error;
  $("filter-error").textContent = filter;
  $("filter").setAttribute("aria-invalid", Boolean(filter));
  if (filter) $("status").textContent = filter;
}

function draw(view, other) {
  seen = view;
  $("view").hidden = false;
  drawTerms();
  const pruned = "unpruned" in view.costs;
  const rankings = view.rankings.filter((name) => name in RANKINGS).map((name) => [name, RANKINGS[name]]);
  const how = { k: state.k, pick, like };
  $("by").hidden = rankings.length < 2;
  for (const one of $("by").querySelectorAll("input")) one.disabled = Boolean(state.like) && !likenesses().includes(one.value);
  $("beside-field").hidden = $("beside").options.length < 2 || Boolean(state.like);
  $("missing").hidden = !view.missing;
  $("missing").textContent = view.missing ? `${view.missing}: the documents below are of the rest.` : "";
  $("note").hidden = !view.note;
  $("note").textContent = view.note ? `${view.note[0].toUpperCase()}${view.note.slice(1)}.` : "";
  $("facets").replaceChildren(...facetsOf(view.facets, pick));
  $("suggestion").hidden = !view.suggestion;
  $("suggestion").querySelector("button").textContent = view.suggestion ?? "";
  const columns = [{ ...how, title: RANKINGS[state.by], by: state.by, documents: view.documents, others: rankings }];
  if (other instanceof Refused) columns.push(null);
  else if (other) {
    const rankThere = (documents) => (one) => documents.find((its) => its.id === one.id)?.ranks.sparse;
    columns[0].others = [...rankings, ["second", "second index", rankThere(other.documents)]];
    columns[0].title = `${columns[0].title}, ${short(info.model_id)}`;
    columns.push({ ...how, title: `second index, ${short(info.compare_with)}`, by: "sparse", documents: other.documents,
      others: [["first", "first index", rankThere(view.documents)]] });
  } else {
    columns.push(...besides().map((by) => ({ ...how, title: RANKINGS[by], by, documents: view.documents, others: rankings })));
  }
  $("columns").replaceChildren(...columns.map((one) => one ? columnOf({ ...one, pruned: pruned && one.by === "sparse" })
    : element("p", { class: "error column" }, `${short(info.compare_with)}: ${other.message}`)));
  $("columns").classList.toggle("two", columns.length > 1);
  const found = view.documents.filter((one) => one.sections[state.by]);
  $("more").hidden = found.length < state.k || state.k >= MOST;
  const fields = view.documents.flatMap((one) => Object.entries(one.fields));
  const field = fields.find(([name, value]) => typeof value !== "object" && !linkOf(name, value));
  $("filter").placeholder = field ? `such as ${comparison(...field)}` : "";
  const best = found.find((one) => one.ranks[state.by] === 1);
  $("status").textContent = best ? `${found.length} documents. The first: ${nameOf(best)}.` : "No document.";
}

function drawTerms() {
  const limit = all ? seen.terms.length : wide.matches ? 16 : 8;
  const more = seen.terms.length > 8 && element("button", { type: "button", class: "all", "aria-expanded": String(all), click: () => {
    all = !all;
    drawTerms();
    $("groups").querySelector(".all").focus();
  } }, all ? "Fewer terms" : `All ${seen.terms.length} terms`);
  $("groups").replaceChildren(...groupsOf(seen.terms, limit, (term) => {
    change({ term });
    openTerm();
  }), more || "");
  const heaviest = seen.terms[0]?.weight ?? 0;
  set($("top"), Math.max(seen.active, 1), state.top || seen.active);
  $("top-value").textContent = state.top && state.top < seen.active ? `${state.top} of ${seen.active}` : `all ${seen.active}`;
  set($("least"), Math.ceil(heaviest * 20) / 20, state.min);
  $("least-value").textContent = state.min ? state.min.toFixed(2) : "any";
  $("costs").replaceChildren(...costsOf(seen.costs, seen.milliseconds));
  const comparable = "unpruned" in seen.costs && state.by === "sparse";
  $("effect").textContent = comparable ? effectOf(seen.documents, state.k)
    : "unpruned" in seen.costs ? "Rank by sparse to see which documents move." : "Nothing is pruned: move a slider, and see which documents move.";
}

/** Put the terms before the documents where they stand beside each other, else after them. */
function arrange() {
  $("view")[wide.matches ? "prepend" : "append"]($("terms"));
  if (seen) drawTerms();
}

function set(slider, max, value) {
  slider.max = max;
  if (slider !== document.activeElement || Number(slider.value) !== value) slider.value = value;
}

/** What a filter says of a field that has this value. */
function comparison(name, value, operator = "=") {
  const plain = typeof value !== "string" || (/^[\p{L}_][\p{L}\p{N}_-]*$/u.test(value) && !/^(and|or|not|in|true|false)$/i.test(value));
  return `${name}${operator}${plain ? value : `"${value.replace(/[\\"]/g, "\\$&")}"`}`;
}

/** Add a field's value to the filter. */
function pick(name, value, operator) {
  const one = comparison(name, value, operator);
  const filter = state.filter.trim() ? `(${state.filter.trim()}) and ${one}` : one;
  change({ filter });
  $("filter").value = filter;
  ask();
}

/** Show documents like this one; the query gives way. */
function like(id) {
  change({ like: id, q: "", k: 10 });
  show();
}

/** Ask for a query, in place of another or of a document. */
function askFor(q, kind = "") {
  change({ q, k: 10, ...(state.like && { like: "", by: START.by }) }, kind);
  if (info && $(`by-${state.by}`)) $(`by-${state.by}`).checked = true;
}

async function openTerm() {
  const dialog = $("term");
  if (!state.term) return dialog.close();
  try {
    const postings = await request(`postings?term=${encodeURIComponent(state.term)}`);
    if (postings.term !== state.term) return undefined;
    dialog.replaceChildren(...postingsOf(postings, () => dialog.close()));
    if (!dialog.open) dialog.showModal();
  } catch (error) {
    failed(error);
  }
  return undefined;
}

function askForToken() {
  const dialog = $("token");
  if (dialog.open) $("token-error").textContent = "The service does not take this token.";
  else dialog.showModal();
}

/** Go to the document beside the one in focus; from the first one back to the query. */
function walk(event) {
  const hits = [...document.querySelectorAll(".hit")];
  const here = document.activeElement?.closest?.(".hit");
  const down = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (event.key === "/" && !event.target.matches("input, select, textarea")) $("query").select();
  else if (event.key === "ArrowDown" && event.target === $("query") && hits.length) hits[0].focus();
  else if (here && event.key === "Escape") $("query").focus();
  else if (here && down && hits.indexOf(here) + down < 0) $("query").focus();
  else if (here && down) hits[hits.indexOf(here) + down]?.focus();
  else if (event.target === here && event.key === "Enter") here.querySelector(".whole")?.click();
  else return;
  event.preventDefault();
}

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
$("query").addEventListener("input", (event) => {
  askFor(event.target.value, "query");
  later();
});
$("filter").addEventListener("input", (event) => {
  change({ filter: event.target.value, k: 10 }, "filter");
  later();
});
$("suggestion").querySelector("button").addEventListener("click", () => {
  askFor(seen.suggestion);
  show();
});
$("liked").querySelector("button").addEventListener("click", () => {
  askFor("");
  show();
  $("query").focus();
});
$("top").addEventListener("input", (event) => {
  const top = Number(event.target.value);
  change({ top: top < seen.active ? top : 0 }, "top");
  $("top-value").textContent = state.top ? `${top} of ${seen.active}` : `all ${seen.active}`;
  later();
});
$("least").addEventListener("input", (event) => {
  change({ min: Number(event.target.value) }, "least");
  $("least-value").textContent = state.min ? state.min.toFixed(2) : "any";
  later();
});
$("by").addEventListener("change", (event) => {
  change({ by: event.target.value });
  ask();
});
$("beside").addEventListener("change", (event) => {
  change({ beside: event.target.value });
  ask();
});
$("more").addEventListener("click", () => {
  change({ k: Math.min(state.k + 10, MOST) });
  ask();
});
$("term").addEventListener("close", () => {
  if (state.term) change({ term: "" });
});
$("token").addEventListener("cancel", (event) => event.preventDefault());
$("token").querySelector("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  keepToken($("token-value").value.trim());
  try {
    await request("info");
    $("token").close();
    start();
  } catch (error) {
    failed(error);
  }
});
wide.addEventListener("change", arrange);
document.addEventListener("keydown", walk);
whenGone(show);
arrange();
start();
