"use strict";
// The page of `kbeval label --web`. Data is only ever shown as text (textContent); nothing is built from markup.

const token = new URLSearchParams(location.search).get("token");
const $ = (id) => document.getElementById(id);
let rubric = 0;
let work = null, shown = null, current = 0, busy = Promise.resolve(), timer = 0, doubted = null;

function make(tag, text, name) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (name) element.className = name;
  return element;
}

function say(text) {
  const box = $("message");
  box.textContent = text;
  box.hidden = !text;
  clearTimeout(timer);
  if (text) timer = setTimeout(() => { box.hidden = true; }, 7000);
}

async function ask(method, path, body) {
  const options = { method, headers: { "X-Kbeval-Token": token } };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch("/api/" + path, options);
  } catch {
    say("kbeval does not answer: the command has ended. Everything that was confirmed is stored; start it again to continue.");
    throw new Error("ended");
  }
  const found = (response.headers.get("Content-Type") || "").startsWith("application/json") ? await response.json() : {};
  if (response.ok) return found;
  if (response.status === 409 && shown) await open(shown.id, false);
  say(found.error || "This address is no longer valid: open the one that kbeval label --web printed.");
  throw new Error(String(response.status));
}

// Actions run one at a time, in the order of the keys.
function queued(task) {
  busy = busy.then(task).catch(() => {});
  return busy;
}

// A key that is pressed while a response is pending applies to what is shown after it, not to what is shown now.
let waiting = 0, turn = Promise.resolve();

function inTurn(action) {
  const run = async () => {
    if (!$("dialog").open) action();
    let last;
    do { last = busy; await last; } while (last !== busy);
    waiting -= 1;
  };
  waiting += 1;
  turn = waiting > 1 ? turn.then(run) : run();
}

// --- the queue ---------------------------------------------------------------------------------------------

function count(n, one, many) { return n.toLocaleString("en") + " " + (n === 1 ? one : many); }

function showLeft(found) {
  if (found && found.queries_left !== undefined) { work.queries_left = found.queries_left; work.candidates_left = found.candidates_left; work.last = found.last; }
  const what = work.mode === "score" ? ["answer", "answers", "score", "scores"] : ["query", "queries", work.settling ? "disagreement" : "candidate", work.settling ? "disagreements" : "candidates"];
  const left = work.queries_left ? count(work.queries_left, what[0], what[1]) + " left, " + count(work.candidates_left, what[2], what[3]) : work.settling ? "everything is settled" : "everything is decided";
  $("left").textContent = work.file + " · " + work.annotator + " · " + left;
}

function showQueue() {
  const wanted = $("find").value.trim().toLowerCase();
  const items = work.queue.filter((q) => !wanted || q.id.toLowerCase().includes(wanted) || q.query.toLowerCase().includes(wanted)).slice(0, 500).map((q) => {
    const item = make("li", undefined, q.open ? "" : "done");
    const button = make("button", undefined);
    button.type = "button";
    button.append(make("span", q.query));
    if (!q.open) button.append(make("span", "done", "hidden"));
    if (shown && q.id === shown.id) button.setAttribute("aria-current", "true");
    button.addEventListener("click", () => queued(() => open(q.id)));
    item.append(button);
    return item;
  });
  $("queue").replaceChildren(...items);
  const active = $("queue").querySelector("[aria-current]");
  if (active) active.scrollIntoView({ block: "nearest" });
}

async function open(id, save = true) {
  if (save && shown) await saved(shown.id);
  take(await ask("GET", "query/" + encodeURIComponent(id)), true);
  $("question").focus({ preventScroll: true });
  scrollTo(0, 0);
}

async function saved(id) {
  const found = await ask("POST", "save", { query: id });
  if (found.problems.length) say(found.problems.join(" · "));
  else if (found.held) say(count(found.held, "decision is", "decisions are") + " not written: people disagree. Settle it with kbeval label --settle.");
}

