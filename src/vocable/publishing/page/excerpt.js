// The part of a text to show, with the words of a query marked, and the words that a document was found by.

import { COMMON } from "./language.js";
import { plain } from "./markdown.js";
import { placedWords } from "./words.js";

const LONG = 300, BEFORE = 60; // characters
const graphemes = new Intl.Segmenter("en");

/** Pieces of a text without marks of Markdown; words of `marked`, a map from word to stem, have their stem as `mark`. */
export function markedParts(text, marked) {
  let at = 0;
  const parts = [];
  for (const { words, start, end } of placedWords(text)) {
    const word = words.find((word) => marked.has(word));
    if (!word || start < at) continue; // a name is marked as a whole
    parts.push({ text: text.slice(at, start) }, { text: text.slice(start, end), mark: marked.get(word) });
    at = end;
  }
  return plain([...parts, { text: text.slice(at) }]);
}

/** The pieces around the place with the most different words of the query, between words. */
export function excerptOf(parts) {
  const text = parts.map((part) => part.text).join("");
  if (text.length <= LONG + BEFORE) return parts;
  const places = [];
  let at = 0;
  for (const part of parts) {
    if (part.mark) places.push([at, part.mark]);
    at += part.text.length;
  }
  let most = 0, start = 0;
  for (const [first] of places) {
    const different = new Set(places.filter(([place]) => place >= first && place < first + LONG - BEFORE).map(([, mark]) => mark));
    if (different.size > most) [most, start] = [different.size, first];
  }
  let from = start <= BEFORE ? 0 : text.lastIndexOf(" ", start - BEFORE / 2) + 1;
  if (start - from > BEFORE) from = start; // a text without spaces
  let to = Math.min(text.length, from + LONG);
  const blank = text.lastIndexOf(" ", to);
  if (to < text.length) to = blank > Math.max(start, to - LONG / 2) ? blank : graphemes.segment(text).containing(to).index;
  return [...(from ? [{ text: "… " }] : []), ...between(parts, from, to), ...(to < text.length ? [{ text: " …" }] : [])];
}

/** The names of terms and words that made a score, without common words: words before pieces of words, each once. */
export function foundBy(terms, words) {
  const all = [...words, ...terms.filter((one) => !one.startsWith("…")), ...terms].map((one) => one.toLowerCase());
  const different = [...new Set(all)].filter((one, i, those) => !those.slice(0, i).some((before) => before.startsWith(one)));
  const telling = different.filter((one) => !COMMON.has(one));
  return telling.length ? telling : different;
}

function between(parts, from, to) {
  let at = 0;
  return parts.flatMap((part) => {
    const begin = at;
    at += part.text.length;
    const text = part.text.slice(Math.max(0, from - begin), Math.max(0, to - begin));
    return text ? [{ ...part, text }] : [];
  });
}
