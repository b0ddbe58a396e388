// Draws the charts that the page's JSON describes. Names reach the page as text, never as markup.
'use strict';
const charts = JSON.parse(document.getElementById('charts').textContent);
const WIDTH = 360, HEIGHT = 220, LEFT = 58, RIGHT = 8, TOP = 10, BOTTOM = 34;

function add(parent, name, attributes, text) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (text !== undefined) node.textContent = text;
  return parent.appendChild(node);
}

// About five round numbers between two.
function ticks(low, high) {
  const rough = (high - low) / 4 || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(f => f * power).find(s => s >= rough * 0.999);
  const all = [];
  for (let t = Math.ceil(low / step - 1e-9) * step; t <= high + 1e-9 * step; t += step) all.push(+t.toPrecision(12));
  return all;
}

// A number as short as it can be read.
function short(x) {
  if (x >= 1e6) return x / 1e6 + 'M';
  if (x >= 1e4) return x / 1e3 + 'k';
  return String(+x.toPrecision(6));
}

function axes(svg, chart, [x0, x1], [y0, y1]) {
  const x = v => LEFT + (v - x0) / (x1 - x0 || 1) * (WIDTH - LEFT - RIGHT);
  const y = v => HEIGHT - BOTTOM - (v - y0) / (y1 - y0 || 1) * (HEIGHT - TOP - BOTTOM);
  for (const t of ticks(y0, y1)) {
    add(svg, 'line', {x1: LEFT, x2: WIDTH - RIGHT, y1: y(t), y2: y(t), class: 'axis'});
    add(svg, 'text', {x: LEFT - 5, y: y(t) + 4, 'text-anchor': 'end'}, short(t));
  }
  for (const t of ticks(x0, x1)) {
    if (chart.whole && t % 1) continue;
    add(svg, 'text', {x: x(t), y: HEIGHT - BOTTOM + 14, 'text-anchor': 'middle'}, short(t));
  }
  add(svg, 'text', {x: (LEFT + WIDTH) / 2, y: HEIGHT - 5, 'text-anchor': 'middle'}, chart.x);
  return [x, y];
}

// Of a single value, a little around it.
function range(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  return low < high ? [low, high] : [low - Math.abs(low) * .1 - 1e-9, high + Math.abs(high) * .1 + 1e-9];
}

// As many of the digits 1, 2, 5 times powers of ten as it takes to have three between two logarithms.
function logTicks(low, high) {
  const powers = [];
  for (let power = Math.floor(low); power <= high; power++) powers.push(10 ** power);
  const steps = [[1], [1, 2, 5], [1, 2, 3, 4, 5, 6, 7, 8, 9]];
  const all = steps.map(digits => powers.flatMap(power => digits.map(digit => +(digit * power).toPrecision(3)))
    .filter(t => Math.log10(t) >= low - 1e-9 && Math.log10(t) <= high + 1e-9));
  return all.find(found => found.length >= 3) || all[2];
}

// A little more on both sides, so that no mark lies on an axis.
function widened([low, high]) {
  const margin = (high - low) * .06;
  return [low - margin, high + margin];
}

// A mark; its shape tells it apart where its colour does not.
function mark(svg, kind, x, y, r) {
  const shape = kind % SHAPES.length, c = 'dot s' + kind % COLORS;
  if (!shape) return add(svg, 'circle', {cx: x.toFixed(1), cy: y.toFixed(1), r, class: c});
  const points = SHAPES[shape].map(([dx, dy]) => (x + dx * r).toFixed(1) + ',' + (y + dy * r).toFixed(1));
  return add(svg, 'polygon', {points: points.join(' '), class: c});
}
const COLORS = 8;
// Circle, square, triangle, diamond, triangle on its head.
const SHAPES = [
  null, [[-.9, -.9], [.9, -.9], [.9, .9], [-.9, .9]], [[0, -1.15], [1.1, .85], [-1.1, .85]],
  [[0, -1.3], [1.2, 0], [0, 1.3], [-1.2, 0]], [[0, 1.15], [1.1, -.85], [-1.1, -.85]],
];

