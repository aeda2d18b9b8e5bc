"use strict";
// The votes are a word of 1 (upper row), 2 (lower row) and 0 (equally good), a letter per query in the page's order.
{
  const element = (name) => document.getElementById(name);
  const queries = [...document.querySelectorAll("article")];
  const entries = queries.map((query) => JSON.parse(query.dataset.entry));
  const storedAs = `blind-${element("judging").dataset.digest}`;
  const KEYS = { 1: "1", ArrowUp: "1", 2: "2", ArrowDown: "2", 0: "0", " ": "0" };
  const UNDO = ["Backspace", "z", "Z"];
  let isAsked = false;
  let votes = "";

  // Some browsers throw here for a file: then votes last as long as the page.
  const restore = () => {
    try {
      const stored = localStorage.getItem(storedAs) ?? "";
      return /^[012]*$/.test(stored) && stored.length <= entries.length ? stored : "";
    } catch {
      return "";
    }
  };
  const store = () => {
    try {
      localStorage.setItem(storedAs, votes);
    } catch {
      // See above.
    }
  };

  // As is_model_first in blind.py.
  const isModelFirst = (mark) => mark.toString(2).replaceAll("0", "").length % 2 === 1;

  const judged = () =>
    [...votes].map((vote, i) => {
      const { task, query, mark } = entries[i];
      const sides = isModelFirst(mark) ? ["model", "encoder"] : ["encoder", "model"];
      const winner = vote === "0" ? "tie" : sides[vote - 1];
      return { task, query, shown_first: sides[0], vote: ["equal", "first", "second"][vote], winner };
    });

  const csv = (rows) => {
    const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    const lines = rows.map((row) => Object.values(row).map(quoted).join(","));
    return ["task,query,shown_first,vote,winner", ...lines].join("\n") + "\n";
  };

  // These two as in votes.py.
  const interval = (wins, decided) => {
    const z = 1.959963984540054;
    const spread = decided ? (wins * (decided - wins)) / decided : 0;
    const half = z * Math.sqrt(spread + (z * z) / 4);
    const ends = [wins + (z * z) / 2 - half, wins + (z * z) / 2 + half];
    return ends.map((end) => Math.min(1, Math.max(0, end / (decided + z * z))));
  };
  const pValue = (wins, decided) => {
    let ways = 1n;
    let tail = 0n;
    for (let i = 0; i <= Math.min(wins, decided - wins); i++) {
      tail += ways;
      ways = (ways * BigInt(decided - i)) / BigInt(i + 1);
    }
    // 2 tail / 2^decided to 53 binary places, which large numbers reach in integers only.
    return Math.min(1, Number((tail << 54n) >> BigInt(decided)) / 2 ** 53);
  };

  const percent = (share) => (Number.isNaN(share) ? "–" : `${(Math.round(1000 * share) / 10).toFixed(1)} %`);
  const probability = (p) => (p < 0.0001 ? "< 0.0001" : `= ${(Math.round(10000 * p) / 10000).toFixed(4)}`);
  const fill = (name, value, text) => {
    element(name).value = String(value);
    element(name).textContent = text;
  };

  const drawResult = () => {
    const rows = judged();
    const count = (winner) => rows.filter((row) => row.winner === winner).length;
    const [model, encoder, ties] = ["model", "encoder", "tie"].map(count);
    const decided = model + encoder;
    const [low, high] = interval(model, decided);
    const p = pValue(model, decided);
    for (const [name, value] of Object.entries({ judgements: rows.length, model, encoder, ties, decided })) {
      fill(name, value, String(value));
    }
    for (const [name, value] of Object.entries({ rate: model / decided, low, high })) {
      fill(name, value, percent(value));
    }
    fill("p", p, probability(p));
    for (const [name, value] of Object.entries({ model, ties, encoder })) {
      document.querySelector(`.share .of-${name}`).style.flexGrow = value;
    }
    const trend = p >= 0.05 ? "flat" : model > encoder ? "up" : "down";
    element("verdict").className = `verdict ${trend}`;
    element("verdict").textContent = {
      up: "✓ The model is preferred",
      flat: "Neither is clearly preferred",
      down: "▼ The encoder is preferred",
    }[trend];
    element("early").hidden = rows.length === entries.length;
    element("csv").textContent = csv(rows);
    element("download").href = `data:text/csv;charset=utf-8,${encodeURIComponent(csv(rows))}`;
  };

  const isShown = () => isAsked || votes.length === entries.length;

  const draw = () => {
    const wasShown = !element("result").hidden;
    element("judging").hidden = isShown();
    element("result").hidden = !isShown();
    queries.forEach((query, i) => (query.hidden = i !== votes.length));
    element("progress").value = votes.length;
    element("place").textContent = `Query ${Math.min(votes.length + 1, entries.length)} of ${entries.length}`;
    element("undo").disabled = element("reset").disabled = element("toggle").disabled = !votes;
    element("toggle").hidden = votes.length === entries.length;
    element("toggle").textContent = isAsked ? "Go on judging" : "Show the result";
    if (isShown()) {
      drawResult();
      if (!wasShown) {
        element("result").focus();
      }
    }
  };

  const change = (newVotes) => {
    votes = newVotes;
    isAsked = false;
    store();
    draw();
  };
  const undo = () => change(votes.slice(0, -1));

  for (const button of document.querySelectorAll("[data-vote]")) {
    button.addEventListener("click", () => change(votes + button.dataset.vote));
  }
  element("undo").addEventListener("click", undo);
  element("toggle").addEventListener("click", () => {
    isAsked = !isAsked;
    draw();
  });
  element("reset").addEventListener("click", () => {
    if (confirm("Discard all votes on this page?")) {
      change("");
    }
  });
  document.addEventListener("click", (event) => {
    // A button clicked with the mouse must not take the next space; one reached by tab should.
    if (event.detail) {
      document.activeElement?.blur();
    }
  });
  document.addEventListener("keydown", (event) => {
    const isPress = event.key === " " && event.target.closest?.("button, a, summary");
    const isVote = event.key in KEYS && !isShown();
    if (event.ctrlKey || event.metaKey || event.altKey || isPress || !(isVote || UNDO.includes(event.key))) {
      return;
    }
    event.preventDefault();
    // A key that is held down is one vote.
    if (!event.repeat) {
      isVote ? change(votes + KEYS[event.key]) : undo();
    }
  });

  votes = restore();
  draw();
}