function take(found, isNew) {
  shown = found;
  if (found.advice) say(found.advice + (found.advice.startsWith("The whole text") ? " Select the passage that answers the query and press s to label only that." : found.advice.startsWith("Not written") ? " Settle it with kbeval label --settle." : ""));
  const own = work.queue.find((q) => q.id === found.id);
  if (own) { own.open = found.open > 0; own.query = found.query; } else work.queue.push({ id: found.id, query: found.query, open: found.open > 0 });
  if (work.mode === "score") {
    if (isNew) rubric = Math.max(0, work.rubrics.findIndex((r) => found.scores[r.name] === undefined));
  } else if (isNew) current = Math.max(0, found.candidates.findIndex((c) => !isDecided(c)));
  showLeft(found);
  showQueue();
  if (work.mode === "score") showAnswer(); else showQuery();
}

function isDecided(candidate) { return (candidate.is_labelled && !work.settling) || ["yes", "no"].includes(shown.decided[candidate.key]); }

// --- a query -----------------------------------------------------------------------------------------------

function showQuery() {
  const about = Object.entries(shown.about).map(([name, value]) => name + " " + value);
  $("meta").textContent = [shown.id, ...about].join(" · ");
  $("question").textContent = shown.query;
  document.title = shown.query + " – kbeval label";
  $("answerable").setAttribute("aria-pressed", String(shown.answerable === true));
  $("unanswerable").setAttribute("aria-pressed", String(shown.answerable === false));
  list($("labels"), shown.labels, "none");
  list($("rules"), shown.must_contain, "none: select words in a text and press m", (text) => change("rule", { text, wanted: false, after: version("must_contain:" + text) }));
  for (const element of document.querySelectorAll(".noted")) element.hidden = !shown.note;
  $("note").textContent = shown.note;
  const open = shown.candidates.filter((c) => !isDecided(c)).length;
  const what = work.settling ? ["disagreement", "disagreements"] : ["candidate", "candidates"];
  $("heading").textContent = count(shown.candidates.length, what[0], what[1]) + (open ? ", " + open + " open" : "");
  $("none").hidden = shown.candidates.length > 0;
  $("candidates").replaceChildren(...shown.candidates.map(card));
  point(current, false);
}

// --- an answer to be scored --------------------------------------------------------------------------------

function showAnswer() {
  $("meta").textContent = shown.id;
  $("question").textContent = shown.query;
  document.title = shown.query + " – kbeval label";
  $("heading").textContent = "Answer";
  const parts = [make("p", shown.answer, "answer")];
  if (shown.facts.length) { const facts = make("ul"); for (const fact of shown.facts) facts.append(make("li", fact)); parts.push(make("p", "Expected facts", "where"), facts); }
  work.rubrics.forEach((one, place) => {
    const box = make("fieldset", undefined, place === rubric ? "current" : "");
    box.append(make("legend", one.name));
    const said = shown.said[one.name];
    if (said) box.append(make("p", Object.entries(said).map(([who, value]) => who + ": " + value).join(" · "), "dispute"));
    const row = make("div", undefined, "row");
    for (let value = one.low; value <= one.high; value += 1) {
      const button = make("button", String(value));
      button.type = "button";
      button.setAttribute("aria-pressed", String(shown.scores[one.name] === value));
      button.setAttribute("aria-label", one.name + " " + value);
      button.addEventListener("click", () => { rubric = place; score(value); });
      row.append(button);
    }
    const more = make("details");
    more.append(make("summary", "The rubric"), make("p", one.text));
    box.append(row, more);
    parts.push(box);
  });
  $("scores").replaceChildren(...parts);
  const cards = shown.passages.map((passage) => {
    const item = make("li");
    item.append(make("div", passage.text, "text"));
    if (passage.is_cut) item.append(make("p", "Only part of this text is stored.", "cut"));
    return item;
  });
  $("candidates").replaceChildren(...cards);
}

function score(value) {
  const one = work.rubrics[rubric], id = shown.id;
  if (!one || value < one.low || value > one.high) return;
  queued(async () => {
    take(await ask("POST", "score", { query: id, rubric: one.name, value, after: version(one.name) }), false);
    const open = work.rubrics.findIndex((r) => shown.scores[r.name] === undefined);
    if (open >= 0) { rubric = open; showAnswer(); }
  });
}

