// The operator's page: asks the admin routes every two seconds and shows what they say.
// The token stays in this tab (sessionStorage) and travels as a header, so that no other site can use it.
import { ask, Refused } from "./api.js";
import { Charts } from "./charts.js";
import { element, fill, number, seconds, share, since } from "./shown.js";

const EVERY_MS = 2000;
const SAID_MS = 8000;
const SLOW_EVERY = 5; // rounds between two looks at checkpoints and journal
const byId = (id) => document.getElementById(id);
const charts = new Charts(byId("chart-qps"), byId("chart-latency"));
let token = sessionStorage.getItem("token");
let before = null;
let round = 0;
let timer = 0;
let model = "";
let generation = "";

byId("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value.trim();
  begin();
});
byId("sign-out").addEventListener("click", () => leave(""));
byId("model").addEventListener("change", (event) => { model = event.target.value; round = 0; look(); });
document.addEventListener("visibilitychange", () => { if (!document.hidden && token) look(); });

for (const [act, title, text] of [
  ["promote", "Promote", "All members take the new version without waiting for more evidence."],
  ["pause", "Pause", "No further member is sent on its way. Those that changed stay as they are."],
  ["resume", "Resume", "The rollout goes on where it was paused."],
  ["rollback", "Roll back", "Every member goes back to the version before, and this one is put into quarantine."],
]) byId(act).addEventListener("click", () => decide(act, title, text));

if (token) begin();

function begin() {
  byId("refused").textContent = "";
  look();
}

function leave(why) {
  token = null;
  sessionStorage.removeItem("token");
  clearTimeout(timer);
  byId("room").hidden = true;
  byId("door").hidden = false;
  byId("sign-out").hidden = true;
  byId("refused").textContent = why;
  live("not signed in", "");
}

function live(text, kind) {
  byId("live").textContent = text;
  byId("live").className = `badge ${kind}`;
}

async function look() {
  clearTimeout(timer);
  if (!token) return;
  try {
    const figures = await ask(token, "figures");
    sessionStorage.setItem("token", token);
    byId("door").hidden = true;
    byId("room").hidden = false;
    byId("sign-out").hidden = false;
    showModels(figures.status.models);
    showFigures(figures);
    await lookAtRollouts(figures);
    live("live", "good");
    round += 1;
  } catch (error) {
    if (error instanceof Refused) return leave(error.message);
    live(`no answer: ${error.message}`, "bad");
  }
  if (!document.hidden) timer = setTimeout(look, EVERY_MS);
}

async function lookAtRollouts(figures) {
  const query = model ? `model=${encodeURIComponent(model)}` : "";
  const rollouts = await ask(token, `rollouts?past=0&${query}`, { missing: null });
  showRollout(rollouts, figures);
  if (rollouts && (round % SLOW_EVERY === 0 || moved(rollouts))) {
    showCheckpoints(await ask(token, `checkpoints?limit=20&${query}`));
    showJournal(await ask(token, `journal?limit=30&${query}`));
  }
}

// A rollout that has changed is worth a look at what is otherwise looked at now and then.
function moved(rollouts) {
  const now = `${rollouts.rollout?.id} ${rollouts.rollout?.generation}`;
  const changed = now !== generation;
  generation = now;
  return changed;
}

function showModels(models) {
  const names = models.map((one) => one.name);
  if (!names.includes(model)) model = names[0] ?? "";
  byId("model-choice").hidden = names.length < 2;
  const select = byId("model");
  if ([...select.options].map((option) => option.value).join("\n") !== names.join("\n")) {
    select.replaceChildren(...names.map((name) => new Option(name, name, false, name === model)));
  }
}

// Counters only grow: what happened in between is a difference.
function rates(now) {
  if (!before || now.at <= before.at) return null;
  const passed = now.at - before.at;
  const sum = (counts) => Object.values(counts).reduce((a, b) => a + b, 0);
  const grown = (name, keys) => (keys ?? Object.keys(now.totals[name]))
    .reduce((total, key) => total + (now.totals[name][key] ?? 0) - (before.totals[name][key] ?? 0), 0) / passed;
  const versions = {};
  for (const [label, counts] of Object.entries(now.versions[model] ?? {})) {
    versions[label] = Math.max(0, counts.requests - (before.versions[model]?.[label]?.requests ?? 0)) / passed;
  }
  return { grown, sum, versions, passed };
}

function showFigures(now) {
  const { status, minute } = now;
  byId("qps").textContent = number(minute.qps);
  byId("p50").textContent = seconds(minute.p50);
  byId("p99").textContent = seconds(minute.p99);
  byId("queued").textContent = number(status.queued);
  byId("in-flight").textContent = number(status.in_flight);
  const rate = rates(now);
  if (rate) {
    const ended = rate.grown("requests");
    const failed = rate.grown("requests", ["backend_error", "timeout", "truncated", "over_capacity"]);
    const looked = rate.grown("cache", ["hit", "miss", "join"]);
    byId("errors").textContent = ended ? share(failed / ended) : "0 %";
    byId("errors").className = failed > 0 ? "bad" : "";
    byId("hits").textContent = looked ? share(rate.grown("cache", ["hit", "join"]) / looked) : "–";
    charts.add(Date.now() / 1000, rate.versions, minute);
    showFlow(now, rate, ended, failed);
  }
  showEngines(status.models.find((one) => one.name === model));
  before = now;
}

