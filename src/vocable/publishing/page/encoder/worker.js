// Runs the graph of vocable/publishing/encoder.py in ONNX Runtime Web, in one thread of WebAssembly.

import { contentOf } from "../bytes.js";
import { env, InferenceSession, Tensor } from "./onnxruntime.js";

const OUTPUT = "query_weights"; // of the terms that the model keeps
let settings, session, names, ids;

async function load(message) {
  settings = message.settings;
  let done = 0;
  const told = (size) => postMessage({ share: Math.min(1, (done += size) / settings.nbytes) });
  const [binary, graph, terms] = await Promise.all(settings.files.map((name) => contentOf(message.base, name, told)));
  env.wasm.numThreads = 1;
  env.wasm.wasmBinary = binary.buffer;
  session = await InferenceSession.create(graph, { executionProviders: ["wasm"], graphOptimizationLevel: "basic" });
  names = JSON.parse(new TextDecoder().decode(terms));
  ids = new Map(names.map((name, id) => [name, id]));
}

async function weights(tokens) {
  const read = tokens.slice(0, settings.longest ?? undefined).map((token) => ids.get(token));
  const all = [...settings.before, ...read, ...settings.after], inputs = { input_ids: all, attention_mask: all.map(() => 1) };
  const given = session.inputNames.map((name) => BigInt64Array.from(inputs[name] ?? all.map(() => 0), BigInt));
  const tensors = given.map((values) => new Tensor("int64", values, [1, all.length]));
  const results = await session.run(Object.fromEntries(session.inputNames.map((name, i) => [name, tensors[i]])), [OUTPUT]);
  const found = [];
  results[OUTPUT].data.forEach((weight, column) => { if (weight > 0) found.push([names[column], weight]); });
  return found;
}

let before = Promise.resolve();
addEventListener("message", ({ data }) => {
  before = before.then(async () => {
    try {
      postMessage({ found: await (data.settings ? load(data) : weights(data.tokens)) });
    } catch (error) {
      postMessage({ error: error?.message ?? String(error) });
    }
  });
});
