// Plotly, loaded when the first chart is drawn (4.8 MB), in the page's colours.

import { say } from "./element.js";

let loading = null;

/** Plotly itself; the same promise for everybody. */
export function plotly() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = new URL("plotly.min.js", import.meta.url);
    script.addEventListener("load", () => resolve(window.Plotly));
    script.addEventListener("error", () => {
      loading = null;
      script.remove();
      reject(new Error("the chart library did not load"));
    });
    document.head.append(script);
  });
  return loading;
}

/** A colour of page.css by its name, in the scheme that is on. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Calls back when the visitor changes from light to dark; answers with what ends that. */
export function onScheme(again) {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", again);
  return () => dark.removeEventListener("change", again);
}

/** Draws traces into `node`, or says that it cannot; `label` is for those who do not see it. */
export function paint(node, traces, options) {
  draw(node, traces, options).catch((error) => {
    node.removeAttribute("role");
    say(node, `No chart: ${error.message}.`);
  });
}

/** Draws traces into `node`; `label` says what they show to those who do not see it. */
export async function draw(node, traces, { label, simulated = false, xaxis = {}, yaxis = {}, ...layout }) {
  node.setAttribute("role", "img");
  node.setAttribute("aria-label", simulated ? `SIMULATED. ${label}` : label);
  const library = await plotly();
  if (!node.isConnected) return;
  const axis = {
    color: colour("ink"),
    gridcolor: colour("line"),
    linecolor: colour("rule"),
    zeroline: false,
    fixedrange: true, // a finger that scrolls the page must not zoom the chart
    automargin: true,
  };
  const mark = {
    text: "SIMULATED",
    showarrow: false,
    ...{ xref: "paper", yref: "paper", x: 1, y: 1, xanchor: "right", yanchor: "bottom" },
    font: { size: 11, color: colour("amber-ink") },
  };
  await library.react(
    node,
    traces,
    {
      font: { family: "system-ui, sans-serif", size: 12, color: colour("ink") },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 40, r: 8, t: 22, b: 36 },
      dragmode: false,
      hovermode: "closest",
      hoverlabel: { bgcolor: colour("raised"), bordercolor: colour("rule"), font: { color: colour("ink") } },
      showlegend: false,
      ...layout,
      annotations: [...(simulated ? [mark] : []), ...(layout.annotations ?? [])],
      xaxis: { ...axis, ...xaxis },
      yaxis: { ...axis, ...yaxis },
    },
    { displayModeBar: false, responsive: true, scrollZoom: false, doubleClick: false },
  );
}

/** Frees what a chart holds. */
export function forget(node) {
  if (window.Plotly && node.classList.contains("js-plotly-plot")) window.Plotly.purge(node);
}
