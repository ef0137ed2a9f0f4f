// The last five minutes as two charts (uPlot): requests a second by version, latency.

const POINTS = 150;
const COLOURS = 5;

export class Charts {
  constructor(rates, latency) {
    this.rates = rates;
    this.latency = latency;
    this.times = [];
    this.labels = [];
    this.series = new Map();
    this.quantiles = [[], []];
    this.drawn = null;
    const redraw = () => this.draw(true);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    new ResizeObserver(redraw).observe(rates);
  }

  // The same label has the same colour everywhere on the page.
  colour(label) {
    if (!this.labels.includes(label)) this.labels.push(label);
    return this.labels.indexOf(label) % COLOURS;
  }

  add(time, versions, minute) {
    for (const label of Object.keys(versions)) {
      this.colour(label);
      if (!this.series.has(label)) this.series.set(label, this.times.map(() => null));
    }
    this.times.push(time);
    for (const [label, values] of this.series) values.push(versions[label] ?? null);
    this.quantiles[0].push(minute.p50);
    this.quantiles[1].push(minute.p99);
    if (this.times.length > POINTS) {
      this.times.shift();
      for (const values of [...this.series.values(), ...this.quantiles]) values.shift();
    }
    for (const [label, values] of this.series) if (values.every((value) => !value)) this.series.delete(label);
    this.draw(false);
  }

  draw(anew) {
    if (!this.times.length || !this.rates.clientWidth) return;
    const names = [...this.series.keys()].join("\n");
    const data = [[this.times, ...this.series.values()], [this.times, ...this.quantiles]];
    if (this.drawn?.names === names && !anew) {
      this.drawn.plots.forEach((plot, index) => plot.setData(data[index]));
      return;
    }
    this.drawn?.plots.forEach((plot) => plot.destroy());
    const lines = [...this.series.keys()].map((label) => line(label, this.colour(label)));
    this.drawn = { names, plots: [
      new uPlot(options(this.rates, lines), data[0], this.rates),
      new uPlot(options(this.latency, [line("P50", 0), line("P99", 1)]), data[1], this.latency),
    ] };
  }
}

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const clock = (unix) => new Date(unix * 1000).toLocaleTimeString("en-GB");

function line(label, colour) {
  return { label, stroke: css(`--c${colour}`), width: 2, dash: colour % 2 ? [6, 3] : undefined, spanGaps: false };
}

function options(place, series) {
  const axis = { stroke: css("--soft"), grid: { stroke: css("--grid"), width: 1 }, ticks: { stroke: css("--grid") } };
  return {
    width: place.clientWidth, height: 190, cursor: { y: false }, legend: { live: false },
    scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
    axes: [{ ...axis, space: 80, values: (_, times) => times.map(clock) }, { ...axis, size: 46 }], series: [{}, ...series],
  };
}
