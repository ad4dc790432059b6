"""Corpora, queries, judgments and training examples, read as streams from wherever they are.

    read_corpus(source)     Document(id, text, title)
    read_queries(source)    Query(id, text)
    read_judgments(source)  ir_measures.Qrel(query_id, doc_id, relevance)
    read_examples(source)   Example(query, positive, negatives, source, scores)
    read_texts(source)      str, the bare texts of documents or of the positives of examples

    read_mined_negatives(source)    MinedNegatives(query_id, positives, systems), all of them ids
    read_scores(source)             ir_measures.ScoredDoc(query_id, doc_id, score)

A source is one string:

    a path              .jsonl (.ndjson, .json: one object a line), .tsv, .parquet, each also .gz or .zst;
                        .txt for documents and queries (one a line, its number is the id);
                        .txt, .qrels and .trec for judgments
    -                   standard input, JSON lines
    beir:DIR            a BEIR folder; beir:DIR#train picks the split, which is otherwise test (train for examples)
    ir_datasets:NAME    a dataset of ir_datasets (an extra)
    hf:NAME             a dataset on the Hugging Face Hub, or a local folder; hf:NAME:CONFIG and #SPLIT where needed
    pydocs:             the documentation of the running Python (`vocable.pydocs`); pydocs:#test is its known-item test

Tab-separated files are in MS MARCO's order without quoting: documents `id, text`, `id, title, text` or
`id, url, title, text`; queries `id, text`; judgments as TREC (`query 0 document relevance`) or BEIR
(`query document relevance`); examples `query, positive, negative...`. A first line made of known column names is a
header and says another order.

What happens to data that is not as it should be:

    a malformed line, a repeated id, a text that is empty, bytes that are not UTF-8, a pair judged twice
                            a bad line: `DataError` with source, line and what was expected, or counted by `BadLines`;
                            of a repeated id the first is kept
    a byte-order mark, CRLF, an empty line
                            passed over
    no such file, an unknown extension, a folder
                            `DataError` when the function is called
    a file cut short, damaged compression
                            `DataError` when reading gets there, tolerated by no `BadLines`
    a query without judgments
                            yielded from a plain file; left out of beir:DIR, whose query file holds those of every split
    a judgment of a document or query that is not there
                            yielded by `read_judgments`; gives no example
"""

from vocable.data.read import (
    read_corpus,
    read_examples,
    read_judgments,
    read_mined_negatives,
    read_queries,
    read_scores,
    read_texts,
)
from vocable.data.schemas import BadLines, Document, Example, MinedNegatives, Qrel, Query, ScoredDoc

__all__ = [
    "BadLines",
    "Document",
    "Example",
    "MinedNegatives",
    "Qrel",
    "Query",
    "ScoredDoc",
    "read_corpus",
    "read_examples",
    "read_judgments",
    "read_mined_negatives",
    "read_queries",
    "read_scores",
    "read_texts",
]
