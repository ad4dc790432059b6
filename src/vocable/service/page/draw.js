// What is seen, made of elements; texts of documents are only ever text nodes.

import { plain } from "./markdown.js";

export const count = new Intl.NumberFormat("en");
const share = new Intl.NumberFormat("en", { style: "percent" });
export const KINDS = { text: "from the text", expansion: "added by the model", wacky: "added, and wacky" };
const FACET_VALUES = 8; // of a facet, which are seen
const SIGNS = { text: "", expansion: "+", wacky: "~" };
export const RANKINGS = { __proto__: null, sparse: "sparse", bm25: "BM25", dense: "dense", hybrid: "hybrid", reranked: "reranked" };

/** An element with attributes, listeners (functions) and children (elements or text). */
export function element(name, attributes = {}, ...children) {
  const made = name === "svg" || name === "rect" ? document.createElementNS("http://www.w3.org/2000/svg", name)
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key, value);
    else if (key === "part") made.style.setProperty("--part", value);
    else if (value !== undefined && value !== false) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== undefined && child !== null));
  return made;
}

const unseen = (text) => element("span", { class: "unseen" }, text);
const kindOf = (term) => (term.in_text ?? term.in_query ? "text" : term.wacky ? "wacky" : "expansion");

/** The terms of a query in groups, as many as `limit`; `open` is called with the one that is chosen. */
export function groupsOf(terms, limit, open) {
  const heaviest = terms[0]?.weight ?? 1;
  return Object.keys(KINDS).flatMap((kind) => {
    const those = terms.slice(0, limit).filter((term) => kindOf(term) === kind);
    if (!those.length) return [];
    const chips = those.map((term) => element("li", {},
      element("button", {
        type: "button", class: "chip", "data-kind": kind, "data-kept": String(term.kept), part: term.weight / heaviest,
        click: () => open(term.term),
      },
      element("span", { class: "name" }, element("span", { class: "sign", "aria-hidden": "true" }, SIGNS[kind]), term.term),
      element("span", { class: "number" }, term.weight.toFixed(2)),
      term.kept ? null : unseen(", pruned"))));
    return [element("h3", { "data-kind": kind }, KINDS[kind]), element("ul", { class: "chips" }, ...chips)];
  });
}

/** What pruning saves: each cost as it is, beside that of all terms; and the time that the reader waited for the service. */
export function costsOf({ sparse, unpruned = sparse }, milliseconds) {
  const rows = [["terms", sparse.terms, unpruned.terms, (value) => count.format(value)]];
  if (sparse.postings !== undefined) {
    rows.push(["postings read", sparse.postings, unpruned.postings, (value) => count.format(value)]);
  }
  rows.push(["search time", milliseconds, milliseconds, (value) => `${value.toFixed(value < 10 ? 2 : 0)} ms`]);
  return rows.flatMap(([name, now, before, shown]) => [
    element("dt", {}, name),
    element("dd", { part: before ? Math.min(1, now / before) : 1 }, now === before ? shown(now) : `${shown(now)}, was ${shown(before)}`),
  ]);
}

/** In words: what pruning does to the k best. */
export function effectOf(documents, k) {
  const now = documents.filter((one) => one.sections.sparse);
  const before = documents.filter((one) => one.sections.unpruned);
  const same = now.filter((one) => one.ranks.unpruned === one.ranks.sparse).length;
  const fresh = now.filter((one) => !(one.ranks.unpruned <= k)).length;
  const lost = before.filter((one) => !(one.ranks.sparse <= k)).length;
  const moved = now.length - same - fresh;
  return `Of ${before.length} documents ${same} stay where they were, ${moved} moved, ${lost} ${lost === 1 ? "is" : "are"} lost; ${fresh} new.`;
}

/** One ranking: its heading, its k best documents, and what pruning lost. */
export function columnOf({ title, documents, by, k, pruned, others, pick, like }) {
  const shown = documents.filter((one) => one.sections[by]).sort((a, b) => a.ranks[by] - b.ranks[by]);
  const lost = !pruned ? [] : documents.filter((one) => one.sections.unpruned && !(one.ranks.sparse <= k));
  const most = Math.max(...shown.flatMap((one) => one.matches.map((match) => match.share)), 0.01);
  const column = element("div", { class: "column", role: "group", "aria-label": title }, element("h3", {}, title));
  if (!shown.length) column.append(element("p", { class: "none" }, "No document."));
  else column.append(element("ol", {}, ...shown.map((one) => hitOf(one, { by, k, most, pruned, others, pick, like }))));
  if (lost.length) {
    const items = lost.sort((a, b) => a.ranks.unpruned - b.ranks.unpruned).map((one) => element("li", {},
      element("span", { class: "name" }, nameOf(one)), ` was ${one.ranks.unpruned}, now ${one.ranks.sparse ?? "not among the first 100"}`));
    column.append(element("h4", {}, "Lost by pruning"), element("ul", { class: "lost" }, ...items));
  }
  return column;
}

