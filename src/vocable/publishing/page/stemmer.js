// Snowball's stemmer for English (Porter 2), version 3, for words of letters, digits and underscores.

const WHOLE = {
  __proto__: null, skis: "ski", skies: "sky", idly: "idl", gently: "gentl", ugly: "ugli", early: "earli", only: "onli",
  singly: "singl", sky: "sky", news: "news", howe: "howe", atlas: "atlas", cosmos: "cosmos", bias: "bias", andes: "andes",
};
const REGION = /^(?:gener|commun|arsen|past|univers|later|emerg|organ|inter)/; // which the first region comes after
const BEFORE_EED = /^(?:succ|proc|exc)$/;
const BEFORE_ING = /^(?:inn|out|cann|herr|earr|even)$/;
const SECOND = [ // longest endings first, here and below
  ["ational", "ate"], ["fulness", "ful"], ["iveness", "ive"], ["ization", "ize"], ["ousness", "ous"], ["biliti", "ble"],
  ["lessli", "less"], ["tional", "tion"], ["alism", "al"], ["aliti", "al"], ["ation", "ate"], ["entli", "ent"],
  ["fulli", "ful"], ["iviti", "ive"], ["ogist", "og"], ["ousli", "ous"], ["abli", "able"], ["alli", "al"], ["anci", "ance"],
  ["ator", "ate"], ["enci", "ence"], ["izer", "ize"], ["bli", "ble"], ["ogi", "og", /l$/], ["li", "", /[cdeghkmnrt]$/],
];
const THIRD = [
  ["ational", "ate"], ["tional", "tion"], ["alize", "al"], ["ative", "", null], ["icate", "ic"], ["iciti", "ic"],
  ["ical", "ic"], ["ness", ""], ["ful", ""],
];
const FOURTH = [
  "ement", "able", "ance", "ence", "ible", "ment", "ant", "ate", "ent", "ion", "ism", "iti", "ive", "ize", "ous", "al",
  "er", "ic",
].map((ending) => [ending, "", ending === "ion" ? /[st]$/ : undefined]);

/** The stem of a word in lower case. */
export function stem(word) {
  if (word in WHOLE) return WHOLE[word];
  if ([...word].length < 3) return word;
  let found = word.replace(/^y/, "Y").replace(/([aeiouy])y/g, "$1Y");
  const [first, second] = regions(found);
  found = found.replace(/^(.*?)(sses|ied|ies|us|ss|s)$/su, (whole, before, ending) => (
    ending === "sses" ? `${before}ss` : ending[0] === "i" ? before + ([...before].length > 1 ? "i" : "ie")
      : ending === "s" && /[aeiouy].+$/su.test(before) ? before : whole));
  found = past(found, first).replace(/(?<=.[^aeiouy])[yY]$/su, "i");
  found = ended(found, SECOND, first);
  found = ended(found, THIRD, first, second);
  found = ended(found, FOURTH, second);
  const last = found.length - 1;
  if (found[last] === "e" && (last >= second || (last >= first && !short(found.slice(0, last))))) found = found.slice(0, last);
  else if (found.endsWith("ll") && last >= second) found = found.slice(0, last);
  return found.replaceAll("Y", "y");
}

/** Where the two regions of a word begin: after the first consonant after a vowel, and after the next such one. */
function regions(word) {
  const next = (from) => {
    const found = /[aeiouy][^aeiouy]/su.exec(word.slice(from));
    return found ? from + found.index + found[0].length : word.length;
  };
  const first = REGION.exec(word)?.[0].length ?? next(0);
  return [first, next(first)];
}

const short = (word) => /(?:[^aeiouy][aeiouy][^aeiouywxY]|^[aeiouy][^aeiouy]|past)$/su.test(word);

/** A word without the endings of past and present forms. */
function past(word, first) {
  const [, before, ending] = /^(.*?)(eedly|eed|edly|ed|ingly|ing)$/su.exec(word) ?? [];
  if (!ending) return word;
  if (ending.startsWith("ee")) return before.length >= first && !BEFORE_EED.test(before) ? `${before}ee` : word;
  if (ending === "ing" && BEFORE_ING.test(before)) return word;
  if (ending === "ing" && /^[^aeiouy][yY]$/su.test(before)) return `${before[0]}ie`;
  if (!/[aeiouy]/.test(before)) return word;
  if (/(?:at|bl|iz)$/.test(before)) return `${before}e`;
  if (/(bb|dd|ff|gg|mm|nn|pp|rr|tt)$/.test(before)) return /^[aeo]..$/su.test(before) ? before : before.slice(0, -1);
  return before.length === first && short(before) ? `${before}e` : before;
}

/** A word with its longest ending of a list replaced, if it is in a region and what is before it fits. */
function ended(word, endings, region, second) {
  const [ending, instead, fits] = endings.find(([one]) => word.endsWith(one)) ?? [];
  if (!ending) return word;
  const before = word.slice(0, -ending.length);
  if (before.length < region || (fits === null && before.length < second) || (fits && !fits.test(before))) return word;
  return before + instead;
}
