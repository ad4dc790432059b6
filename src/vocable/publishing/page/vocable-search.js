// <vocable-search src="ADDRESS/">: a search of the collection that `vocable publish` wrote there, by default beside this
// script. Nothing is read before it has the focus or a query. Addresses of documents are relative to `src`. With the attribute
// `address` the query is in the page's address; with `shortcut`, / and Ctrl-K come here. Texts of documents are only ever
// text nodes.

import { Gone, Trouble, Unread } from "./bytes.js";
import { Collection } from "./collection.js";
import { excerptOf, foundBy, markedParts } from "./excerpt.js";
import { textOf } from "./tokenizer.js";

const WAIT = 150; // milliseconds without a key, before a query is sent
const STEP = 10, MOST = 50; // documents
const NAMED = 3; // terms that a closed explanation names
const NAMED_WORDS = 5; // words that no document has
const percent = new Intl.NumberFormat("en", { style: "percent" });
const count = new Intl.NumberFormat("en");

/** An element with attributes, listeners (functions) and children (elements or text). */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key, value);
    else if (key === "share") made.style.setProperty("--share", value);
    else if (value !== undefined && value !== false) made.setAttribute(key, value);
  }
  made.append(...children.flat().filter((child) => child || child === 0));
  return made;
}

export class VocableSearch extends HTMLElement {
  #root = this.attachShadow({ mode: "open" });
  #opened = null;
  #asking = new AbortController();
  #timer = 0;
  #k = STEP;
  #loading = new AbortController();
  #answered = null; // the text and filters of the hits that are seen
  #passes = {};
  #shortcut = (event) => this.#focusByKey(event);