/** The address that a field is, if it is one of the web. */
export function linkOf(name, value) {
  try {
    const { protocol, href } = new URL(name === "url" ? value : "");
    return ["http:", "https:"].includes(protocol) ? href : "";
  } catch {
    return "";
  }
}

/** The values of fields among the best hits, each of which `pick` makes a filter. */
export function facetsOf(facets, pick) {
  return facets.map(({ field, hits, counts }) => {
    const name = field.replace(/\/$/, ""), operator = name === field ? "=" : "^=";
    const values = counts.slice(0, FACET_VALUES).map(({ value, count: those }) =>
      element("button", { type: "button", class: "fact", click: () => pick(name, value, operator) }, `${value} `,
        element("span", { class: "number" }, count.format(those))));
    return element("div", { class: "facet", role: "group", "aria-label": `${name} of the best ${hits} documents` },
      element("span", { class: "key" }, name), ...values);
  });
}

function hitOf(found, { by, k, most, pruned, others, pick, like }) {
  const one = { ...found, title: plain(found.title), text: plain(found.text) };
  const text = element("p", { class: "text", dir: "auto" });
  const cut = one.text.some((part) => part.hidden);
  const edge = (part, text) => (part?.hidden ? [{ text }] : []);
  const parts = [...edge(one.text[0], "… "), ...one.text.filter((part) => !part.hidden), ...edge(one.text.at(-1), " …")];
  text.append(...marked(parts));
  const whole = cut && element("button", { type: "button", class: "whole", "aria-expanded": "false", click: toggle }, "Whole text");
  function toggle() {
    const open = whole.getAttribute("aria-expanded") === "false";
    whole.setAttribute("aria-expanded", open);
    whole.textContent = open ? "Less" : "Whole text";
    text.classList.toggle("open", open);
    text.replaceChildren(...marked(open ? one.text : parts), open && one.cut ? " … (only this part is shown)" : "");
  }
  const link = linkOf("url", one.fields.url);
  const name = one.title.length ? marked(one.title) : [one.id];
  const title = element("h4", { dir: "auto" }, ...(link ? [element("a", { href: link, title: link }, ...name)] : name));
  const shown = Object.entries(one.fields).filter(([name, value]) => typeof value !== "object" && !linkOf(name, value));
  const fields = shown.map(([name, value]) =>
    element("button", { type: "button", class: "fact", title: "Filter by this", click: () => pick(name, value) },
      element("span", { class: "key" }, name), ` ${value}`));
  const ranks = others.filter(([name]) => name !== by).map(([name, label, rank]) => {
    const place = rank ? rank(one) : one.ranks[name];
    return element("li", {}, `${label} `, place ? element("b", {}, place) : element("span", {}, "–", unseen(" not among the first")));
  });
  return element("li", { value: one.ranks[by] }, element("article", { tabindex: "-1", class: "hit", "aria-label": `${one.ranks[by]}: ${nameOf(one)}` },
    element("div", { class: "head" }, element("span", { class: "rank", "aria-hidden": "true" }, one.ranks[by]), title, pruned ? movedOf(one, k) : null,
      element("span", { class: "score" }, unseen("score "), one.scores[by].toFixed(2))),
    nameOf(one) === one.id ? null : element("p", { class: "id" }, one.id),
    one.copies.length ? element("p", { class: "copies" }, `also in ${one.copies.join(", ")}`) : null,
    text, whole || null, sectionsOf(one.sections[by]), element("button", { type: "button", class: "like", click: () => like(one.id) }, "More like this"),
    matchesOf(one, by, most),
    fields.length || ranks.length ? element("div", { class: "facts" }, ...fields, element("ul", { class: "ranks", "aria-label": "rank elsewhere" }, ...ranks)) : null));
}

