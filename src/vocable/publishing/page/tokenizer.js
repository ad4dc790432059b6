// BERT's tokenizer, WordPiece, as the tokenizers library has it.

import { CONTROL, MARKS, PUNCTUATION, within } from "./unicode.js";

const SPACE = /[\t-\r \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/;
const IDEOGRAPHS = [
  [0x4e00, 0x9fff], [0x3400, 0x4dbf], [0x20000, 0x2a6df], [0x2a700, 0x2b73f], [0x2b740, 0x2b81f], [0x2b920, 0x2ceaf],
  [0xf900, 0xfaff], [0x2f800, 0x2fa1f],
];
const ASCII = /^[\t\n\r -~]*$/;

/** A text without control characters, accents and capitals, as the settings say. */
export function normalized(text, settings) {
  let found = text;
  if (settings.clean_text) {
    found = each(found, (one, code) => (SPACE.test(one) && !within(CONTROL, code) ? " "
      : code === 0 || code === 0xfffd || within(CONTROL, code) || (code >= 0xd800 && code < 0xe000) ? "" : one));
  }
  if (settings.handle_chinese_chars) {
    found = each(found, (one, code) => (IDEOGRAPHS.some(([from, to]) => from <= code && code <= to) ? ` ${one} ` : one));
  }
  if (settings.strip_accents && !ASCII.test(found)) {
    found = each(found.normalize("NFD"), (one, code) => (within(MARKS, code) ? "" : one));
  }
  return settings.lowercase ? each(found, (one) => one.toLowerCase()) : found;
}

function each(text, change) {
  let found = "";
  for (const one of text) found += change(one, one.codePointAt(0));
  return found;
}

/** Words of a normalized text; each punctuation mark is one. */
function wordsOf(text) {
  const found = [];
  let word = "";
  for (const one of `${text} `) {
    const mark = within(PUNCTUATION, one.codePointAt(0));
    if (!mark && !SPACE.test(one)) word += one;
    else {
      if (word) found.push(word);
      if (mark) found.push(one);
      word = "";
    }
  }
  return found;
}

/**
 * The tokens of a text. `pieces(continuing, text)` resolves to a Map with every piece that the text begins with, of
 * those that begin words or of those that continue them.
 */
export async function tokensOf(text, settings, pieces) {
  const special = settings.special.map((one) => one.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&"));
  special.sort((one, other) => other.length - one.length);
  const parts = special.length ? text.split(new RegExp(`(${special.join("|")})`)) : [text];
  const words = parts.map((part, i) => (i % 2 ? [part] : wordsOf(normalized(part, settings)).map((word) => ({ word }))));
  return (await Promise.all(words.flat().map((one) => (typeof one === "string" ? [one]
    : piecesOf(one.word, settings, pieces))))).flat();
}

/** The longest piece that a word begins with, the longest that continues it, and so on. */
async function piecesOf(word, settings, pieces) {
  const letters = [...word], found = [];
  if (letters.length > settings.longest_word) return [settings.unknown];
  for (let start = 0; start < letters.length;) {
    const rest = letters.slice(start), known = await pieces(start > 0, rest.join(""));
    while (rest.length && !known.has(rest.join(""))) rest.pop();
    if (!rest.length) return [settings.unknown];
    found.push((start ? "##" : "") + rest.join(""));
    start += rest.length;
  }
  return found;
}
