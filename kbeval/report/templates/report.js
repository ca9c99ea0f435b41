"use strict";
// The list of queries, from the data in the page: search, filters, order, pages, links. Everything else works without
// this script. It creates elements and sets their text; text from the data is never treated as markup.
(() => {
  const PER_PAGE = 50;
  // In print, every selected query is included; those beyond this number as one line each.
  const PRINTED_IN_FULL = 500;
  const SIGNS = { "regression": "✕", "loss": "▼", "win": "▲", "draw": "=", "worse answer": "▽", "better answer": "△",
    "miss": "○", "hit": "●", "failed": "!", "nothing expected": "–", "cannot be matched": "?" };
  const byId = (id) => document.getElementById(id);

  // --- colours -------------------------------------------------------------------------------------

  const root = document.documentElement;
  const remember = (value) => { try { value ? localStorage.setItem("kbeval-theme", value) : localStorage.removeItem("kbeval-theme"); } catch { /* not kept */ } };
  const remembered = () => { try { return localStorage.getItem("kbeval-theme"); } catch { return null; } };
  const setTheme = (name) => {
    if (name === "light" || name === "dark") root.dataset.theme = name; else delete root.dataset.theme;
    for (const input of document.querySelectorAll("input[name=theme]")) input.checked = input.value === (root.dataset.theme || "auto");
  };
  setTheme(remembered());
  for (const input of document.querySelectorAll("input[name=theme]")) {
    input.addEventListener("change", () => { setTheme(input.value); remember(root.dataset.theme); });
  }
  document.querySelector(".theme").hidden = false;

  const holder = byId("data");
  if (!holder || typeof DecompressionStream === "undefined") return;

  // --- data ----------------------------------------------------------------------------------------

  const unpack = async () => {
    const letters = atob(JSON.parse(holder.textContent));
    const bytes = new Uint8Array(letters.length);
    for (let place = 0; place < letters.length; place += 1) bytes[place] = letters.charCodeAt(place);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const batches = JSON.parse(await new Response(stream).text());
    const all = (name) => batches.flatMap((batch) => batch[name]);
    return { texts: all("texts"), chunks: all("chunks"), labels: all("labels"), queries: all("queries") };
  };

  // --- elements ------------------------------------------------------------------------------------

  const make = (tag, kind, ...children) => {
    const element = document.createElement(tag);
    if (kind) element.className = kind;
    for (const child of children) if (child !== null && child !== undefined && child !== "") element.append(child);
    return element;
  };
  const sign = (text, kind) => { const found = make("span", `sign ${kind}`, text); found.setAttribute("aria-hidden", "true"); return found; };
  const any = (element) => { element.dir = "auto"; return element; };
  const toward = (link, text) => { const found = make("a", "", text); found.href = `#${link}`; return found; };
  const number = (value) => value.toLocaleString("en");

  const start = (data) => {
    // The hits of a ranking, from its columns.
    const hitsOf = (side) => {
      const { chunks, scores, ranks, labelled } = side.hits;
      const hits = chunks.map((number, index) => {
        const [chunk, doc, headings, where, source, text] = data.chunks[number];
        return { chunk, doc, headings, where, source, text, rank: ranks ? ranks[index] : index + 1, score: scores[index], counts: 0, marks: [], labels: [] };
      });
      for (const [index, counts, marks, labels] of labelled) Object.assign(hits[index], { counts, marks, labels: labels.map((number) => data.labels[number]) });
      return hits;
    };

    const marked = (text, marks) => {
      const found = any(make("p", "text"));
      let before = 0;
      for (let index = 0; index < marks.length; index += 2) {
        found.append(text.slice(before, marks[index]), make("mark", "", text.slice(marks[index], marks[index + 1])));
        before = marks[index + 1];
      }
      found.append(text.slice(before));
      return found;
    };

    const row = (view) => [
      sign(SIGNS[view.kind], view.kind.replaceAll(" ", "-")), " ", make("span", "kind", view.kind), " ",
      make("span", "qid", view.id), " ",
      make("span", "ranks", view.ranks.map((rank) => (rank === null ? "–" : rank)).join(" → ")), " ",
      any(make("span", "qtext", view.query)), " ", make("span", "note", view.note),
    ];

    const hitElement = (hit, anchor, order) => {
      const summary = make("summary", "", make("span", "rank", String(hit.rank)), sign(["", "≈", "✓"][hit.counts], `c${hit.counts}`),
        hit.counts ? make("span", "vh", ["", "near", "counts"][hit.counts]) : null, " ", make("span", "doc", hit.doc || "no document"));
      if (hit.headings) summary.append(" ", any(make("span", "headings", hit.headings)));
      const small = make("span", "small");
      if (hit.chunk) small.append(make("span", "mono", hit.chunk), " ");
      if (hit.where) small.append(`${hit.where} `);
      if (hit.score !== null) small.append(`score ${hit.score}`);
      summary.append(" ", small);
      const details = make("details", "", summary);
      details.open = hit.counts > 0 || order < 2;
      for (const label of hit.labels) details.append(make("p", "label", label));
      details.append(hit.text === null ? make("p", "aside", "no text is stored") : marked(data.texts[hit.text], hit.marks));
      if (hit.source) details.append(make("p", "aside", hit.source));
      const item = make("li", `hit c${hit.counts}`, details);
      item.id = `${anchor}-${hit.rank}`;
      return item;
    };

    const checks = (items) => make("ul", "checks", ...items);

    const answerElement = (answer, anchor) => {
      const found = make("div", "answer");
      const title = make("h4", "", "Answer");
      if (answer.refused) title.append(" ", make("span", "tag", "refused"));
      found.append(title);
      if (answer.pieces.length) {
        found.append(any(make("p", "text", ...answer.pieces.map(([kind, piece]) => (kind ? make("mark", "only", piece) : piece)))));
      } else found.append(make("p", "aside", "no text"));
      if (answer.reason) found.append(any(make("p", "aside", `reason: ${answer.reason}`)));
      if (answer.too_long) found.append(make("p", "aside", "too long to mark the differences"));
      if (answer.citations.length) {
        found.append(checks(answer.citations.map(([text, kind, said, rank]) => any(make("li", "", sign({ ok: "✓", bad: "✕" }[kind] || "·", kind),
          ` cites ${text}: ${said}`, ...(rank === null ? [", none of the hits"] : [", ", toward(`${anchor}-${rank}`, `hit ${rank}`)]))))));
      }
      if (answer.more) found.append(make("p", "aside", `${number(answer.more)} more not shown`));
      if (answer.rules.length) {
        found.append(checks(answer.rules.map(([rule, needle, kept]) => make("li", "", sign(kept ? "✓" : "✕", kept ? "ok" : "bad"),
          ` ${rule} `, any(make("q", "", needle)), `: ${kept ? "kept" : "broken"}`))));
      }
      for (const judged of answer.judged) {
        const part = make("div", "judged", make("p", "", make("strong", "", judged.rubric),
          ` ${judged.score === null ? "unscored" : judged.score}${judged.why ? `: ${judged.why}` : ""} `,
          make("span", "small", judged.by)));
        if (judged.reasoning) part.append(any(make("p", "text", judged.reasoning)));
        if (judged.claims.length) {
          part.append(checks(judged.claims.map(([supported, claim]) => any(make("li", "", sign(supported ? "✓" : "✕", supported ? "ok" : "bad"),
            ` ${supported ? "supported" : "not supported"}: ${claim}`)))));
        }
        if (judged.more) part.append(make("p", "aside", `${number(judged.more)} more claims not shown`));
        found.append(part);
      }
      return found;
    };

    const sideElement = (view, index) => {
      const own = view.sides[index];
      const anchor = `h${view.link.slice(1)}-${"ab"[index]}`;
      const hits = hitsOf(own);
      const found = make("div", "side", make("h3", "", view.sides.length > 1 ? `Run ${"AB"[index]}` : "What came back"));
      if (!own.asked) found.append(make("p", "aside", "The run has no row for this query."));
      if (own.error !== null) found.append(any(make("p", "error", sign("!", "bad"), ` failed: ${own.error}`)));
      if (own.asked && !hits.length) found.append(make("p", "aside", "no hits"));
      if (hits.length) found.append(make("ol", "hits", ...hits.map((hit, order) => hitElement(hit, anchor, order))));
      if (own.more) found.append(make("p", "aside", `${number(own.more)} more not shown`));
      if (own.answer) found.append(answerElement(own.answer, anchor));
      if (own.took) found.append(make("p", "aside", own.took));
      return found;
    };

    const detail = (view) => {
      const facts = make("p", "facts");
      const fact = (text, kind) => facts.append(make("span", kind || "", text), " ");
      if (view.category) fact(`category ${view.category}`);
      for (const tag of view.tags) fact(`#${tag}`);
      for (const [title, value] of view.facts) fact(`${title} ${value}`);
      for (const cause of view.causes) fact(cause, "cause");
      facts.append(toward(view.link, "link to this query"));
      const found = make("div", "detail", facts);
      if (view.expected.length) {
        found.append(make("div", "expected", make("h3", "", "Expected"), make("ul", "", ...view.expected.map(([what, text, note]) =>
          make("li", "", what, text === null ? null : marked(data.texts[text], []), note === null ? null : make("p", "aside", note))))));
      }
      found.append(make("div", `sides n${view.sides.length}`, ...view.sides.map((_, index) => sideElement(view, index))));
      return found;
    };

    // --- the list ----------------------------------------------------------------------------------

    const queries = data.queries;
    queries.forEach((view, index) => {
      view.order = index;
      view.ms = Math.max(-1, ...view.sides.map((own) => (own.ms === null ? -1 : own.ms)));
      view.found = [view.id, view.query, view.note, view.category || "", ...view.tags, ...view.causes,
        ...view.sides.map((own) => (own.answer ? own.answer.pieces.map(([, piece]) => piece).join("") : ""))].join("\n").toLowerCase();
    });
    const byLink = new Map(queries.map((view) => [view.link, view]));
    const list = byId("list");
    const status = byId("status");
    const pages = byId("pages");
    const printed = byId("printed");
    const field = (id) => byId(id);
    const state = { flow: "", page: 0, open: new Set() };
    let chosen = queries;

    const fill = (id, values) => {
      const select = field(id);
      const names = [...new Set(values)].sort();
      for (const value of names) { const option = make("option", "", value); option.value = value; select.append(option); }
      select.closest("label").hidden = names.length === 0;
    };
    fill("category", queries.flatMap((view) => (view.category ? [view.category] : [])));
    fill("tag", queries.flatMap((view) => view.tags));
    fill("cause", queries.flatMap((view) => view.causes));
    field("kind").closest("label").hidden = field("kind").options.length < 3;

    const last = (rank) => (rank === null ? Infinity : rank);
    const compareText = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    const ranked = (index) => (a, b) => last(b.ranks.at(index)) - last(a.ranks.at(index)) || 0;
    const orders = {
      telling: () => 0,
      id: (a, b) => compareText(a.id, b.id),
      rank: ranked(-1),
      before: ranked(0),
      slow: (a, b) => b.ms - a.ms,
    };

    const choose = () => {
      const words = field("search").value.toLowerCase().split(/\s+/).filter(Boolean);
      const [kind, category, tag, cause] = ["kind", "category", "tag", "cause"].map((id) => field(id).value);
      const order = orders[field("order").value];
      chosen = queries.filter((view) => (!state.flow || view.flow === state.flow) && (!kind || view.kind === kind)
        && (!category || view.category === category) && (!tag || view.tags.includes(tag)) && (!cause || view.causes.includes(cause))
        && words.every((word) => view.found.includes(word)));
      chosen.sort((a, b) => { const found = order(a, b); return (Number.isNaN(found) ? 0 : found) || a.order - b.order; });
    };

    const draw = () => {
      const count = Math.max(1, Math.ceil(chosen.length / PER_PAGE));
      state.page = Math.min(Math.max(0, state.page), count - 1);
      const first = state.page * PER_PAGE;
      const visible = chosen.slice(first, first + PER_PAGE);
      const items = visible.map((view) => {
        const details = make("details", "", make("summary", "", ...row(view)));
        const show = () => { if (details.open && details.children.length === 1) details.append(detail(view)); };
        details.addEventListener("toggle", () => { show(); details.open ? state.open.add(view.link) : state.open.delete(view.link); });
        if (state.open.has(view.link)) { details.open = true; show(); }
        const item = make("li", "q", details);
        item.id = view.link;
        return item;
      });
      const found = make("ol", "queries", ...items);
      list.replaceChildren(found);
      status.textContent = chosen.length
        ? `${number(first + 1)}–${number(first + visible.length)} of ${number(chosen.length)} ${chosen.length === 1 ? "query" : "queries"}`
          + (chosen.length < queries.length ? `, filtered from ${number(queries.length)}` : "")
        : "No query matches. “Show all” removes the filters.";
      pages.hidden = count < 2;
      const turn = (text, page, enabled) => {
        const button = make("button", "", text);
        button.type = "button";
        button.disabled = !enabled;
        button.addEventListener("click", () => { state.page = page; draw(); list.querySelector("summary").focus(); });
        return button;
      };
      pages.replaceChildren(turn("Previous", state.page - 1, state.page > 0), make("span", "", `page ${state.page + 1} of ${number(count)}`),
        turn("Next", state.page + 1, state.page < count - 1));
    };
    const filtered = () => {
      const named = ["kind", "category", "tag", "cause"].filter((id) => field(id).value).map((id) => `${id} ${field(id).value}`);
      const pressed = flows && flows.querySelector("button[aria-pressed=true]");
      if (pressed) named.push(pressed.textContent.trim().replace(/^\S+\s+[\d,]+\s+/, ""));
      if (field("search").value.trim()) named.push(`search “${field("search").value.trim()}”`);
      return named;
    };

    // In print: all selected queries, not only the page that is shown, with everything open.
    let opened = null;
    const beforePrint = () => {
      if (opened) return;
      const items = chosen.map((view, index) => {
        const details = make("details", "", make("summary", "", ...row(view)));
        details.open = true;
        if (index < PRINTED_IN_FULL) details.append(detail(view));
        return make("li", "q", details);
      });
      list.replaceChildren(make("ol", "queries", ...items));
      const whole = chosen.length === queries.length ? `All ${number(queries.length)}` : `${number(chosen.length)} of ${number(queries.length)}`;
      const names = filtered();
      printed.textContent = `${whole} ${queries.length === 1 ? "query" : "queries"}${names.length ? `, filtered by ${names.join(", ")}` : ""}`
        + `${chosen.length > PRINTED_IN_FULL ? `; the first ${number(PRINTED_IN_FULL)} in full, the others as one line each` : ", in full"}.`;
      opened = [...document.querySelectorAll("details:not([open])")];
      for (const details of opened) details.open = true;
    };
    const afterPrint = () => {
      for (const details of opened || []) details.open = false;
      opened = null;
      draw();
    };

    const again = () => { state.page = 0; choose(); draw(); };

    // --- hits and misses: the drawing and the buttons filter the list ------------------------------

    const flows = byId("flows");
    const setFlow = (flow) => {
      state.flow = state.flow === flow ? "" : flow;
      for (const button of flows ? flows.querySelectorAll("button") : []) button.setAttribute("aria-pressed", String(button.dataset.flow === state.flow));
      again();
    };
    if (flows) {
      flows.classList.add("buttons");
      for (const item of flows.querySelectorAll("li")) {
        const button = make("button", "", ...item.childNodes);
        button.type = "button";
        button.dataset.flow = item.dataset.flow;
        button.setAttribute("aria-pressed", "false");
        button.addEventListener("click", () => setFlow(item.dataset.flow));
        item.replaceChildren(button);
      }
      for (const ribbon of document.querySelectorAll(".ribbon")) ribbon.addEventListener("click", () => setFlow(ribbon.dataset.flow));
    }

    // --- keys and links ----------------------------------------------------------------------------

    list.addEventListener("keydown", (event) => {
      const summary = event.target.closest(".q > details > summary");
      const steps = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity };
      if (!summary || !(event.key in steps) || event.altKey || event.ctrlKey || event.metaKey) return;
      const every = [...list.querySelectorAll(".q > details > summary")];
      const next = Math.min(every.length - 1, Math.max(0, every.indexOf(summary) + steps[event.key]));
      every[next].focus();
      event.preventDefault();
    });

    const clear = () => {
      field("filters").querySelectorAll("select").forEach((select) => { select.selectedIndex = 0; });
      field("search").value = "";
      state.flow = "";
      for (const button of flows ? flows.querySelectorAll("button") : []) button.setAttribute("aria-pressed", "false");
    };
    const follow = () => {
      const fragment = location.hash.slice(1);
      const hit = /^h(-.*)-[ab]-\d+$/.exec(fragment);
      const view = byLink.get(fragment) || (hit && byLink.get(`q${hit[1]}`));
      if (!view) return;
      if (!chosen.includes(view)) { clear(); choose(); }
      state.open.add(view.link);
      state.page = Math.floor(chosen.indexOf(view) / PER_PAGE);
      draw();
      const target = byId(fragment) || byId(view.link);
      const inside = target.querySelector("details");
      inside.open = true;
      target.scrollIntoView({ block: "start" });
      inside.querySelector("summary").focus({ preventScroll: true });
    };

    const filters = field("filters");
    filters.addEventListener("submit", (event) => event.preventDefault());
    filters.addEventListener("input", again);
    filters.addEventListener("reset", (event) => { event.preventDefault(); clear(); again(); });
    byId("static").remove();
    for (const element of [list, status, filters]) element.hidden = false;
    root.classList.add("js-on");
    again();
    addEventListener("hashchange", follow);
    follow();
    printed.hidden = false;
    addEventListener("beforeprint", beforePrint);
    addEventListener("afterprint", afterPrint);
    root.dataset.ready = "yes";
  };

  unpack().then(start, () => { /* keep the list that works without JavaScript */ });
})();