  #input = element("input", {
    id: "query", type: "search", autocomplete: "off", autocapitalize: "off", spellcheck: "false", enterkeyhint: "search",
    placeholder: "Ask in your own words",
    input: () => this.#typed(), focus: () => this.open().catch((error) => this.#failed(error)),
  });

  #wanted = element("input", { type: "checkbox", change: () => this.#chooseEncoder(true) });
  #size = element("span");
  #loaded = element("progress", { max: 1, hidden: "", "aria-label": "Loading" });
  #encoder = element("p", { class: "encoder", hidden: "" }, element("label", {}, this.#wanted, this.#size), this.#loaded);
  #unread = element("p", { class: "unread", role: "alert" });
  #busy = element("p", { class: "busy" }, "Searching …");
  #error = element("p", { class: "error", role: "alert" });
  #filters = element("details", { class: "filters", hidden: "", toggle: () => this.#countValues() });
  #hits = element("ol", { class: "hits", "aria-label": "Documents" });
  #none = element("p", { class: "none" });
  #note = element("p", { class: "note", role: "status" });
  #more = element("button", { type: "button", class: "more", hidden: "", click: () => this.#showMore() }, "More documents");
  #status = element("p", { class: "unseen", role: "status" });

  connectedCallback() {
    if (!this.#root.firstChild) {
      const submit = (event) => {
        event.preventDefault();
        if (this.#answered === this.#question()) this.#targets()[0]?.focus();
        else this.ask();
      };
      this.#root.append(
        element("link", { rel: "stylesheet", href: new URL("style.css", import.meta.url).href }),
        element("form", { role: "search", submit }, element("label", { for: "query" }, "Search"), this.#input, this.#busy),
        this.#encoder, this.#unread, this.#error, this.#filters, this.#note, this.#none, this.#hits, this.#more, this.#status,
      );
      this.#root.addEventListener("keydown", (event) => this.#walk(event));
    }
    if (this.hasAttribute("shortcut")) {
      document.addEventListener("keydown", this.#shortcut);
      this.#input.setAttribute("aria-keyshortcuts", "/ Control+K");
    }
    const query = this.hasAttribute("address") ? new URLSearchParams(location.search).get("q") : this.getAttribute("query");
    if (query && !this.#input.value) {
      this.#input.value = query;
      this.ask();
    }
  }

  disconnectedCallback() {
    document.removeEventListener("keydown", this.#shortcut);
    this.#asking.abort();
  }

  focus(options) {
    this.#input.focus(options);
  }

  /** The collection, read when it is first needed. */
  open() {
    if (!this.#opened) {
      this.#opened = Collection.open(this.#base).then((collection) => {
        this.#drawFilters(collection.fields);
        this.#drawEncoder(collection.encoder);
        return collection;
      });
      this.#opened.catch(() => { this.#opened = null; });
    }
    return this.#opened;
  }

  /** Search for what is typed now; an answer to an earlier question is thrown away. */
  async ask() {
    clearTimeout(this.#timer);
    this.#asking.abort();
    this.#asking = new AbortController();
    const { signal } = this.#asking, text = this.#input.value, question = this.#question();
    this.#keepAddress(text);
    if (!text.trim()) {
      this.#said("");
      this.#draw([], "");
      this.#answered = null;
      return;
    }
    this.setAttribute("aria-busy", "true");
    try {
      const found = async () => {
        const collection = await this.open(), asked = { k: this.#k, passes: this.#passes, merged: true, signal };
        const hits = await collection.search(text, asked);
        return [hits, await collection.marked(text, signal), await collection.unknown(text, signal)];
      };
      const [hits, words, unknown] = await found().catch((error) => {
        if (error instanceof Unread) this.#withoutEncoder(error);
        else if (error instanceof Gone) this.#opened = null; // published anew since it was opened
        else throw error;
        return found();
      });
      if (signal.aborted) return;
      this.#said("");
      this.#draw(hits, text, words);
      this.#note.textContent = noteOf(unknown, hits);
      this.#answered = question;
      this.#countValues();
      this.dispatchEvent(new CustomEvent("found", { detail: { text, hits } }));
    } catch (error) {
      if (!signal.aborted) this.#failed(error);
    } finally {
      if (!signal.aborted) this.removeAttribute("aria-busy");
    }
  }

  get #base() {
    const base = new URL(this.getAttribute("src") || "./", this.hasAttribute("src") ? document.baseURI : import.meta.url);
    if (!base.pathname.endsWith("/")) base.pathname += "/";
    return base;
  }

  #question() {
    return JSON.stringify([this.#input.value, this.#passes, this.#k]);
  }

  #typed() {
    this.#k = STEP;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.ask(), WAIT);
  }

  #keepAddress(text) {
    if (!this.hasAttribute("address")) return;
    const address = new URL(location.href);
    if (text) address.searchParams.set("q", text);
    else address.searchParams.delete("q");
    if (address.href !== location.href) history.replaceState(null, "", address);
  }

  #failed(error) {
    if (!(error instanceof Trouble)) console.error(error);
    this.#draw([], "");
    this.#answered = null;
    this.#said(error instanceof Trouble ? error.message : "The search failed: reload the page.");
  }

  #said(error) {
    if (this.#error.textContent !== error) this.#error.textContent = error;
  }

  #draw(hits, text, words) {
    const focused = this.#targets().includes(this.#root.activeElement);
    this.#note.textContent = "";
    this.#hits.replaceChildren(...hits.map((hit, i) => this.#hitOf(hit, i + 1, words)));
    if (focused) (this.#targets()[0] ?? this.#input).focus(); // who walks through older hits goes on in the new ones
    this.#none.textContent = text && !hits.length ? "No document." : "";
    this.#more.hidden = hits.length < this.#k || this.#k >= MOST;
    this.#status.textContent = !text ? "" : hits.length
      ? `${hits.length} ${hits.length === 1 ? "document" : "documents"}. The first: ${nameOf(hits[0])}.` : "No document.";
  }

  async #showMore() {
    const before = this.#targets().length;
    this.#k = Math.min(this.#k + STEP, MOST);
    await this.ask();
    this.#targets()[before]?.focus();
  }

  #hitOf(hit, rank, words) {
    const title = markedParts(nameOf(hit), words), link = linkOf(hit.url, this.#base), name = marked(title);
    const path = hit.path && hit.path !== hit.title ? element("p", { class: "path", dir: "auto" }, hit.path.replaceAll(" > ", " › ")) : null;
    return element("li", {}, element("article", { "aria-label": `${rank}: ${nameOf(hit)}` },
      path,
      element("h2", { dir: "auto" }, link ? element("a", { href: link, class: "target" }, name)
        : element("span", { class: "target", tabindex: "-1" }, name)),
      element("p", { class: "text", dir: "auto" }, marked(excerptOf(markedParts(hit.text, words)))),
      sectionsOf(hit.sections, this.#base),
      hit.copied ? element("p", { class: "copies" }, "Also in ", copiesOf(hit, this.#base)) : null,
      factsOf(hit.facts), whyOf(hit.why)));
  }

  #drawEncoder(encoder) {
    this.#encoder.hidden = !encoder;
    if (!encoder) return;
    this.#size.textContent = `Understand the question (${(encoder.nbytes / 1e6).toFixed(0)} MB once)`;
    this.#wanted.checked = remembered(this.#key) === "on";
    if (this.#wanted.checked) this.#chooseEncoder();
  }

  get #key() {
    return `vocable encoder ${this.#base.href}`;
  }

  /** Load or unload the encoder, as its box says; queries are looked up while it is not there. */
  async #chooseEncoder(byHand = false) {
    this.#loading.abort();
    this.#loading = new AbortController();
    const { signal } = this.#loading, on = this.#wanted.checked;
    this.#unread.textContent = "";
    if (byHand) remember(this.#key, on ? "on" : "off");
    const collection = await this.open();
    if (!on) collection.unloadEncoder();
    else {
      this.#loaded.removeAttribute("value");
      this.#loaded.hidden = false;
      const told = (share) => { this.#loaded.value = share; };
      await collection.loadEncoder({ told, signal }).catch((error) => { if (!signal.aborted) this.#withoutEncoder(error); });
    }
    if (signal.aborted) return;
    this.#loaded.hidden = true;
    if (this.#input.value.trim()) this.ask();
  }

  #withoutEncoder({ message }) {
    this.#wanted.checked = false;
    this.open().then((collection) => collection.unloadEncoder());
    this.#unread.textContent = `The question is not understood, its words are looked up: ${message}`;
  }

  #drawFilters(fields) {
    this.#filters.hidden = !fields.length;
    const summary = element("summary", {}, "Filter");
    const sets = fields.map(([name, values, counts]) => element("fieldset", {}, element("legend", {}, name),
      element("div", { class: "values" }, values.map((value, i) => element("label", {},
        element("input", { type: "checkbox", "aria-label": `${value} (${counts[i]})`, change: (event) => this.#choose(name, value, event.target.checked) }),
        element("span", { class: "value" }, String(value)), element("span", { class: "count" }, count.format(counts[i])))))));
    this.#filters.replaceChildren(summary, element("p", { class: "of" }), element("div", { class: "fields" }, sets));
  }

  /** Count the values of the fields among the best documents, while the filters are open. */
  async #countValues() {
    const text = this.#input.value, { signal } = this.#asking;
    if (!this.#filters.open || !text.trim()) return;
    try {
      const { counts, hits } = await (await this.open()).facets(text, { passes: this.#passes, signal });
      if (signal.aborted) return;
      const spans = [...this.#filters.querySelectorAll(".count")];
      counts.flat().forEach((number, i) => { spans[i].textContent = count.format(number); });
      this.#filters.querySelector(".of").textContent = `Numbers of the best ${count.format(hits)} documents`;
    } catch (error) {
      if (!signal.aborted) this.#failed(error);
    }
  }

  #choose(name, value, on) {
    const before = (this.#passes[name] ?? []).filter((one) => one !== value);
    this.#passes[name] = on ? [...before, value] : before;
    const chosen = Object.values(this.#passes).flat();
    this.#filters.firstChild.textContent = chosen.length ? `Filter: ${chosen.join(", ")}` : "Filter";
    this.#k = STEP;
    this.ask();
  }

  #targets() {
    return [...this.#hits.querySelectorAll(".target")];
  }

  /** Go to the document beside the one in focus; from the first one back to the query. */
  #walk(event) {
    const targets = this.#targets(), here = targets.indexOf(this.#root.activeElement);
    const down = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.altKey || event.ctrlKey || event.metaKey || event.isComposing) return;
    if (event.key === "ArrowDown" && event.target === this.#input && targets.length) targets[0].focus();
    else if (here >= 0 && (event.key === "Escape" || (down && here + down < 0))) this.#input.focus();
    else if (here >= 0 && down) targets[here + down]?.focus();
    else return;
    event.preventDefault();
  }

  #focusByKey(event) {
    const [target] = event.composedPath(), chord = (event.ctrlKey || event.metaKey) && !event.altKey;
    const typing = target.matches?.("input, select, textarea") || target.isContentEditable;
    if (chord ? event.key.toLowerCase() !== "k" : event.key !== "/" || event.altKey || typing) return;
    event.preventDefault();
    this.#input.focus();
    this.#input.select();
  }
}

/** What the browser keeps for this address, if it keeps anything. */
function remembered(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

function remember(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch { /* the choice holds for this visit */ }
}

/** The words that no document has, in a sentence. */
function noteOf({ words, guesses }, hits) {
  if (!words.length) return "";
  const more = words.length > NAMED_WORDS ? ` and ${words.length - NAMED_WORDS} more` : "";
  const pieces = guesses && hits.length ? `: these documents are guesses by pieces of ${words.length > 1 ? "them" : "it"}` : "";
  return `No document has the ${words.length > 1 ? "words" : "word"} ${words.slice(0, NAMED_WORDS).join(", ")}${more}${pieces}.`;
}

/** The copies of a document, each a link if it has an address. */
function copiesOf({ copies, copied }, base) {
  const links = copies.map(({ id, url }) => (linkOf(url, base) ? element("a", { href: linkOf(url, base) }, id) : id));
  const more = copied > copies.length ? [` and ${copied - copies.length} more`] : [];
  return [...links.flatMap((one, i) => (i ? [", ", one] : [one])), ...more];
}

/** The further sections of a document's page. */
function sectionsOf(sections, base) {
  const items = sections.map((one) => [nameOf(one), linkOf(one.url, base)]).map(([name, link]) =>
    element("li", { dir: "auto" }, link ? element("a", { href: link }, name) : name));
  return items.length ? element("ul", { class: "sections", "aria-label": "Further sections of the page" }, items) : null;
}

const nameOf = (hit) => hit.title || hit.id;

/** The address that a field is, if it is one of the web. */
function linkOf(url, base) {
  try {
    const { protocol, href } = new URL(url || "data:", base);
    return ["http:", "https:"].includes(protocol) ? href : "";
  } catch {
    return "";
  }
}

const marked = (parts) => parts.map((part) => (part.mark ? element("mark", {}, part.text) : part.text));

function factsOf(facts) {
  const shown = Object.entries(facts).map(([name, value]) => element("li", {},
    element("span", { class: "key" }, name), ` ${value}`));
  return shown.length ? element("ul", { class: "facts", "aria-label": "Fields" }, shown) : null;
}

/** The terms that made the score: those of the model, and the words of BM25. */
function whyOf(why) {
  const groups = [["By meaning", why.filter((one) => !one.word)], ["By its words", why.filter((one) => one.word)]];
  const named = foundBy(...groups.map(([, some]) => some.map(spelled)));
  if (!named.length) return null;
  return element("details", { class: "why" },
    element("summary", {}, `Found by ${named.slice(0, NAMED).join(", ")}`),
    groups.filter(([, some]) => some.length).map(([title, some]) => [element("p", {}, title),
      element("ul", { "aria-label": title }, some.map((one) => element("li", { share: one.share },
        element("span", { class: "term" }, spelled(one)), element("span", { class: "share" }, percent.format(one.share)))))]).flat());
}

const spelled = ({ term, word }) => word ?? textOf(term);

customElements.define("vocable-search", VocableSearch);