function showFlow(now, rate, ended, failed) {
  const per = (value) => `${number(value)}/s`;
  const batches = rate.grown("batches", ["count"]);
  const prompts = rate.grown("batches", ["prompts"]);
  const steps = [
    ["Validate", `${per(ended)} ended`, `${per(rate.grown("requests", ["client_error", "unauthorized"]))} refused as wrong`],
    ["Admit", `${number(now.status.queued)} queued`, `${per(rate.grown("refused"))} refused by limits`],
    ["Cache, join", `${per(rate.grown("cache", ["hit"]))} hits`, `${per(rate.grown("cache", ["join"]))} joined`],
    ["Batch", batches ? `${number(prompts / batches)} prompts a call` : "nothing batched", `${per(batches)} calls`],
    ["Lease", `${number(now.status.in_flight)} in flight`, `${memberCount(now)} engines ready`],
    ["Call", `${per(rate.grown("attempts"))} calls`, `${per(rate.grown("retries"))} tried again`],
    ["Answer", `${per(ended - failed)} answered`, `${per(failed)} failed`],
  ];
  byId("flow").replaceChildren(...steps.map(([name, first, second]) =>
    element("li", {}, element("b", {}, name), element("span", {}, first), element("span", {}, second))));
}

function memberCount(now) {
  const members = now.status.models.flatMap((one) => one.members);
  return `${members.filter((one) => one.state === "ready").length} of ${members.length}`;
}

function showEngines(found) {
  const state = { ready: "good", ejected: "bad", uncertain: "bad", draining: "warn", suspect: "warn", starting: "warn" };
  fill(byId("engines"), ["engine", "state", "version", "in flight", "tokens", "answered", "failed", "latency", "why"],
    (found?.members ?? []).map((one) => [
      one.name, { text: one.state, kind: state[one.state] ?? "" }, one.version || "–", one.in_flight, one.tokens,
      one.requests, one.failures, seconds(one.latency_s), { text: one.reason, kind: "wide" },
    ]));
}

const ENDS = { promoted: "good", rolled_back: "bad", refused: "bad", superseded: "warn" };

function showRollout(shown, figures) {
  const rollout = shown?.rollout;
  const active = rollout && !(rollout.stage in ENDS);
  byId("promote").disabled = !active;
  byId("pause").disabled = !active || rollout.paused;
  byId("resume").disabled = !active || !rollout.paused;
  byId("rollback").disabled = !rollout || rollout.stage === "refused" || rollout.stage === "rolled_back";
  byId("bar").hidden = !shown;
  if (!shown) {
    byId("rollout-line").textContent = "Weights are not changed here: no checkpoint store is configured.";
    byId("rollout-next").textContent = "";
    return;
  }
  const state = rollout
    ? `${rollout.label} from ${rollout.from_label}: ${rollout.stage.replace("_", " ")}` +
      `${rollout.paused ? ", paused" : ""} (${rollout.mode}, for ${since(rollout.since)})`
    : "Nothing was rolled out yet.";
  byId("rollout-line").textContent = `Serving ${shown.serving}. ${state}`;
  byId("rollout-reason").textContent = rollout?.reason ? `Why: ${rollout.reason}` : "";
  byId("rollout-next").textContent = shown.next ? `Next: ${shown.next}` : "";
  showStages(rollout);
  showBar(figures.status.models.find((one) => one.name === model)?.members ?? []);
  showEvidence(shown.evidence ?? {});
  fill(byId("parity"), ["engine", "place", "way", "fetched", "k3", "mean |Δlogp|", "out for", "reason"],
    active || shown.members.some((one) => one.reason) ? shown.members.map((one) => [
      one.name, one.phase || PLACES[one.place] || one.place, one.way.replace("_", " "), one.prepared, precise(one.parity.numbers?.k3),
      precise(one.parity.numbers?.mean), one.out_of_rotation_s ? seconds(one.out_of_rotation_s) : "",
      { text: one.reason, kind: "wide" },
    ]) : []);
}

const PLACES = {
  at: "has it", held: "has it, held", busy: "on its way", behind: "to come", failed: "failed", away: "does not answer",
  gone: "not counted on", fixed: "cannot change",
};

