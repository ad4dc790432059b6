// BERT's tokenizer, WordPiece, as the tokenizers library has it.

import { each, partsOf, SPACE } from "./steps.js";

const SPACES = new RegExp(`[${SPACE}]`);
const IDEOGRAPHS = [
  [0x4e00, 0x9fff], [0x3400, 0x4dbf], [0x20000, 0x2a6df], [0x2a700, 0x2b73f], [0x2b740, 0x2b81f], [0x2b920, 0x2ceaf],
  [0xf900, 0xfaff], [0x2f800, 0x2fa1f],
];
const ASCII = /^[\t\n\r -~]*$/;

/** A text without control characters, accents and capitals, as the settings of the normalizer say. */
export function normalized(text, settings) {
  let found = text;
  if (settings.clean_text) {
    found = each(found, (one, code) => (SPACES.test(one) && !within(CONTROL, code) ? " "
      : code === 0 || code === 0xfffd || within(CONTROL, code) || (code >= 0xd800 && code < 0xe000) ? "" : one));
  }
  if (settings.handle_chinese_chars) {
    found = each(found, (one, code) => (IDEOGRAPHS.some(([from, to]) => from <= code && code <= to) ? ` ${one} ` : one));
  }
  if ((settings.strip_accents ?? settings.lowercase) && !ASCII.test(found)) {
    found = each(found.normalize("NFD"), (one, code) => (within(MARKS, code) ? "" : one));
  }
  return settings.lowercase ? each(found, (one) => one.toLowerCase()) : found;
}

/** Words of a normalized text; each punctuation mark is one. */
function wordsOf(text) {
  const found = [];
  let word = "";
  for (const one of `${text} `) {
    const mark = within(PUNCTUATION, one.codePointAt(0));
    if (!mark && !SPACES.test(one)) word += one;
    else {
      if (word) found.push(word);
      if (mark) found.push(one);
      word = "";
    }
  }
  return found;
}

/** The tokens of a text; `pieces(text, continuing)` resolves to a Map with every piece that a text begins with. */
export async function tokensOf(text, { model, normalizer: [settings], added_tokens: added }, { pieces }) {
  const parts = await partsOf(text, added, (part) => normalized(part, settings));
  const words = parts.flatMap(({ token, text: part }) => (token === undefined ? wordsOf(part) : [{ token }]));
  return (await Promise.all(words.map((word) => (word.token === undefined ? piecesOf(word, model, pieces) : [word.token])))).flat();
}

/** The text of a token; one that continues a word has an ellipsis in place of its mark. */
export const textOf = (token) => token.replace(/^##/, "…");

/** The longest piece that a word begins with, the longest that continues it, and so on. */
async function piecesOf(word, model, pieces) {
  const letters = [...word], found = [];
  if (letters.length > model.max_input_chars_per_word) return [model.unk_token];
  for (let start = 0; start < letters.length;) {
    const rest = letters.slice(start), known = await pieces(rest.join(""), start > 0);
    while (rest.length && !known.has(rest.join(""))) rest.pop();
    if (!rest.length) return [model.unk_token];
    found.push((start ? "##" : "") + rest.join(""));
    start += rest.length;
  }
  return found;
}

// Classes of characters as BERT's tokenizers have them: Unicode of its time, whatever Unicode a browser knows.
// Ranges: the distance from the end of the one before, and "." with how many more there are, in base 36.

function ranges(text) {
  const found = [];
  let end = 0;
  for (const one of text.split(" ")) {
    const [gap, more = "0"] = one.split(".");
    const start = end + parseInt(gap, 36);
    end = start + parseInt(more, 36);
    found.push(start, end);
  }
  return Int32Array.from(found);
}

/** Whether a code point is in ranges. */
function within(ranges, code) {
  let low = 0, high = ranges.length >> 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ranges[2 * middle + 1] < code) low = middle + 1;
    else high = middle;
  }
  return 2 * low < ranges.length && ranges[2 * low] <= code;
}

// Left out of a text.
const CONTROL = ranges('0.8 3.1 2.h 2o.w e 11v.5 n 5d 1e 3cv 1kt.4 r.4 1e.4 2.9 11u9.4xr 16o 6y.2 2 3b4 xyb.3 440.7 h407 v.2n 1egx.1ekd ' +
  '3.1ekd');

