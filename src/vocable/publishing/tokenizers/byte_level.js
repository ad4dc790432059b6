// Byte-level BPE, as the tokenizers library has it: GPT-2's words, whose bytes are merged by rank.

import { normalized, partsOf, SPACE } from "./steps.js";

const WORD = new RegExp("'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+" +
  `| ?[^${SPACE}\\p{L}\\p{N}]+|[${SPACE}]+(?![^${SPACE}])|[${SPACE}]+`, "gu");
const encoder = new TextEncoder(), decoder = new TextDecoder();
let others = 256; // the characters of bytes that are not printed as themselves
const CHARACTERS = Array.from({ length: 256 }, (_, byte) =>
  String.fromCharCode(/[!-~\u00a1-\u00ac\u00ae-\u00ff]/.test(String.fromCharCode(byte)) ? byte : others++));
const WHOLE = 2; // flag of a piece that is all of its word

/** The tokens of a text; `pieces(text)` resolves to a Map with every piece that a text begins with, and its numbers. */
export async function tokensOf(text, tokenizer, { pieces, content }) {
  const parts = await partsOf(text, tokenizer.added_tokens, (part) => normalized(part, tokenizer.normalizer, content));
  const [{ add_prefix_space: prefix }] = tokenizer.pre_tokenizer;
  return (await Promise.all(parts.map(async ({ token, text: part }) => {
    if (token !== undefined) return [token];
    const words = (prefix && !part.startsWith(" ") ? ` ${part}` : part).match(WORD);
    return (await Promise.all(words.map((word) => piecesOf(spelled(word), pieces)))).flat();
  }))).flat();
}

function spelled(word) {
  let found = "";
  for (const byte of encoder.encode(word)) found += CHARACTERS[byte];
  return found;
}

/** The text of a token, without the space before it; what is no text by itself stays as it is. */
export function textOf(token) {
  const text = decoder.decode(Uint8Array.from(token, (one) => CHARACTERS.indexOf(one))).trim();
  return /^[^\p{Cc}\ufffd]+$/u.test(text) ? text : token;
}

/** The pieces of a word: of all neighbours that can be merged, those of the lowest rank are, again and again. */
async function piecesOf(word, pieces) {
  const first = await pieces(word);
  if (first.get(word)?.[0] & WHOLE) return [word];
  const known = [first, ...await Promise.all([...word].slice(1, -1).map((_, i) => pieces(word.slice(i + 1))))];
  const found = [...word], starts = found.map((_, i) => i);
  const rank = (place) => {
    if (place < 0 || place + 1 >= found.length) return Infinity;
    return rankOf(known[starts[place]].get(found[place] + found[place + 1]), found[place].length);
  };
  const ranks = found.map((_, i) => rank(i));
  for (;;) {
    let best = 0;
    for (let i = 1; i < ranks.length; i++) if (ranks[i] < ranks[best]) best = i;
    if (ranks[best] === Infinity) return found;
    found.splice(best, 2, found[best] + found[best + 1]);
    starts.splice(best + 1, 1);
    ranks.splice(best + 1, 1);
    ranks[best] = rank(best);
    if (best) ranks[best - 1] = rank(best - 1);
  }
}

/** The rank of the merge that makes a piece of two, the first of which has a length; a piece has 5 numbers of each merge. */
function rankOf(numbers, left) {
  for (let i = 1; i < (numbers?.length ?? 0); i += 5) {
    if (numbers[i] + (numbers[i + 1] << 8) === left) return numbers[i + 2] + (numbers[i + 3] << 8) + (numbers[i + 4] << 16);
  }
  return Infinity;
}
