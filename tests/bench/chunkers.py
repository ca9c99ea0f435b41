"""`python -m tests.bench.chunkers`: how often does each rule of overlap tell right hits from wrong ones?

Real text (the licences and documentation of installed packages) is cut by several chunkers. Each question asks for one
sentence, so the truth is known character by character: a hit is right if it contains at least half of the answer. The
runs are stored as a knowledge-base workbench stores them: no `source_spans`, a citation that is the chunk's first block
alone, and the places in the table `chunks`. The labels are the chunks of one chunker, or the answers' own spans. kbeval
then compares runs of two chunkers under each rule, and its result is compared with the truth.

Prints shares only; nothing here passes or fails.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import multiprocessing
import random
import re
import sqlite3
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kbeval
from kbeval.compare.options import CompareOptions
from kbeval.render.table import Column, render
from kbeval.scoring.options import ScoreOptions
from tests.support.workspace import Workspace

PATTERNS = ("*.md", "*.rst", "*.txt", "LICENSE*", "METADATA")
MOST_CHARACTERS = 2_000_000
QUESTIONS = 400
QUESTIONS_PER_DOCUMENT = 12
# A question has this many words of its answer, at most as many of the heading, and no words more frequent than this.
WORDS = 3
COMMON = 2_000
K = 10
RULES = ("smaller", "expected", "hit", "union")
# The rule that kbeval takes by itself, by kind of label.
DEFAULT_RULE = {"chunks": "smaller", "spans": "expected"}

Range = tuple[int, int]


def score_options(**chosen: Any) -> ScoreOptions:
    """The options of a user who does not set `match`."""
    return ScoreOptions(threads=1, cache="off", **chosen)


# --- the text ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Document:
    """A file of text. Places are counted in characters here, and in bytes where they are stored."""

    doc_id: str
    path: str
    text: str
    headings: Sequence[Range]

    def heading_before(self, place: int) -> str:
        """The last heading before a place; without one, the file's name."""
        found = [self.text[start:end] for start, end in self.headings if start <= place]
        return found[-1].strip("# \t") if found else Path(self.path).parts[0].partition("-")[0]


def documents() -> list[Document]:
    """The same files each time, as long as the same packages are installed: no tables of numbers, no text twice."""
    folder = Path(sysconfig.get_paths()["purelib"])
    paths = {path for pattern in PATTERNS for path in folder.rglob(pattern) if path.is_file()}
    found: list[Document] = []
    seen: set[str] = set()
    characters = 0
    for path in sorted(paths, key=lambda path: path.relative_to(folder).as_posix()):
        name = path.relative_to(folder).as_posix()
        text = read_text(path)
        digest = hashlib.sha256(" ".join(text.split()).encode()).hexdigest()
        if not is_prose(text) or digest in seen or name.startswith("kbeval") or characters > MOST_CHARACTERS:
            continue
        seen.add(digest)
        characters += len(text)
        found.append(Document(f"d{len(found):03d}", name, text, list(headings(text))))
    return found


def read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError):
        return ""


def is_prose(text: str) -> bool:
    letters = sum(map(str.isalpha, text))
    return len(text) >= 1_500 and letters > 0.6 * len(text)


HEADING = re.compile(r"^#{1,6} .*$|^\S.{0,80}\n(?======*$|-----*$|~~~~*$|\^\^\^\^*$)", re.MULTILINE)


def headings(text: str) -> Iterator[Range]:
    """Headings of Markdown and reStructuredText, without the line break."""
    for found in HEADING.finditer(text):
        yield found.start(), found.start() + len(found.group().rstrip("\n"))


# --- chunkers: a document → the positions of its chunks ----------------------------------------------------


def by_size(size: int, step: int) -> Callable[[Document], Iterator[Range]]:
    def cut(document: Document) -> Iterator[Range]:
        for start in range(0, max(1, len(document.text) - (size - step)), step):
            yield start, min(start + size, len(document.text))

    return cut


def by_paragraph(document: Document) -> Iterator[Range]:
    for found in re.finditer(r"\S(?:.|\n(?!\s*\n))*", document.text):
        yield found.span()