function list(place, texts, none, remove) {
  if (!texts.length) { place.replaceChildren(document.createTextNode(none)); return; }
  const items = make("ul");
  for (const text of texts) {
    const item = make("li", text);
    if (remove) {
      const button = make("button", "remove");
      button.type = "button";
      button.setAttribute("aria-label", "remove " + text);
      button.addEventListener("click", () => remove(text));
      item.append(button);
    }
    items.append(item);
  }
  place.replaceChildren(items);
}

function card(candidate, place) {
  const value = shown.decided[candidate.key] || "";
  const item = make("li", undefined, value === "yes" || value === "no" ? value : "");
  item.tabIndex = -1;
  item.dataset.place = place;
  const states = candidate.is_question ? { yes: "yes", no: "no", skip: "" } : { yes: "supports the answer", no: "does not support it", skip: "skipped" };
  const state = states[value] || (candidate.is_labelled ? "labelled" : "");
  item.append(make("span", state, "state"));
  const where = make("p", undefined, "where");
  where.append(make("strong", candidate.title || candidate.path || candidate.doc_id || "unknown document"));
  const rest = [...candidate.headings.filter((h, n) => n > 0 || h !== candidate.title)].join(" › ");
  if (rest) where.append(document.createTextNode(" · " + rest));
  if (candidate.path && candidate.title) where.append(document.createTextNode(" · " + candidate.path));
  item.append(where);
  const text = make("div", undefined, "text");
  fill(text, candidate.text, shown.passages[candidate.key]);
  item.append(text);
  if (candidate.is_cut) item.append(make("p", "Only part of this text is stored.", "cut"));
  const votes = shown.disputes[candidate.key];
  if (votes && work.settling) {
    const said = Object.entries(votes).map(([who, what]) => who + ": " + states[what]).join(" · ");
    item.append(make("p", (shown.settled[candidate.key] ? "settled, " : "") + said, "dispute"));
  }
  const row = make("div", undefined, "row");
  for (const [what, key, label] of candidate.is_question ? [["yes", "s", "Yes"], ["no", "f", "No"]] : [["yes", "s", "Supports"], ["no", "f", "Does not"], ["skip", "k", "Skip"]]) {
    const button = make("button");
    button.type = "button";
    button.append(make("kbd", key), document.createTextNode(label));
    button.setAttribute("aria-pressed", String(value === what));
    button.addEventListener("click", () => { current = place; decide(what); });
    row.append(button);
  }
  item.append(row);
  item.addEventListener("focusin", () => { if (current !== place) point(place, false); });
  item.addEventListener("mousedown", () => { if (current !== place) point(place, false); });
  return item;
}

// The text, with the words of the query underlined and the labelled passage marked. Only text nodes and our own elements.
function fill(place, text, passage) {
  const start = passage ? text.indexOf(passage) : -1;
  const edges = start < 0 ? [[0, text.length, false]] : [[0, start, false], [start, start + passage.length, true], [start + passage.length, text.length, false]];
  const words = new Set(shown.words);
  for (const [from, to, marked] of edges) {
    const parent = marked ? make("mark") : place;
    for (const part of text.slice(from, to).split(/([\p{L}\p{N}_]+)/u)) {
      if (!part) continue;
      parent.append(words.has(part.toLowerCase()) ? make("span", part, "word") : document.createTextNode(part));
    }
    if (marked) place.append(parent);
  }
}

function cards() { return [...$("candidates").children]; }

function point(place, focus = true) {
  const all = cards();
  if (!all.length) return;
  current = Math.min(Math.max(place, 0), all.length - 1);
  all.forEach((item, n) => {
    item.classList.toggle("current", n === current);
    if (n === current) item.setAttribute("aria-current", "true"); else item.removeAttribute("aria-current");
  });
  if (focus) { all[current].focus({ preventScroll: true }); all[current].scrollIntoView({ block: "nearest" }); }
}

// --- selecting ---------------------------------------------------------------------------------------------