function showStages(rollout) {
  const way = ["verifying", "preparing", ...(rollout?.mode === "canary" ? ["canary"] : []), "rolling", "promoted"];
  const at = { promoting: "rolling", rolling_back: "", rolled_back: "", refused: "", superseded: "" }[rollout?.stage] ?? rollout?.stage;
  const steps = !rollout ? [] : at ? way : [rollout.stage];
  byId("stages").replaceChildren(...steps.map((stage, index) => {
    const reached = at ? way.indexOf(at) : 0;
    const kind = index < reached ? "done" : index > reached ? "" : `now ${ENDS[stage] ?? ""}`;
    return element("li", { class: kind.trim(), ...(index === reached ? { "aria-current": "step" } : {}) }, stage.replace("_", " "));
  }));
}

const precise = (value) => (typeof value === "number" ? value.toPrecision(3) : "");

function showBar(members) {
  const counts = new Map();
  for (const one of members) counts.set(one.version || "unknown", (counts.get(one.version || "unknown") ?? 0) + 1);
  const labels = [...counts.keys()].sort();
  byId("bar").replaceChildren(...labels.map((label) => {
    const part = element("span", {}, `${label} × ${counts.get(label)}`);
    part.style.flexGrow = counts.get(label);
    part.style.background = `var(--c${charts.colour(label)})`;
    return part;
  }));
}

const EVIDENCE = { latency_p99_s: "P99 latency, s", ttft_p99_s: "P99 to the first byte, s", tokens: "tokens an answer" };

function showEvidence(evidence) {
  const sides = ["stable", "candidate"].filter((side) => evidence[side] && Object.keys(evidence[side]).length);
  const names = [...new Set(sides.flatMap((side) => Object.keys(evidence[side])))];
  fill(byId("evidence"), ["evidence", ...sides],
    names.map((name) => [EVIDENCE[name] ?? name.replaceAll("_", " "), ...sides.map((side) => figure(evidence[side][name]))]));
}

function figure(value) {
  return typeof value === "number" ? (Number.isInteger(value) ? number(value) : precise(value)) : String(value ?? "–");
}

function showCheckpoints({ checkpoints }) {
  fill(byId("checkpoints"), ["version", "from", "run, step", "kind", "trained to", "stands as", "verdict"],
    [...checkpoints].reverse().map((one) => [
      `v${one.version}-${one.digest.slice(0, 8)}`, one.parent ? `v${one.parent}` : "base", `${one.run}, ${one.step}`, one.kind,
      { text: trained(one.metrics), kind: "wide" },
      { text: one.aliases.join(", ").replaceAll("_", " "), kind: "good" },
      verdict(one),
    ]));
}

// What people ask for first; trainers log a dozen figures more.
const TELLING = ["reward", "eval_loss", "loss", "kl", "mean_token_accuracy"];
const MOST_METRICS = 4;

function trained(metrics) {
  const names = [...TELLING.filter((name) => name in metrics), ...Object.keys(metrics).filter((name) => !TELLING.includes(name))];
  const told = names.slice(0, MOST_METRICS).map((name) => `${name.replaceAll("_", " ")} ${figure(metrics[name])}`);
  return [...told, ...(names.length > MOST_METRICS ? [`${names.length - MOST_METRICS} more`] : [])].join(", ");
}

function verdict(one) {
  const last = one.verdicts[0];
  if (one.quarantined) return { text: `quarantined: ${one.quarantined}`, kind: "bad wide" };
  if (!last) return one.probe ? "not tried yet" : "not tried yet, without a probe";
  return { text: `${last.stage.replace("_", " ")}: ${last.reason}`, kind: `${ENDS[last.stage] ?? ""} wide` };
}

function showJournal({ journal }) {
  fill(byId("journal"), ["when", "what", "version", "by", "details"],
    [...journal].reverse().map((one) => [
      new Date(one.at).toLocaleTimeString([], { hour12: false }), one.event, one.version ? `v${one.version}` : "", one.by,
      { text: details(one.detail), kind: "wide" },
    ]));
}

function details(detail) {
  const told = Object.entries(detail)
    .filter(([name, value]) => !["rollout", "reason"].includes(name) && value !== null && typeof value !== "object")
    .map(([name, value]) => `${name} ${name === "digest" ? value.slice(0, 8) : figure(value)}`);
  return [detail.reason, ...told].filter(Boolean).join("; ").slice(0, 300);
}

async function decide(act, title, text) {
  byId("ask-title").textContent = `${title}?`;
  byId("ask-text").textContent = text;
  byId("ask-yes").textContent = title;
  const dialog = byId("ask");
  dialog.returnValue = "no";
  dialog.showModal();
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  if (dialog.returnValue !== "yes") return;
  const query = model ? `?model=${encodeURIComponent(model)}` : "";
  const said = byId("acted");
  said.textContent = "";
  try {
    const done = await ask(token, `rollouts/current/${act}${query}`, { post: {} });
    said.textContent = `${title}: it is written down for ${done.label}, and will be done by whoever leads.`;
    said.className = "good";
    setTimeout(() => { said.textContent = ""; }, SAID_MS);
  } catch (error) {
    said.textContent = `${title}: ${error.message}`;
    said.className = "bad";
  }
  round = 0;
  look();
}