// Left out of decomposed characters: accents.
const MARKS = ranges('lc.33 7o.4 7e.18 2 2.1 2.1 2 21.a 1d.k h 2u.6 3.5 3.1 2.3 10 v.q 2k.a 1n.8 z.3 2.8 2.2 2.4 18.2 3s.v 1k 2 5.7 5 ' +
  '4.6 b.1 u 1n 5.3 9 l.1 u.1 1m 5.1 5.1 3.2 4 v.1 4 c.1 1m 5.4 2.1 5 l.1 u 1n 3 2.3 9 9 c.1 v 1q d 1f 1q.2 6.2 2.3 ' +
  '8.1 c.1 u 1n 3 7 6.1 l.1 u 1s.3 9 l.1 2v 8.2 2 2j 3.6 d.7 2r 3.5 2.1 c.5 23.1 s 2 2 1k.d 2.4 2.1 6.a 2.z a 2v.3 ' +
  '2.5 2.1 3.1 q.1 5.2 h.3 e 3.1 7 g jk.2 qb.2 u.2 u.1 v.1 1t.1 2.6 9 3.a a 1a.2 4c 3b.2 5.1 a 7.2 64.1 3 1n 2.6 2 ' +
  '2 3.7 7.9 3 1d.d 1v.3 1d 2.4 2 6 15.8 d.1 x.3 3.1 2.2 1l 2.1 4 2.2 1n.7 3.1 49.2 2.c 2.6 5 7 4.1 5j.1h 7.3 k1.c ' +
  '5 4.b 2db.2 3y 2p.v ff.3 30.1 n9x 5.9 x.1 29.1 7l 4 5 q.1 4e s.h 1h.7 q.a 1b.2 1d 3.3 3 15 1w.5 3.1 3.1 d 9 1c ' +
  '1g 2.2 3.1 6.1 2 17.1 9 6n 3 5 fn5 ki.f h.f r2 6b 46.4 1af.2 2.1 6.3 15.2 5 4m.1 10b 1j.e 1l.2 1e.3 3.1 1y.2 ' +
  '11.4 2.7 1r d.1 1h.8 c.2 2r.2 3 2.1 4o 4.7 m.1 1n 4 12.6 4.4 8v.5 2 5.1 2.1 6n.3 7.1 2.1 s.1 2e.7 3 2.1 2z 2 3.5 ' +
  '2 2u.2 3.3 2.4 gjp.4 1o.6 ux.3 f7v.1 43t.2 i.7 3.6 v.3 45.2 1j0.1i 5.1d 9 f n.4 2.e 2sh.6 gzl6.6n');

// Each is a word of its own.
const PUNCTUATION = ranges('x.e b.6 r.5 r.3 z 6 4 b.1 4 4 jj 9 cz.5 16.1 1g 2 3 3 19.1 l.1 2.1 e 3.1 23.3 2v 18.d 6i.2 1j.e w 7a.1 b ao lg ' +
  '2j b.1 4p.e 2 12.3 20 23.4 5.1 34.5 4s h1.8 48 h9.1 19.1 27.2 20.1 4e.2 2.2 12.a 8q.1 61.1 3l.6 2.5 4t.6 4c.3 ' +
  '1o.4 1r.1 1t.7 c n1.n 9.j 2.c 2.b v.1 f.1 hm.3 u.1 u6.d 28.1 w.9 b8.l 1s.3 x.1 l8.3 2.1 35 40.1a 2.i cf.2 5.9 ' +
  '3.b h d 2r 2j mwz.1 7i.2 2s b 38.5 al.3 2f.1 15.2 2 1e.1 1c 2q.c h.1 3h.3 3j.1 h.1 6y g2b.1 5t.9 n.y 2.d 2 5 2.1 ' +
  '46.2 2.5 2.3 b.1 4.1 r.2 2 s 2 2.6 bf.2 il 1d bj ko 5k w 7l.8 13 35.6 1v.6 2i.3 x7.6 32.1 2.3 3j.3 1d.1 28.4 4 e ' +
  '2.2 2h.5 30 f1 6z.m 2y.2 6x.2 2lu.4 dtm.1 3q 1u.4 9 g2j 5wo.4');