// JavaScript counts UTF-16 units, kbeval code points.
function points(text, units) { return [...text.slice(0, units)].length; }

function selected() {
  const selection = getSelection();
  if (!selection.rangeCount || selection.isCollapsed) return null;
  const range = selection.getRangeAt(0);
  const box = (range.startContainer.parentElement || document.body).closest(".text");
  if (!box || !box.contains(range.endContainer)) return null;
  const before = document.createRange();
  before.selectNodeContents(box);
  before.setEnd(range.startContainer, range.startOffset);
  const place = Number(box.closest("li").dataset.place);
  const text = shown.candidates[place].text;
  let start = before.toString().length, end = start + range.toString().length;
  while (start < end && /\s/u.test(text[start])) start += 1;
  while (end > start && /\s/u.test(text[end - 1])) end -= 1;
  if (start >= end) return null;
  return { place, text: text.slice(start, end), part: [points(text, start), points(text, end)] };
}

// --- actions -----------------------------------------------------------------------------------------------

function version(name) { return shown.versions[name] || 0; }

function change(action, body) {
  const id = shown.id;
  return queued(async () => {
    const found = await ask("POST", action, { query: id, ...body });
    if (found.doubt) { doubted = action + " " + id; say(found.doubt); } else take(found, false);
  });
}

function decide(value) {
  const chosen = value === "yes" ? selected() : null;
  if (chosen) current = chosen.place;
  const candidate = shown.candidates[current];
  if (!candidate) return;
  const body = { key: candidate.key, value, after: version(candidate.key) };
  if (chosen) body.part = chosen.part;
  getSelection().removeAllRanges();
  change("decide", body).then(() => {
    const next = shown.candidates.findIndex((c, n) => n > current && !isDecided(c) && shown.decided[c.key] !== "skip");
    // The advice is about this candidate.
    if (shown.advice) point(current);
    else point(next < 0 ? current + (value === "skip" ? 1 : 0) : next);
  });
}

function setAnswerable(value) {
  const sure = doubted === "answerable " + shown.id;
  doubted = null;
  change("answerable", { value: shown.answerable === value ? null : value, after: version("answerable:"), sure });
}

function addRule() {
  const chosen = selected();
  if (!chosen) { say("Select the words in a text first, then press m."); return; }
  getSelection().removeAllRanges();
  change("rule", { text: chosen.text, wanted: true, after: version("must_contain:" + chosen.text) });
}

function undo() {
  queued(async () => {
    const found = await ask("POST", "undo", { after: work.last });
    if (found.query === null) { say("There is nothing to undo."); return; }
    work = await ask("GET", "work");
    const still = work.queue.some((q) => q.id === found.query);
    take(await ask("GET", "query/" + encodeURIComponent(still ? found.query : work.first)), !still || found.query !== (shown && shown.id));
    say("Undone.");
  });
}

function next(step) {
  const place = work.queue.findIndex((q) => q.id === shown.id);
  const later = work.queue.slice(place + 1).find((q) => q.open);
  const target = step < 0 ? work.queue[place - 1] : later || work.queue[place + 1];
  if (target) queued(() => open(target.id));
  else queued(async () => { await saved(shown.id); say("This is the last query. All decisions are saved."); });
}

function prompt(title, fields, done) {
  const dialog = $("dialog");
  $("dialog-title").textContent = title;
  const inputs = fields.map(([label, value, isLong], n) => {
    const input = make(isLong ? "textarea" : "input");
    input.id = "input-" + n;
    input.value = value;
    const name = make("label", label);
    name.htmlFor = input.id;
    return [name, input];
  });
  $("dialog-body").replaceChildren(...inputs.flat());
  $("dialog-ok").hidden = !fields.length && !done;
  $("dialog-cancel").textContent = done ? "Cancel" : "Close";
  dialog.returnValue = "";
  dialog.onclose = () => { if (dialog.returnValue === "ok" && done) done(...inputs.map(([, input]) => input.value)); };
  dialog.showModal();
  if (inputs.length) { inputs[0][1].focus(); inputs[0][1].select(); }
}

