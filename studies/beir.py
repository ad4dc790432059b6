"""Sources and sizes of the public collections that the studies share."""

from __future__ import annotations

# fmt: off
BEIR = {  # a local BEIR folder, else the collection of ir_datasets
    name: f"beir:{folder} ir_datasets:beir/{remote}"
    for name, folder, remote in (
        ("trec-covid", "trec-covid", "trec-covid"), ("nfcorpus", "nfcorpus", "nfcorpus/test"), ("nq", "nq", "nq"),
        ("hotpotqa", "hotpotqa", "hotpotqa/test"), ("fiqa", "fiqa", "fiqa/test"), ("arguana", "arguana", "arguana"),
        ("touche", "webis-touche2020", "webis-touche2020/v2"), ("dbpedia", "dbpedia-entity", "dbpedia-entity/test"),
        ("scidocs", "scidocs", "scidocs"), ("fever", "fever", "fever/test"),
        ("climate-fever", "climate-fever", "climate-fever"), ("scifact", "scifact", "scifact/test"),
        ("quora", "quora", "quora/test"),
    )
}
SIZES = {  # documents
    "trec-covid": 171332, "nfcorpus": 3633, "nq": 2681468, "hotpotqa": 5233329, "fiqa": 57638, "arguana": 8674,
    "touche": 382545, "dbpedia": 4635922, "scidocs": 25657, "fever": 5416568, "climate-fever": 5416593,
    "scifact": 5183, "quora": 522931,
}
QUERIES = {  # judged ones
    "trec-covid": 50, "nfcorpus": 323, "nq": 3452, "hotpotqa": 7405, "fiqa": 648, "arguana": 1406, "touche": 49,
    "dbpedia": 400, "scidocs": 1000, "fever": 6666, "climate-fever": 1535, "scifact": 300, "quora": 10000,
}
# fmt: on
MSMARCO_SIZE = 8841823
DEV = "ir_datasets:msmarco-passage/dev/small"
DL_2019 = "ir_datasets:msmarco-passage/trec-dl-2019/judged"
DL_2020 = "ir_datasets:msmarco-passage/trec-dl-2020/judged"
TRAIN = "ir_datasets:msmarco-passage/train/judged"
DEV_QUERIES, DL_2019_QUERIES, DL_2020_QUERIES, TRAIN_QUERIES = 6980, 43, 54, 502_939  # judged ones