def by_heading(document: Document, most: int = 4_000) -> Iterator[Range]:
    """From heading to heading; what is too long is cut at the ends of lines."""
    starts = sorted({0, *(start for start, _ in document.headings), len(document.text)})
    for first, end in itertools.pairwise(starts):
        start = first
        while end - start > most:
            cut = document.text.rfind("\n", start, start + most) + 1 or start + most
            yield start, cut
            start = cut
        yield start, end


def by_lines(document: Document, lines: int = 20) -> Iterator[Range]:
    ends = [found.end() for found in re.finditer(r"\n|\Z", document.text)]
    starts = [0, *ends[lines - 1 :: lines]]
    yield from zip(starts, [*starts[1:], len(document.text)], strict=True)


CHUNKERS: dict[str, Callable[[Document], Iterator[Range]]] = {
    "size-100": by_size(100, 100),
    "size-300": by_size(300, 300),
    "size-800": by_size(800, 800),
    "size-1500": by_size(1_500, 1_500),
    "overlap-800": by_size(800, 600),
    "paragraph": by_paragraph,
    "heading": by_heading,
    "lines-20": by_lines,
}
# From the chunker of the labels and of the run before, to that of the run after. No chunk of 100 characters can be a
# label: most hold less than half of an answer.
PAIRS = (
    ("size-300", "size-100"),
    ("size-300", "size-800"),
    ("size-300", "size-1500"),
    ("size-300", "heading"),
    ("size-300", "lines-20"),
    ("size-800", "size-100"),
    ("size-800", "size-300"),
    ("size-800", "overlap-800"),
    ("size-800", "paragraph"),
    ("size-1500", "size-300"),
    ("size-1500", "size-800"),
    ("overlap-800", "size-1500"),
    ("paragraph", "size-800"),
    ("paragraph", "heading"),
    ("heading", "size-300"),
    ("heading", "paragraph"),
    ("lines-20", "size-300"),
    ("lines-20", "heading"),
)


@dataclass(frozen=True)
class Chunk:
    """The position of a chunk, and its first block."""

    chunk_id: str
    document: Document
    place: Range
    first_block: Range

    @property
    def text(self) -> str:
        return self.document.text[slice(*self.place)]


def chunks(found: Sequence[Document], chunker: str) -> Iterator[Chunk]:
    for document in found:
        for start, end in CHUNKERS[chunker](document):
            text = document.text[start:end]
            if text.strip():
                name = f"{chunker}/{document.path}/{start}-{end}"
                first = re.search(r"\n\s*\n", text.lstrip())
                block = start + len(text) - len(text.lstrip()) + first.start() if first else end
                heading = [e for s, e in document.headings if start <= s <= block and e <= end]
                yield Chunk(
                    hashlib.sha256(name.encode()).hexdigest()[:16],
                    document,
                    (start, end),
                    (start, min([block, *heading])),
                )


def stored_place(document: Document, place: Range) -> dict[str, Any]:
    """A range of characters as a span in bytes."""
    start = len(document.text[: place[0]].encode())
    return {"kind": "byte", "start": start, "end": start + len(document.text[slice(*place)].encode())}


# --- questions: a sentence that occurs nowhere else ---------------------------------------------------------


@dataclass(frozen=True)
class Question:
    query_id: str
    words: Sequence[str]
    document: Document
    answer: Range

    def is_answered_by(self, chunk: Chunk) -> bool:
        """The truth: does the chunk contain at least half of the answer's characters?"""
        start, end = self.answer
        shared = min(end, chunk.place[1]) - max(start, chunk.place[0])
        return chunk.document is self.document and 2 * shared >= end - start


WORD = re.compile(r"[A-Za-z][A-Za-z'-]{2,}")
SENTENCE = re.compile(r"(?<=[.:!?]\s)[A-Z](?:[^.!?\n]|[.!?](?!\s)|\n(?!\s*\n)){50,300}?[.!?](?=\s)")


