"""Every action of the page, by name: JSON in, JSON out. The terminal calls the session itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kbeval.live.labelling.answers import AnswerScoring, AnswerView
from kbeval.live.labelling.session import Labelling, QueryView
from kbeval.live.labelling.writing import Saved
from kbeval.live.passages import WORD

Body = Mapping[str, Any]


class Acts(Protocol):
    """What the page calls."""

    def call(self, method: str, name: str, body: Body) -> Any:  # noqa: ANN401  (JSON)
        """Perform an action. Raises LookupError if there is no such action, TypeError for a missing or wrong value."""
        ...

    def save(self, query_id: str | None) -> dict[str, Any]:
        """Write the decisions about one query, or about all (None)."""
        ...


class Actions:
    """The labelling session as the page sees it."""

    def __init__(self, session: Labelling) -> None:
        self._session = session
        self._posts: dict[str, Callable[[Body], QueryView]] = {
            "decide": lambda b: session.decide(
                _text(b, "query"), _text(b, "key"), _text(b, "value"), _part(b), _number(b, "after")
            ),
            "rest": lambda b: session.decide_rest(_text(b, "query"), _number(b, "after")),
            "answerable": lambda b: session.set_answerable(
                _text(b, "query"), _truth(b, "value"), _number(b, "after"), is_sure=bool(_truth(b, "sure"))
            ),
            "wording": lambda b: session.set_query(_text(b, "query"), _text(b, "text"), _number(b, "after")),
            "rule": lambda b: session.set_rule(
                _text(b, "query"), _text(b, "text"), is_wanted=bool(_truth(b, "wanted")), after=_number(b, "after")
            ),
            "note": lambda b: session.set_note(_text(b, "query"), _text(b, "text"), _number(b, "after")),
            "add": lambda b: session.add_query(_text(b, "id"), _text(b, "text")),
        }

    def call(self, method: str, name: str, body: Body) -> Any:  # noqa: ANN401  (JSON)
        """As in `Acts`."""
        if method == "GET":
            if name == "work":
                return self.work()
            kind, _, query_id = name.partition("/")
            if kind != "query":
                raise LookupError(name)
            return {**self.shown(self._session.view(query_id)), **self.left()}
        if name == "undo":
            return {"query": self._session.undo(_number(body, "after")), **self.left()}
        if name == "save":
            return self.save(_text(body, "query"))
        return {**self.shown(self._posts[name](body)), **self.left()}

    def work(self) -> dict[str, Any]:
        """The queue, and where to begin."""
        session = self._session
        entries = {entry["id"]: entry for entry in session.file.golden.entries}
        queue = [
            {"id": query_id, "query": entries[query_id]["query"], "open": session.is_open(query_id)}
            for query_id in session.queue
            if query_id in entries
        ]
        return {
            "mode": "label",
            "annotator": session.chosen.annotator,
            "settling": session.chosen.to_settle,
            "file": session.file.path.name,
            "queue": queue,
            "first": session.first(),
            **self.left(),
        }

    def left(self) -> dict[str, int]:
        """What is still to be decided, and the number of the decision that an undo would revert."""
        queries, candidates = self._session.left()
        return {"queries_left": queries, "candidates_left": candidates, "last": self._session.latest()}

    def save(self, query_id: str | None) -> dict[str, Any]:
        """Write the decisions about one query, or about all (None), to the golden file."""
        return _saved(self._session.save(query_id))

    @staticmethod
    def shown(view: QueryView) -> dict[str, Any]:
        """A query as JSON."""
        entry = view.entry
        return {
            "id": view.query_id,
            "query": entry["query"],
            "words": words_to_mark(view),
            "answerable": view.answerable,
            "must_contain": list(entry.get("must_contain") or ()),
            "about": {name: entry[name] for name in ("category", "difficulty", "lang", "group") if entry.get(name)},
            "labels": labels_in_words(entry),
            "note": view.note,
            "candidates": [one.as_json() for one in view.candidates],
            "decided": dict(view.decided),
            "passages": dict(view.passages),
            "versions": dict(view.versions),
            "disputes": {key: dict(votes) for key, votes in view.disputes.items()},
            "settled": dict(view.settled),
            "open": view.open,
            "latest": view.latest,
            "advice": view.advice,
        }


class AnswerActions:
    """Scoring answers, as the page sees it."""

    def __init__(self, session: AnswerScoring) -> None:
        self._session = session

    def call(self, method: str, name: str, body: Body) -> Any:  # noqa: ANN401  (JSON)
        """As in `Acts`."""
        session = self._session
        if method == "GET" and name == "work":
            return self._work()
        kind, _, query_id = name.partition("/")
        if method == "GET" and kind == "query":
            return {**self._shown(session.view(query_id)), **self._left()}
        if method == "POST" and name == "undo":
            return {"query": session.undo(_number(body, "after")), **self._left()}
        if method == "POST" and name == "save":
            return self.save(None)
        if method == "POST" and name == "score":
            value = _number(body, "value")
            if value is None:
                raise TypeError(name)
            after = _number(body, "after")
            return {
                **self._shown(session.score(_text(body, "query"), _text(body, "rubric"), value, after)),
                **self._left(),
            }
        raise LookupError(name)

    def save(self, query_id: str | None) -> dict[str, Any]:  # noqa: ARG002  (each score is stored at once)
        """Each score is stored at once."""
        return _saved(Saved())

    def _work(self) -> dict[str, Any]:
        session = self._session
        queue = [
            {"id": query_id, "query": session.view(query_id).answer.question, "open": session.is_open(query_id)}
            for query_id in session.queue
        ]
        rubrics = [{"name": r.name, "low": r.low, "high": r.high, "text": r.template} for r in session.rubrics.values()]
        return {
            "mode": "score",
            "annotator": session.annotator,
            "settling": session.is_settling,
            "file": f"answers of {session.run_id}",
            "queue": queue,
            "first": session.first(),
            "rubrics": rubrics,
            **self._left(),
        }

    def _left(self) -> dict[str, int]:
        queries, scores = self._session.left()
        return {"queries_left": queries, "candidates_left": scores, "last": self._session.latest()}

    def _shown(self, view: AnswerView) -> dict[str, Any]:
        answer = view.answer
        return {
            "id": answer.query_id,
            "query": answer.question,
            "answer": answer.answer,
            "passages": [{"text": one.text, "is_cut": one.is_cut} for one in answer.passages],
            "facts": list(answer.expected_key_facts),
            "scores": dict(view.scores),
            "versions": dict(view.versions),
            "said": {name: dict(scores) for name, scores in view.said.items()},
            "open": self._session.missing(view),
        }


def words_to_mark(view: QueryView) -> list[str]:
    """The words of the query that distinguish candidates, without those that many candidates contain."""
    found = {word.lower() for word in WORD.findall(str(view.entry["query"])) if len(word) > 2}
    texts = [set(map(str.lower, WORD.findall(one.text))) for one in view.candidates]
    usual = {word for word in found if len(texts) > 4 and 3 * sum(word in text for text in texts) > len(texts)}
    return sorted(found - usual or found)


def labels_in_words(entry: Mapping[str, Any]) -> list[str]:
    """The labels of the golden file as readable text."""
    found = [f"chunk {chunk}" for chunk in entry.get("expected_chunk_ids") or ()]
    found += [span_text(span) for span in entry.get("expected_spans") or ()]
    for support in entry.get("gold_supports") or ():
        heading = support.get("heading_path") or ""
        under = " > ".join(heading) if isinstance(heading, list) else heading
        found.append(" · ".join(filter(None, [support.get("rel_path"), under, *support.get("snippets", ())])))
    return found


def span_text(span: Mapping[str, Any]) -> str:
    """A span as readable text."""
    where = span.get("doc_id") or span.get("path") or ""
    numbers = [f"{value:g}" for name, value in span.items() if isinstance(value, int | float) and name != "page"]
    page = f" {span['page']:g}" if isinstance(span.get("page"), int | float) else ""
    return f"{where} {span.get('kind', '')}{page} {'–'.join(numbers)}".strip()


def _saved(saved: Saved) -> dict[str, Any]:
    return {"written": saved.written, "held": saved.held, "problems": saved.problems}


def _text(body: Body, name: str) -> str:
    found = body.get(name)
    if not isinstance(found, str):
        raise TypeError(name)
    return found


def _number(body: Body, name: str) -> int | None:
    found = body.get(name)
    if found is not None and (not isinstance(found, int) or isinstance(found, bool)):
        raise TypeError(name)
    return found


def _truth(body: Body, name: str) -> bool | None:
    found = body.get(name)
    if not isinstance(found, bool | None):
        raise TypeError(name)
    return found


def _part(body: Body) -> tuple[int, int] | None:
    found = body.get("part")
    if found is None:
        return None
    if not isinstance(found, list) or len(found) != 2 or not all(type(one) is int for one in found):
        raise TypeError(found)
    return found[0], found[1]