function help() {
  prompt("Keys", []);
  if (work.mode === "score") { $("dialog-body").replaceChildren(make("p", "0 to 5: the score for the marked rubric. n and p: next and previous answer. u: undo. /: search.")); return; }
  const keys = make("dl", undefined, "keys");
  for (const [key, text] of [["j ↓ ↑", "next and previous candidate"], ["s  space", "supports the answer; with words selected, that passage"], ["f", "does not support it"], ["k", "skip"], ["d", "the open candidates do not support it"], ["a  x", "answerable, unanswerable"], ["m", "an answer must contain the selected words"], ["e  t", "edit the wording, write a note"], ["n  p", "next and previous query; decisions are saved"], ["v", "one candidate at a time, or all"], ["u", "undo, without limit"], ["/", "search queries"], ["+", "add a query"]]) {
    const name = make("dt");
    for (const one of key.split(/\s+/)) name.append(make("kbd", one));
    keys.append(name, make("dd", text));
  }
  $("dialog-body").replaceChildren(keys);
}

const actions = {
  s: () => decide("yes"), " ": () => decide("yes"), f: () => decide("no"), k: () => decide("skip"),
  j: () => point(current + 1), ArrowDown: () => point(current + 1), ArrowUp: () => point(current - 1),
  d: () => change("rest", { after: shown.latest }), a: () => setAnswerable(true), x: () => setAnswerable(false), m: addRule,
  e: () => prompt("Edit the wording", [["Query", shown.query, true]], (text) => change("wording", { text, after: version("query:") })),
  t: () => prompt("Note", [["Kept in the database, not in the golden file", shown.note, true]], (text) => change("note", { text, after: version("note:") })),
  "+": () => prompt("Add a query", [["Id", ""], ["Query", "", true]], (id, text) => queued(async () => { if (shown) await saved(shown.id); take(await ask("POST", "add", { id, text }), true); })),
  n: () => next(1), p: () => next(-1), u: undo, v: () => toggle(), "/": () => $("find").focus(), "?": help,
};

function toggle() {
  const one = document.body.classList.toggle("one");
  $("view").setAttribute("aria-pressed", String(!one));
  point(current, false);
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("dialog").open) return;
  const tag = event.target.tagName;
  if (event.target === $("find")) {
    if (event.key === "Escape" || event.key === "Enter") { event.target.blur(); const first = $("queue").querySelector("button"); if (event.key === "Enter" && first) first.click(); }
    return;
  }
  if (tag === "INPUT" || tag === "TEXTAREA") return;
  // A button keeps its own keys.
  if (tag === "BUTTON" && (event.key === " " || event.key === "Enter")) return;
  if (work.mode === "score" && /^[0-9]$/.test(event.key)) { event.preventDefault(); inTurn(() => score(Number(event.key))); return; }
  if (work.mode === "score" && !["n", "p", "u", "/"].includes(event.key)) return;
  const action = actions[event.key];
  if (action && shown) { event.preventDefault(); inTurn(() => { say(""); action(); }); }
});

for (const [id, key] of [["undo", "u"], ["help", "?"], ["add", "+"], ["answerable", "a"], ["unanswerable", "x"], ["wording", "e"], ["notes", "t"], ["rest", "d"], ["next", "n"], ["view", "v"]]) $(id).addEventListener("click", () => { if (shown || id === "add" || id === "help") actions[key](); });
$("dialog-cancel").addEventListener("click", () => $("dialog").close(""));
$("find").addEventListener("input", showQueue);
$("end").addEventListener("click", () => queued(async () => {
  const found = await ask("POST", "end", {});
  document.body.classList.add("ended");
  clearTimeout(timer);
  say(found.problems.length ? found.problems.join(" · ") : "Saved. You can close this page.");
  clearTimeout(timer);
}));

queued(async () => {
  work = await ask("GET", "work");
  document.body.classList.toggle("score", work.mode === "score");
  showLeft(work);
  if (work.first === null) { say("There is no query to label."); return; }
  take(await ask("GET", "query/" + encodeURIComponent(work.first)), true);
});