const draw = {
  // Series of points, joined by lines.
  lines(svg, chart) {
    const points = chart.series.flatMap(s => s.points);
    const [x, y] = axes(svg, chart, range(points.map(p => p[0])), range(points.map(p => p[1])));
    chart.series.forEach(({name, points, color}) => {
      const path = points.map(p => x(p[0]).toFixed(1) + ',' + y(p[1]).toFixed(1)).join(' ');
      add(svg, 'polyline', {points: path, class: 'line s' + color});
      for (const p of points) {
        const dot = add(svg, 'circle', {cx: x(p[0]), cy: y(p[1]), r: 2.2, class: 'dot s' + color});
        add(dot, 'title', {}, `${name}: ${short(p[1])} at ${short(p[0])}`);
      }
    });
  },
  // What was said against what came true; the larger the dot, the more often.
  reliability(svg, chart) {
    const [x, y] = axes(svg, chart, [0, 1], [0, 1]);
    add(svg, 'line', {x1: x(0), y1: y(0), x2: x(1), y2: y(1), class: 'ideal'});
    chart.series.forEach(({name, points, color}) => {
      const most = Math.max(...points.map(p => p[2]));
      for (const p of points) {
        const r = 2 + 7 * Math.sqrt(p[2] / most);
        const dot = add(svg, 'circle', {cx: x(p[0]), cy: y(p[1]), r, class: 'dot s' + color, 'fill-opacity': .65});
        add(dot, 'title', {}, `${name}: said ${p[0].toFixed(3)}, came true ${p[1].toFixed(3)}, ${short(p[2])} times`);
      }
    });
  },
  // Dots in rows, one row a series.
  dots(svg, chart) {
    const [low, high] = range(chart.series.flatMap(s => s.values));
    const margin = (high - low) * .08 || .01;
    const x = v => LEFT + 60 + (v - low + margin) / (high - low + 2 * margin) * (WIDTH - LEFT - 60 - RIGHT);
    const row = (HEIGHT - TOP - BOTTOM) / chart.series.length;
    for (const t of ticks(low - margin, high + margin)) {
      add(svg, 'line', {x1: x(t), x2: x(t), y1: TOP, y2: HEIGHT - BOTTOM, class: 'axis'});
      add(svg, 'text', {x: x(t), y: HEIGHT - BOTTOM + 14, 'text-anchor': 'middle'}, short(t));
    }
    add(svg, 'text', {x: (LEFT + 60 + WIDTH) / 2, y: HEIGHT - 5, 'text-anchor': 'middle'}, chart.x);
    chart.series.forEach(({name, values, color}, i) => {
      const y = TOP + (i + .5) * row;
      add(svg, 'text', {x: LEFT + 52, y: y + 4, 'text-anchor': 'end'}, name);
      for (const v of values) {
        const dot = add(svg, 'circle', {cx: x(v), cy: y, r: 5, class: 'dot s' + color, 'fill-opacity': .7});
        add(dot, 'title', {}, `${name}: ${short(v)}`);
      }
    });
  },
  // Points on two logarithmic scales.
  loglog(svg, chart) {
    const points = chart.series.flatMap(s => s.points);
    const top = i => Math.max(1, ...points.map(p => Math.log10(p[i])));
    const [xs, ys] = [top(0), top(1)];
    const x = v => LEFT + 4 + Math.log10(v) / xs * (WIDTH - LEFT - 4 - RIGHT);
    const y = v => HEIGHT - BOTTOM - 4 - Math.log10(v) / ys * (HEIGHT - TOP - BOTTOM - 4);
    for (let power = 0; power <= ys; power++) {
      const t = 10 ** power;
      add(svg, 'line', {x1: LEFT, x2: WIDTH - RIGHT, y1: y(t), y2: y(t), class: 'axis'});
      add(svg, 'text', {x: LEFT - 5, y: y(t) + 4, 'text-anchor': 'end'}, short(t));
    }
    for (let power = 0; power <= xs; power++) {
      const t = 10 ** power;
      add(svg, 'text', {x: x(t), y: HEIGHT - BOTTOM + 14, 'text-anchor': 'middle'}, short(t));
    }
    add(svg, 'text', {x: (LEFT + WIDTH) / 2, y: HEIGHT - 5, 'text-anchor': 'middle'}, chart.x);
    chart.series.forEach(({name, points, color}) => {
      for (const p of points) {
        const dot = add(svg, 'circle', {cx: x(p[0]).toFixed(1), cy: y(p[1]).toFixed(1), r: 1.8, class: 'dot s' + color, 'fill-opacity': .6, 'stroke-opacity': 0});
        add(dot, 'title', {}, `${name}: ${short(p[1])} ${chart.unit} at ${short(p[0])}`);
      }
    });
  },
  // Marks of several shapes and colours, with intervals of their heights; the name of the upright axis
  // stands above it.
  marks(svg, chart) {
    const left = 56, right = WIDTH - 18, top = 26, bottom = HEIGHT - BOTTOM;
    const all = chart.series.flatMap(s => s.points), log = chart.scale === 'log';
    const at = log ? Math.log10 : v => v;
    const heights = all.flatMap(p => p.slice(1).filter(v => v !== null));
    if (chart.guide === 'zero') heights.push(0);
    const isSquare = chart.guide === 'diagonal';
    const [x0, x1] = isSquare ? [0, 1] : widened(range(all.map(p => at(p[0]))));
    const [y0, y1] = isSquare ? [0, 1] : widened(range(heights));
    const x = v => left + (at(v) - x0) / (x1 - x0) * (right - left);
    const y = v => bottom - (v - y0) / (y1 - y0) * (bottom - top);
    for (const t of ticks(y0, y1)) {
      add(svg, 'line', {x1: left, x2: right, y1: y(t), y2: y(t), class: 'axis'});
      add(svg, 'text', {x: left - 5, y: y(t) + 4, 'text-anchor': 'end'}, short(t));
    }
    for (const t of log ? logTicks(x0, x1) : ticks(x0, x1)) {
      add(svg, 'line', {x1: x(t), x2: x(t), y1: bottom, y2: bottom + 3, class: 'axis'});
      add(svg, 'text', {x: x(t), y: bottom + 14, 'text-anchor': 'middle'}, short(t));
    }
    add(svg, 'text', {x: (left + right) / 2, y: HEIGHT - 5, 'text-anchor': 'middle'}, chart.x);
    add(svg, 'text', {x: 4, y: 12}, chart.y);
    if (chart.guide === 'zero') add(svg, 'line', {x1: left, x2: right, y1: y(0), y2: y(0), class: 'ideal'});
    if (isSquare) add(svg, 'line', {x1: x(0), y1: y(0), x2: x(1), y2: y(1), class: 'ideal'});
    // Marks of several series at the same place stand side by side.
    const same = {};
    if (!chart.joined && !log) for (const p of all) (same[p[0]] ||= []).push(p);
    chart.series.forEach(({name, points, color}, i) => {
      const ofSeries = log && chart.joined ? (i - (chart.series.length - 1) / 2) * 3 : 0;
      const place = p => {
        const beside = same[p[0]] || [p];
        return x(p[0]) + ofSeries + (beside.indexOf(p) - (beside.length - 1) / 2) * 9;
      };
      const isCurve = chart.joined && chart.guide === 'none';
      const line = 'line thin s' + color % COLORS, r = isCurve ? 1.6 : log && !chart.joined ? 2.6 : 3.6;
      const path = points.map(p => place(p).toFixed(1) + ',' + y(p[1]).toFixed(1)).join(' ');
      if (chart.joined) add(svg, 'polyline', {points: path, class: line});
      for (const p of points) {
        const [px, py, low, high] = p, cx = place(p);
        if (low !== null) add(svg, 'line', {x1: cx, x2: cx, y1: y(low), y2: y(high), class: line});
        const dot = mark(svg, color, cx, y(py), r);
        const ends = low === null ? '' : ` (${short(low)} to ${short(high)})`;
        add(dot, 'title', {}, `${name}: ${short(py)}${ends} at ${short(px)}`);
      }
    });
  },
  // Means with two intervals each, a row below the other, under their names.
  intervals(svg, chart) {
    const width = 540, row = 34, left = 10, bottom = row * chart.rows.length + 6;
    svg.setAttribute('viewBox', `0 0 ${width} ${bottom + 36}`);
    const values = chart.rows.flatMap(r => [0, r.mean, ...r.inner, ...(r.outer || [])]);
    const [x0, x1] = widened(range(values));
    const x = v => left + (v - x0) / (x1 - x0) * (width - 2 * left);
    const places = ticks(x0, x1);
    for (const t of places) add(svg, 'text', {x: x(t), y: bottom + 14, 'text-anchor': 'middle'}, short(t));
    add(svg, 'text', {x: width / 2, y: bottom + 30, 'text-anchor': 'middle'}, `${chart.x}, b − a`);
    chart.rows.forEach(({name, mean, inner, outer}, i) => {
      const y = i * row + 26;
      // Lines between the names, not through them.
      for (const t of places) add(svg, 'line', {x1: x(t), x2: x(t), y1: y - 5, y2: y + 10, class: t ? 'axis' : 'ideal'});
      // As wide as the picture at most.
      const label = add(svg, 'text', {x: left, y: y - 9}, name.length > 84 ? name.slice(0, 83) + '…' : name);
      add(label, 'title', {}, name);
      if (outer) add(svg, 'line', {x1: x(outer[0]), x2: x(outer[1]), y1: y, y2: y, class: 'line s0 thin'});
      add(svg, 'line', {x1: x(inner[0]), x2: x(inner[1]), y1: y, y2: y, class: 'line s0 thick'});
      const dot = mark(svg, 0, x(mean), y, 4);
      add(dot, 'title', {}, `${name}: ${short(mean)} (${short(inner[0])} to ${short(inner[1])})`);
    });
  },
  // A 0/1 matrix, the darker the fuller; drawn as an image, since it has thousands of cells.
  matrix(svg, chart) {
    const canvas = document.createElement('canvas');
    const [width, height] = [canvas.width, canvas.height] = [chart.rows[0].length, chart.rows.length];
    const context = canvas.getContext('2d');
    context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue('--s0');
    chart.rows.forEach((row, y) => {
      for (let x = 0; x < width; x++) {
        const shade = parseInt(row[x], 16);
        if (!shade) continue;
        context.globalAlpha = (shade + 1) / 16;
        context.fillRect(x, y, 1, 1);
      }
    });
    const drawn = Math.max(40, Math.min(WIDTH / 2, 2 * height));
    svg.setAttribute('viewBox', `0 0 ${WIDTH} ${drawn}`);
    add(svg, 'image', {href: canvas.toDataURL(), width: WIDTH, height: drawn, preserveAspectRatio: 'none', style: 'image-rendering: pixelated'});
    add(svg, 'rect', {width: WIDTH, height: drawn, class: 'axis'});
  },
  // Bars on a logarithmic scale, one below the other.
  bars(svg, chart) {
    const high = Math.log10(Math.max(...chart.bars.map(b => b.value)) || 1) || 1;
    const row = 40;
    svg.setAttribute('viewBox', `0 0 ${WIDTH} ${row * chart.bars.length}`);
    chart.bars.forEach(({name, value, color}, i) => {
      const width = Math.max(4, Math.log10(Math.max(value, 1)) / high * (WIDTH - 70));
      add(svg, 'text', {x: 0, y: i * row + 14}, name);
      add(svg, 'rect', {x: 0, y: i * row + 19, width, height: 13, rx: 3, class: 'bar s' + color});
      add(svg, 'text', {x: width + 6, y: i * row + 30}, value.toLocaleString('en'));
    });
  },
};

for (const chart of charts) {
  const figure = document.getElementById(chart.id);
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  svg.setAttribute('viewBox', `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute('role', 'img');
  svg.setAttribute('aria-label', figure.textContent.trim());
  figure.prepend(svg);
  draw[chart.kind](svg, chart);
}
