// A published collection: its files, and searches in it, with the same numbers as tests/publishing/reader.py.

import { after, contentOf, Cursor, fetched, nameFor, nameOf, Trouble, Unread } from "./bytes.js";
import { COMMON } from "./language.js";
import { textOf, tokensOf } from "./tokenizer.js";
import { placedWords, wordsOf } from "./words.js";

const FORMAT = 3;
const DEPTH = 100; // hits of each ranking that are fused, at least
const NAMED = 3; // copies of a document that are named
const FURTHER = 3; // sections of a page that are listed below its best one
const LIGHT = 1 / 32, TENTH = 10; // a block is left out if it adds less than this share of the score of the tenth hit
const OPENING = '{"checksum":"00000000","collection":', CLOSING = "}\n";
const { fround } = Math;

export class Collection {
  #base;
  #files = new Map(); // of the data by name: promises of decoded content
  #pieces = new Map(); // by file: its pieces, and the numbers of each
  #isTerm = new Map(); // whether a token has postings
  #encoder = null;

  /** Open the collection below an address that ends with a slash. */
  static async open(base) {
    const made = new Collection();
    made.#base = base;
    const content = await fetched(new URL("manifest.json", base), "no-cache");
    const body = content.subarray(OPENING.length, content.length - CLOSING.length), text = new TextDecoder().decode(body);
    const sealed = OPENING.replace("00000000", nameOf(body).slice(0, 8)) + text + CLOSING;
    if (new TextDecoder().decode(content) !== sealed) throw new Trouble("The manifest of the search is damaged.");
    const manifest = JSON.parse(text);
    if (manifest.format !== FORMAT) throw new Trouble("The search was published in another format: reload the page.");
    Object.assign(made, { weights: { sparse: 1, bm25: 1 } }, manifest);
    const cursor = new Cursor(await made.#file(manifest.directory));
    made.tokenizer = JSON.parse(new TextDecoder().decode(cursor.take(cursor.number())));
    for (const { content, term = false } of made.tokenizer.added_tokens) made.#isTerm.set(content, term);
    for (const name of ["initial", "continuing", "terms", "words", "shown"]) made[`${name}Table`] = cursor.table();
    return made;
  }

  /**
   * The k best documents for a text. `passes` are values by field: a document passes that has one of the values of each
   * field. Without BM25's words, or `hybrid` false, the scores are the model's alone. If `merged`, documents with the same
   * title and text are one hit, which has the first of its `copies` and the number of all; and so are the sections of a
   * page, the best of which has up to three further `sections`.
   */
  async search(text, { k = 10, passes = {}, hybrid = this.words, merged = false, signal } = {}) {
    const depth = merged ? Math.max((1 + FURTHER) * k, DEPTH) : k;
    const { hits, terms, words } = await this.#ranked(text, depth, { k, passes, hybrid, signal });
    const [copies, pages] = await Promise.all([this.copies, this.pages].map((file) => (merged && file ? this.#groups(file, signal) : new Map())));
    const different = grouped(hits, copies, Infinity).map(([hit]) => hit);
    const documents = (rows) => Promise.all(rows.map((row) => this.#document(row, signal)));
    return Promise.all(grouped(different, pages, k).map(async ([hit, ...further]) => {
      const others = (copies.get(hit.row) ?? []).filter((row) => row !== hit.row);
      const [[shown], named, sections] = await Promise.all([
        documents([hit.row]), documents(others.slice(0, NAMED)), documents(further.slice(0, FURTHER).map(({ row }) => row))]);
      return { ...hit, ...shown, why: this.#why(hit.row, terms, words), copies: named, copied: others.length, sections };
    }));
  }

  /** The `depth` best rows for a text in a search for k documents, and its terms and words. */
  async #ranked(text, depth, { k, passes = {}, hybrid = this.words, signal }) {
    text = text.normalize("NFC");
    const [terms, words, allowed] = await Promise.all([
      this.#terms(text, signal), hybrid ? this.#words(text, signal) : [], this.#allowed(passes, signal)]);
    const kinds = Object.entries(hybrid ? this.weights : { sparse: 1 }), several = kinds.length > 1;
    const rankings = await Promise.all(kinds.map(async ([kind, weight]) => ({
      weight, hits: best(await this.#scores(kind === "bm25" ? words : terms, allowed, signal), several ? Math.max(k, DEPTH) : depth),
    })));
    return { hits: several ? fused(rankings, depth) : rankings[0].hits, terms, words };
  }

  /** The numbers of the best documents for a text with each value of each field, and the number of these documents. */
  async facets(text, { passes = {}, signal } = {}) {
    const [{ hits }, ...files] = await Promise.all([this.#ranked(text, DEPTH, { k: DEPTH, passes, signal }),
      ...this.fields.map(([, , , file]) => this.#file(file, signal))]);
    const rows = new Set(hits.slice(0, DEPTH).map(({ row }) => row));
    const counts = this.fields.map(([, values], i) => {
      const cursor = new Cursor(files[i]);
      return values.map(() => summed(cursor, cursor.number()).filter((row) => rows.has(row)).length);
    });
    return { counts, hits: rows.size };
  }

  /** The words of a text that no document has, and whether hits are `guesses`: by pieces of these words alone. */
  async unknown(text, signal) {
    const [words, terms] = this.words ? await Promise.all([this.#words(text.normalize("NFC"), signal), this.#terms(text, signal)]) : [];
    if (!words) return { words: [], guesses: false };
    const all = placedWords(text).filter(({ words, start, end }) => // a letter alone is not compared
      words.length && text.slice(start, end).match(/\P{M}/gu).length > 1 && !words.every((word) => COMMON.has(word)));
    const stems = await this.#stems(all.flatMap(({ words }) => words), signal), found = new Set(words.map(({ name }) => name));
    const lacks = ({ words }) => !words.some((word) => found.has(stems.get(word)));
    const lacking = all.filter((one) => all.every((other) => other.end <= one.start || one.end <= other.start || lacks(other)));
    const names = [...new Set(lacking.map(({ start, end }) => text.slice(start, end)))];
    const pieces = new Set(terms.map(({ name }) => textOf(name).toLowerCase()));
    const guesses = names.length > 0 && lacking.length === all.length && !names.some((name) => pieces.has(name.toLowerCase()));
    return { words: names, guesses };
  }

  /** The rows of each group of documents in a file, by each of these rows. */
  async #groups(file, signal) {
    const cursor = new Cursor(await this.#file(file, signal)), groups = new Map();
    for (let left = cursor.number(); left; left -= 1) {
      const rows = [...summed(cursor, cursor.number())];
      for (const row of rows) groups.set(row, rows);
    }
    return groups;
  }

  /**
   * Load the encoder, which reads queries from then on; `told` gets the share that is loaded. `Unread` says why it
   * cannot be loaded, and then queries are looked up as before.
   */
  async loadEncoder({ told, signal } = {}) {
    try {
      if (!this.encoder) throw new Error("published without it");
      const { Encoder } = await import(new URL("encoder/encoder.js", this.#base).href);
      const made = await Encoder.load(this.#base, this.encoder, { told, signal });
      this.unloadEncoder();
      this.#encoder = made;
    } catch (error) {
      throw new Unread(error.message);
    }
  }

  unloadEncoder() {
    this.#encoder?.close();
    this.#encoder = null;
  }

  /** The tokens of a text as the model reads it. */
  async tokens(text, signal, { prompt, longest } = this.query) {
    const tokens = await tokensOf(prompt + text, this.tokenizer, {
      pieces: (rest, continuing = false) => this.#piecesFor(rest, continuing, signal),
      content: (name) => this.#file(name, signal),
    });
    return tokens.slice(0, longest ?? undefined);
  }

  /** The terms of a query, those of the encoder with their weights. */
  async #weights(text, signal) {
    const encoder = this.#encoder, tokens = await this.tokens(text, signal, encoder ? this.encoder : this.query);
    if (!encoder) return new Map(tokens.filter((one) => this.#isTerm.get(one)).map((one) => [one, null]));
    return new Map(await encoder.weights(tokens).catch((error) => { throw new Unread(error.message); }));
  }

  async #terms(text, signal) {
    const weights = await this.#weights(text, signal);
    const found = await Promise.all(sorted(weights.keys()).map((one) => this.#postings(this.termsTable, one, signal)));
    return found.filter(Boolean).map((one) => ({
      ...one, weight: fround((weights.get(one.name) ?? one.factor) * fround(this.#idf(one.documents) ** this.query.idf_power)),
    }));
  }

  async #words(text, signal) {
    const words = wordsOf(text), stems = await this.#stems(words, signal), counts = new Map(), spelled = new Map();
    for (const stem of words.map((word) => stems.get(word))) counts.set(stem, (counts.get(stem) ?? 0) + 1);
    for (const { words: [word, ...others], start, end } of placedWords(text)) {
      if (word && !others.length && !spelled.has(stems.get(word))) spelled.set(stems.get(word), text.slice(start, end));
    }
    const found = await Promise.all(sorted(counts.keys()).map((one) => this.#postings(this.wordsTable, one, signal)));
    return found.filter(Boolean).map((one) => ({
      ...one, weight: fround(counts.get(one.name) * fround(this.#idf(one.documents))), word: spelled.get(one.name) ?? one.name,
    }));
  }

  /** The words of documents that a text asks for, each with its stem. */
  async marked(text, signal) {
    const stems = await this.#stems(wordsOf(text.normalize("NFC")), signal), marked = new Map(stems);
    for (const stem of new Set(stems.values())) {
      const near = await this.#stemsNear(stem, signal);
      for (const [word, stemOfWord] of near) if (stemOfWord === stem) marked.set(word, stem);
      if (!near.has(stem)) marked.set(stem, stem);
    }
    return marked;
  }

  /** The stem of each word; a word that no document has is its own. */
  async #stems(words, signal) {
    return new Map(await Promise.all(words.map(async (word) => [word, (await this.#stemsNear(word, signal)).get(word) ?? word])));
  }

  /** The words, with their stems, that are in the range of a word or have their stem there. */
  async #stemsNear(word, signal) {
    const file = nameFor(this.wordsTable, word);
    return file ? new Cursor(await this.#file(file, signal)).pairs() : new Map();
  }

  #idf(documents) {
    return Math.log1p((this.documents - documents + 0.5) / (documents + 0.5));
  }

  /** The score of each document; blocks that were read stay with their terms. */
  async #scores(terms, allowed, signal) {
    const scores = new Float64Array(this.documents);
    const add = (unit, { rows, weights }) => {
      for (let i = 0; i < rows.length; i++) if (!allowed || allowed[rows[i]]) scores[rows[i]] += unit * weights[i];
    };
    for (const term of terms) add(term.weight * term.scale, term.blocks[0]);
    const light = LIGHT * (scores.length < TENTH ? 0 : Float64Array.from(scores).sort().at(-TENTH));
    const later = await Promise.all(terms.map((term) => Promise.all(term.later
      .filter(({ top }) => term.weight * term.scale * top >= light)
      .map(async ({ name, count }) => blockOf(await this.#file(name, signal), count)))));
    for (const [i, term] of terms.entries()) {
      for (const block of later[i]) add(term.weight * term.scale, block);
      term.blocks = [term.blocks[0], ...later[i]];
    }
    return scores;
  }

  /** What terms and words add to the score of a document, as shares of the sum of its kind. */
  #why(row, terms, words) {
    return [terms, words].flatMap((some) => {
      const added = some.map((one) => [one, one.weight * one.scale * weightIn(one.blocks, row)]).filter(([, sum]) => sum);
      const total = added.reduce((sum, [, part]) => sum + part, 0);
      return added.map(([one, part]) => ({ term: one.name, word: one.word, share: part / total, part }))
        .sort((one, other) => other.part - one.part);
    });
  }

  async #allowed(passes, signal) {
    const chosen = Object.entries(passes).filter(([, values]) => values.length);
    if (!chosen.length) return null;
    const counts = new Uint8Array(this.documents);
    for (const [number, [name, values]] of chosen.entries()) {
      const [, known, , file] = this.fields.find(([one]) => one === name);
      const cursor = new Cursor(await this.#file(file, signal));
      for (const value of known) {
        const rows = summed(cursor, cursor.number());
        if (values.includes(value)) for (const row of rows) if (counts[row] === number) counts[row] = number + 1;
      }
    }
    return counts.map((count) => Number(count === chosen.length));
  }

  async #postings(table, name, signal) {
    const file = nameFor(table, name);
    if (!file) return null;
    const cursor = new Cursor(await this.#file(file, signal));
    cursor.pairs();
    const names = cursor.texts(), place = names.indexOf(name);
    if (place < 0) return null;
    const counts = names.map(() => cursor.numbers(3));
    const numbers = names.map(() => [cursor.float(), cursor.float()]);
    const later = counts.map(([, , more]) => Array.from({ length: more }, () => {
      const checksum = cursor.checksum(), [size, count, top] = cursor.numbers(3);
      return { name: `${checksum}-${size.toString(16)}`, count, top };
    }));
    for (const [, size] of counts.slice(0, place)) cursor.take(size);
    const [count, size] = counts[place], [factor, scale] = numbers[place];
    const documents = later[place].reduce((sum, block) => sum + block.count, count);
    return { name, factor, scale, documents, blocks: [blockOf(cursor.take(size), count)], later: later[place] };
  }

  /** Every piece that a text begins with, among others, with its numbers: flags, and what the tokenizer needs. */
  async #piecesFor(rest, continuing, signal) {
    const name = nameFor(continuing ? this.continuingTable : this.initialTable, rest);
    if (!name) return new Map();
    const content = await this.#file(name, signal);
    if (!this.#pieces.has(name)) {
      this.#pieces.set(name, new Cursor(content).pieces());
      for (const [piece, [flags]] of this.#pieces.get(name)) this.#isTerm.set((continuing ? "##" : "") + piece, Boolean(flags & 1));
    }
    return this.#pieces.get(name);
  }

  async #document(row, signal) {
    const content = await this.#file(this.shownTable.names[Math.floor(row / this.together)], signal);
    const [id, title, text, url, path, facts] = JSON.parse(new TextDecoder().decode(content))[row % this.together];
    return { id, title, text, url, path, facts };
  }

  #file(name, signal) {
    signal?.throwIfAborted();
    if (!this.#files.has(name)) {
      const content = contentOf(this.#base, name);
      this.#files.set(name, content);
      content.catch(() => this.#files.delete(name));
    }
    return this.#files.get(name);
  }

  /** The names of all files of the data. */
  async files() {
    const { names } = new Cursor(await this.#file(this.blocks)).table();
    const tables = ["initial", "continuing", "terms", "words", "shown"].flatMap((name) => this[`${name}Table`].names);
    return [this.directory, this.blocks, ...names, ...tables, ...this.fields.map(([, , , file]) => file)];
  }
}

const sorted = (texts) => [...texts].sort((one, other) => (after(one, other) ? 1 : -1));

function summed(cursor, count) {
  const rows = new Int32Array(count);
  for (let i = 0, row = 0; i < count; i++) rows[i] = row += cursor.number();
  return rows;
}

function blockOf(content, count) {
  const cursor = new Cursor(content);
  return { rows: summed(cursor, count), weights: cursor.take(count) };
}

function weightIn(blocks, row) {
  for (const { rows, weights } of blocks) {
    let low = 0, high = rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (rows[middle] < row) low = middle + 1;
      else high = middle;
    }
    if (rows[low] === row) return weights[low];
  }
  return 0;
}

/** The best documents by score, as float32; equal scores are in the order of the rows. */
function best(scores, depth) {
  const rounded = Float32Array.from(scores), least = Float32Array.from(rounded).sort().at(-depth) ?? 0, hits = [];
  for (let row = 0; row < rounded.length; row++) {
    if (rounded[row] > 0 && rounded[row] >= least) hits.push({ row, score: rounded[row] });
  }
  return hits.sort(order).slice(0, depth);
}

/** Hits, best first, in groups in the place of the best; they end where there would be more than `most` groups. */
function grouped(hits, groupOf, most) {
  const groups = new Map();
  for (const hit of hits) {
    const key = groupOf.get(hit.row) ?? hit.row;
    if (!groups.has(key) && groups.size === most) break;
    groups.set(key, [...(groups.get(key) ?? []), hit]);
  }
  return [...groups.values()];
}

const order = (one, other) => other.score - one.score || one.row - other.row;

/** The k best by the weighted sum of the scores, each ranking's scaled from 0 (last hit) to 1 (first hit). */
function fused(rankings, k) {
  const sums = new Map();
  for (const { weight, hits } of rankings) {
    const lowest = hits.at(-1)?.score, spread = hits[0]?.score - lowest;
    for (const { row, score } of hits) {
      sums.set(row, (sums.get(row) ?? 0) + weight * (spread > 0 ? (score - lowest) / spread : 1));
    }
  }
  return [...sums].map(([row, score]) => ({ row, score: fround(score) })).sort(order).slice(0, k);
}