def questions(found: Sequence[Document]) -> list[Question]:
    """Some words of each answer, not all of them rare, and the heading above it."""
    frequency = Counter(word for document in found for word in WORD.findall(document.text.lower()))
    sentences = [(document, match) for document in found for match in SENTENCE.finditer(document.text)]
    times = Counter(" ".join(match.group().split()) for _, match in sentences)
    source = random.Random(42)
    source.shuffle(sentences)
    made: list[Question] = []
    asked: Counter[str] = Counter()
    for document, match in sentences:
        words = sorted(word for word in set(WORD.findall(match.group().lower())) if frequency[word] <= COMMON)
        repeated = times[" ".join(match.group().split())] > 1
        if repeated or len(words) < 2 * WORDS or asked[document.doc_id] == QUESTIONS_PER_DOCUMENT:
            continue
        asked[document.doc_id] += 1
        heading = WORD.findall(document.heading_before(match.start()).lower())
        chosen = [*source.sample(words, WORDS), *heading[:WORDS]]
        made.append(Question(f"q{len(made):03d}", chosen, document, match.span()))
        if len(made) == QUESTIONS:
            break
    return made


# --- runs: BM25 by SQLite, stored as a workbench does --------------------------------------------------------


def search(found: Sequence[Chunk], asked: Sequence[Question]) -> dict[str, list[tuple[Chunk, float]]]:
    """The ranking of each question."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE VIRTUAL TABLE texts USING fts5 (text)")
        connection.executemany(
            "INSERT INTO texts (rowid, text) VALUES (?, ?)", ((n, c.text) for n, c in enumerate(found))
        )
        statement = "SELECT rowid, bm25(texts) FROM texts WHERE texts MATCH ? ORDER BY 2, 1 LIMIT ?"
        return {
            question.query_id: [
                (found[number], -score)
                for number, score in connection.execute(statement, (" OR ".join(f'"{w}"' for w in question.words), K))
            ]
            for question in asked
        }


def stored_row(question: Question, ranking: Sequence[tuple[Chunk, float]], chunker: str) -> dict[str, Any]:
    hits = [
        {
            "rank": rank,
            "chunk_id": chunk.chunk_id,
            "doc_id": chunk.document.doc_id,
            "doc_path": chunk.document.path,
            "heading_path": [chunk.document.heading_before(chunk.place[0])],
            "snippet": chunk.text[:120],
            "chunker_version": chunker,
            "score": score,
            "citation": {"path": chunk.document.path, **stored_place(chunk.document, chunk.first_block)},
        }
        for rank, (chunk, score) in enumerate(ranking, start=1)
    ]
    return {"query_id": question.query_id, "query": " ".join(question.words), "hits_top_k": hits, "answer": None}


@dataclass(frozen=True)
class Study:
    """What the comparisons need, small enough to hand to another process."""

    folder: Path
    # Of each run (a chunker), the true rank of each question, or None.
    true_ranks: dict[str, dict[str, int | None]]

    def database(self, *, truth: bool = False) -> Path:
        return self.folder / ("truth.db" if truth else "kb.db")

    def golden(self, labels: str) -> Path:
        return self.folder / f"golden-{labels}.json"


def make_study(folder: Path) -> tuple[Study, dict[str, Any]]:
    """Databases and golden files of the whole experiment, and what to say about its size."""
    folder.mkdir(exist_ok=True)
    texts = documents()
    asked = questions(texts)
    workspace, truth = Workspace(folder, "kb.db"), Workspace(folder, "truth.db")
    for document in texts:
        workspace.add_document(document.doc_id, document.path)
    spans = [{"doc_id": one.document.doc_id, **stored_place(one.document, one.answer)} for one in asked]
    write_golden(folder / "golden-spans.json", asked, [{"expected_spans": [span]} for span in spans])
    write_golden(folder / "golden-truth.json", asked, [{"expected_chunk_ids": ["answer"]}] * len(asked))
    true_ranks: dict[str, dict[str, int | None]] = {}
    sizes = {}
    for chunker in CHUNKERS:
        cut = list(chunks(texts, chunker))
        sizes[chunker] = sum(len(chunk.text) for chunk in cut) / len(cut)
        add_chunks(workspace, cut, chunker)
        near: dict[str, list[Chunk]] = {}
        for chunk in cut:
            near.setdefault(chunk.document.doc_id, []).append(chunk)
        labels = [
            {"expected_chunk_ids": [c.chunk_id for c in near[one.document.doc_id] if one.is_answered_by(c)]}
            for one in asked
        ]
        write_golden(folder / f"golden-{chunker}.json", asked, labels)
        rankings = search(cut, asked)
        rows, true_rows = {}, {}
        for one in asked:
            ranking = rankings[one.query_id]
            right = [one.is_answered_by(chunk) for chunk, _ in ranking]
            rows[one.query_id] = stored_row(one, ranking, chunker)
            names = ["answer" if correct else f"other-{rank}" for rank, correct in enumerate(right)]
            true_rows[one.query_id] = {"hits_top_k": [{"chunk_id": name} for name in names]}
            true_ranks.setdefault(chunker, {})[one.query_id] = right.index(True) + 1 if any(right) else None
        workspace.add_run(chunker, rows, chunker=chunker)
        truth.add_run(chunker, true_rows, chunker="truth")
    about = {"documents": len(texts), "characters": sum(len(d.text) for d in texts), "questions": len(asked)}
    return Study(folder, true_ranks), {**about, "sizes": sizes}


def write_golden(path: Path, asked: Sequence[Question], labels: Sequence[dict[str, Any]]) -> None:
    entries = [
        {"id": one.query_id, "query": " ".join(one.words), **label} for one, label in zip(asked, labels, strict=True)
    ]
    path.write_text(json.dumps(entries), encoding="utf-8")


def add_chunks(workspace: Workspace, found: Sequence[Chunk], chunker: str) -> None:
    policy = hashlib.sha256(chunker.encode()).hexdigest()[:12]
    rows = (
        (
            chunk.chunk_id,
            chunk.document.doc_id,
            chunk.text,
            json.dumps([stored_place(chunk.document, chunk.place)]),
            len(chunk.text) // 4,
            chunker,
            policy,
        )
        for chunk in found
    )
    with closing(sqlite3.connect(workspace.db)) as connection, connection:
        connection.executemany("INSERT INTO chunks VALUES (?, ?, ?, '[]', NULL, ?, ?, ?, ?, '[]', '2026-01-01')", rows)


# --- what kbeval says, and whether it is so --------------------------------------------------------------------


@dataclass(frozen=True)
class Said:
    """Two runs compared under one rule, next to the truth."""

    labels: str
    pair: tuple[str, str]
    rule: str
    # Shares of the questions: the rank in the second run is the true one; the pair of ranks became a false regression.
    ranks: float
    false_regressions: float
    verdict: str
    mrr: float


def compare(study: Study, pair: tuple[str, str], labels: str, rule: str | None) -> kbeval.CompareReport:
    """By `rule`, or by the truth itself: hits renamed to what they are, and matched by id."""
    scoring = ScoreOptions(threads=1, cache="off") if rule is None else score_options(overlap_of=rule)
    return kbeval.compare_runs(
        *pair,
        db=study.database(truth=rule is None),
        golden=study.golden(labels),
        options=CompareOptions(scoring=scoring, only=("hit_at_k", "mrr")),
    )


def said(job: tuple[Study, tuple[str, str], str, str]) -> Said:
    study, pair, kind, rule = job
    report = compare(study, pair, pair[0] if kind == "chunks" else "spans", rule)
    true_a, true_b = (study.true_ranks[run] for run in pair)
    found = report.per_query
    agreed = sum(one.b_hit_rank == true_b[one.query_id] for one in found)
    lost = sum(one.kind == "regression" and not (true_a[one.query_id] and not true_b[one.query_id]) for one in found)
    return Said(
        kind,
        pair,
        rule,
        agreed / len(found),
        lost / len(found),
        report.verdict.answer,
        report.aggregate_b.mrr or 0.0,
    )


def true_verdict(job: tuple[Study, tuple[str, str]]) -> str:
    study, pair = job
    return compare(study, pair, "truth", None).verdict.answer


def scored(job: tuple[Study, str]) -> dict[str, float]:
    """The MRR of every run by `score` with its default rule."""
    study, labels = job
    found = kbeval.score_runs(study.database(), study.golden(labels), None, score_options())
    return {run_id: aggregate.mrr or 0.0 for run_id, aggregate in found.aggregates.items()}


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="kbeval-study-") as name:
        report_on(Path(name))


def report_on(folder: Path) -> None:
    study, about = make_study(folder)
    kinds = tuple(DEFAULT_RULE)
    jobs = [(study, pair, kind, rule) for kind in kinds for rule in RULES for pair in PAIRS]
    labels = sorted({first for first, _ in PAIRS})
    # Not forked: the engine has threads.
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        true_verdicts = dict(zip(PAIRS, pool.map(true_verdict, [(study, pair) for pair in PAIRS]), strict=True))
        every = list(pool.map(said, jobs))
        by_score = dict(
            zip([*labels, "spans"], pool.map(scored, [(study, one) for one in [*labels, "spans"]]), strict=True)
        )
    true_mrr = {
        run: mean(1 / rank if rank else 0.0 for rank in ranks.values()) for run, ranks in study.true_ranks.items()
    }
    print(
        f"chunkers: {about['documents']} documents, {about['characters'] / 1e6:.1f} million characters,"
        f" {about['questions']} questions, {K} hits each; a hit is right when it holds half of the answer"
    )
    show(
        ["chunker", "mean characters", "true MRR"],
        [[run, f"{about['sizes'][run]:,.0f}", f"{true_mrr[run]:.3f}"] for run in CHUNKERS],
    )
    print("per rule, over all pairs; * marks the rule that kbeval takes by itself")
    show(
        ["labels", "overlap of", "ranks", "verdicts", "false regressions", "MRR off by"],
        [
            summary(
                kind, rule, [one for one in every if (one.labels, one.rule) == (kind, rule)], true_verdicts, true_mrr
            )
            for kind in kinds
            for rule in RULES
        ],
    )
    for kind in kinds:
        print(f"labels by {kind}: ranks that agree, verdict (! where it is not the true one), MRR of the second run")
        show(
            ["from", "to", "truth", *RULES],
            [
                [*pair, f"{short(true_verdicts[pair])} {true_mrr[pair[1]]:.3f}"]
                + [cell(one, true_verdicts[pair]) for one in every if (one.labels, one.pair) == (kind, pair)]
                for pair in PAIRS
            ],
        )
    for kind in kinds:
        same = [
            abs(by_score[one.pair[0] if kind == "chunks" else "spans"][one.pair[1]] - one.mrr) < 1e-9
            for one in every
            if (one.labels, one.rule) == (kind, DEFAULT_RULE[kind])
        ]
        share = percent(mean(same))
        print(f"labels by {kind}: score with no rule named gives the MRR of {DEFAULT_RULE[kind]!r} in {share}")
    print()


def summary(
    kind: str, rule: str, found: Sequence[Said], verdicts: dict[tuple[str, str], str], true_mrr: dict[str, float]
) -> list[str]:
    return [
        kind,
        rule + " *" * (DEFAULT_RULE[kind] == rule),
        percent(mean(one.ranks for one in found)),
        percent(mean(one.verdict == verdicts[one.pair] for one in found)),
        percent(mean(one.false_regressions for one in found)),
        f"{mean(abs(one.mrr - true_mrr[one.pair[1]]) for one in found):.3f}",
    ]


def cell(one: Said, truth: str) -> str:
    return f"{percent(one.ranks)} {short(one.verdict)}{'' if one.verdict == truth else '!'} {one.mrr:.3f}"


def short(verdict: str) -> str:
    return "same" if verdict == "no detectable difference" else verdict


def mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def show(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print(render([Column(head, width=40) for head in heads], [list(row) for row in rows], "table"), flush=True)
    print()


if __name__ == "__main__":
    main()