/** The further sections of a document's page. */
function sectionsOf(sections) {
  if (!sections.length) return null;
  return element("ul", { class: "sections", "aria-label": "further sections of the page" }, ...sections.map(({ id, title, url }) => {
    const name = nameOf({ id, title: [{ text: title }] }), link = linkOf("url", url);
    return element("li", { dir: "auto" }, link ? element("a", { href: link, title: link }, name) : element("span", { title: id }, name));
  }));
}

export const nameOf = (one) => plain(one.title).map((part) => part.text).join("") || one.id;

/** How a document's place differs from the one that it has with all terms. */
function movedOf(one, k) {
  const before = one.ranks.unpruned, now = one.ranks.sparse;
  if (before === now) return null;
  if (!(before <= k)) return element("span", { class: "moved" }, before ? `new, was ${before}` : "new");
  const up = before - now;
  return element("span", { class: "moved" }, element("span", { "aria-hidden": "true" }, up > 0 ? `▲${up}` : `▼${-up}`),
    unseen(` ${up > 0 ? "up" : "down"} ${Math.abs(up)}`));
}

/** The matching terms with their share of the sparse score. */
function matchesOf(one, by, most) {
  if (!one.matches.length) return element("p", { class: "none" }, "Shares no term with the query.");
  const items = one.matches.map((match) => element("li", { "data-kind": kindOf(match), part: match.share / most },
    element("span", { class: "name" }, element("span", { class: "sign", "aria-hidden": "true" }, SIGNS[kindOf(match)]), match.term),
    element("span", { class: "number" }, share.format(match.share)),
    unseen(`, ${KINDS[kindOf(match)]}${match.in_document ? "" : ", not in the document's text"}`)));
  const rest = one.shared - one.matches.length;
  if (rest > 0) {
    const left = 1 - one.matches.reduce((sum, match) => sum + match.share, 0);
    items.push(element("li", { class: "rest" }, `${rest} more`, element("span", { class: "number" }, share.format(left))));
  }
  const label = by === "sparse" ? "terms that made the score" : `sparse score ${one.sparse.toFixed(2)}, made by`;
  return element("div", { class: "why" }, by === "sparse" ? null : element("p", {}, label),
    element("ul", { class: "matches", "aria-label": label }, ...items));
}

function marked(parts) {
  return parts.map((part) => (part.term ? element("mark", { "data-kind": part.kind, title: part.term }, part.text) : part.text));
}

/** The postings of a term: how many, how heavy, and the heaviest. */
export function postingsOf(postings, close) {
  const { term, documents, of, more, weighed, largest, counts, heaviest } = postings;
  const of_all = `${more ? "at least " : ""}${count.format(documents)} of ${count.format(of)} documents have it` +
    (of ? ` (${share.format(documents / of)})` : "");
  const items = heaviest.map((one) => element("li", {}, element("span", { class: "name", dir: "auto" }, nameOf({ ...one, title: [{ text: one.title }] })),
    element("span", { class: "number" }, one.weight.toFixed(2))));
  return [
    element("div", { class: "head" }, element("h2", { id: "term-title" }, term),
      element("button", { type: "button", click: close }, "Close")),
    element("p", {}, `${of_all}.`),
    ...(weighed ? [
      element("h3", {}, weighed < documents || more ? `Weights of the ${count.format(weighed)} heaviest` : "Weights"),
      histogramOf(counts, largest),
      element("h3", {}, "Weighs most in"), element("ol", { class: "heaviest" }, ...items),
    ] : []),
  ];
}

function histogramOf(counts, largest) {
  const most = Math.max(...counts, 1), wide = 12, high = 80;
  const bars = counts.map((those, i) => {
    const tall = those ? Math.max(1.5, (high * those) / most) : 0;
    return element("rect", { x: i * wide + 1, y: high - tall, width: wide - 2, height: tall });
  });
  const middle = counts.indexOf(most);
  const said = `Histogram: most documents, ${count.format(most)}, weigh between ${((middle * largest) / counts.length).toFixed(2)} and ${(((middle + 1) * largest) / counts.length).toFixed(2)}.`;
  return element("figure", {},
    element("svg", { viewBox: `0 0 ${wide * counts.length} ${high}`, role: "img", "aria-label": said, preserveAspectRatio: "none" }, ...bars),
    element("figcaption", {}, element("span", {}, "0"), element("span", {}, `at most ${count.format(most)} documents a bar`), element("span", {}, largest.toFixed(2))));
}
