// Words of a text as BM25 counts them (vocable/language/words.py): in any script, without stop words, not stemmed.

import { CODE, STOP } from "./language.js";

// Scripts without spaces between words, and Korean, are cut into pairs of letters.
const UNSPACED = "(?![\\uff9e\\uff9f])(?=[\\p{Lo}\\p{Lm}\\p{Nl}])[\\u0e00-\\u0eff\\u1000-\\u109f\\u1100-\\u11ff\\u1780-\\u17ff\\u1950-\\u19df" +
  "\\u1a20-\\u1aaf\\u3000-\\u31ff\\u3400-\\u9fff\\ua960-\\ua97f\\ua9e0-\\ua9ff\\uaa60-\\uaadf\\uac00-\\ud7ff\\uf900-\\ufaff" +
  "\\uff66-\\uffdc\\u{1aff0}-\\u{1b16f}\\u{20000}-\\u{323af}]";
const APOSTROPHES = /[\u02bb-\u02bd]/g; // letters of Ukrainian, Uzbek and others, often typed as '
const INVISIBLE = "\\u00ad\\u200b\\u2060\\ufeff", VOICED = "\\uff9e\\uff9f";
const FORMS = /[\ufb00-\ufb06\uff10-\uff19\uff21-\uff3a\uff3f\uff41-\uff5a\uff66-\uffdc]+/g; // letters of another width
const MARK = `\\p{Mn}\\p{Mc}${VOICED}${INVISIBLE}`;
const LETTER = new RegExp(`${UNSPACED}[${MARK}]*`, "gu");
const RUN = new RegExp(`[\\p{L}\\p{N}_][\\p{L}\\p{N}_${MARK}]*`, "gu");
const PART = new RegExp(`(?:${UNSPACED}[${MARK}]*)+|(?:(?!${UNSPACED}).)+`, "gsu");
const IGNORED = new RegExp(`[${INVISIBLE}]|(?<=[${MARK}])[\\u200c\\u200d]|[\\ufe00-\\ufe0f\\u{e0100}-\\u{e01ef}]`, "gu");

const IDENTIFIER = /[A-Za-z_][A-Za-z0-9_]+/g, IDENTIFIER_PART = /[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+/g;

/** A text with the parts of each identifier after it. */
function withParts(text) {
  return text.replace(IDENTIFIER, (name) => {
    const parts = name.match(IDENTIFIER_PART) ?? [];
    return parts.length > 1 ? [name, ...parts].join(" ") : name;
  });
}

// Names that signs tell from others: C++, F#, AT&T, U.S., 3.14, and beside a single letter or digit: e-mail, IL-2.
const NAME = new RegExp("(?<![\\p{L}\\p{N}_])(?:[A-Za-z](?:\\+\\+|#)(?![\\p{L}_])|(?:(?:[A-Za-z]\\.)+[A-Za-z]|[A-Za-z]{1,2}&[A-Za-z]{1,2}|[A-Za-z]?[0-9]+(?:\\.[0-9]+)+" +
  "|(?<!-)(?:[A-Za-z]-[A-Za-z0-9]{2,}|[A-Za-z][A-Za-z0-9]+-[A-Za-z0-9])(?!-))(?![\\p{L}\\p{N}_]))", "gu");
const OPTIONAL_SIGNS = /-|(?<![0-9])\.(?![0-9])/g;

/** The names of a text, with their places. */
function placedNames(text) {
  return [...text.matchAll(NAME)].map(({ 0: name, index }) => ({ words: [name.replace(OPTIONAL_SIGNS, "").toLowerCase()], start: index, end: index + name.length }));
}

/** The runs of letters of a text, each with its words (none for a stop word) and its place, and the names between them. */
export function placedWords(text) {
  const runs = [...text.replace(APOSTROPHES, "'").matchAll(RUN)].map(({ 0: run, index }) => ({ words: wordsOf(run), start: index, end: index + run.length }));
  return [...placedNames(text), ...runs].sort((one, other) => one.start - other.start || other.end - one.end);
}

/** The words of a text, in order, and then its names. */
export function wordsOf(text) {
  const names = placedNames(text.toLowerCase().normalize("NFC")).flatMap(({ words }) => words);
  return [...runsOf(text), ...names];
}

function runsOf(text) {
  const lower = (CODE ? withParts(text) : text).toLowerCase().normalize("NFC").replaceAll("i\u0307", "i").replace(IGNORED, "").replace(APOSTROPHES, "'")
    .replace(FORMS, (letters) => letters.normalize("NFKC")).normalize("NFC");
  return lower.match(RUN)?.flatMap((run) => run.match(PART)).flatMap((part) => {
    const letters = part.match(LETTER);
    if (!letters) return [...part].length > 1 ? [part] : [];
    return letters.length > 1 ? letters.slice(1).map((letter, i) => letters[i] + letter) : letters;
  }).filter((word) => !STOP.has(word)) ?? [];
}
