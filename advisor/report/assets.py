"""Style and script of a report's page: no outside references, light and dark, from a phone's width up."""

STYLE = """
:root{color-scheme:light dark;--back:#fff;--fore:#1b1f24;--soft:#5b6470;--line:#d5d9df;--card:#f6f7f9;--mark:#d6278a}
@media(prefers-color-scheme:dark){:root{--back:#14171b;--fore:#e4e7eb;--soft:#9aa4b1;--line:#333a43;--card:#1c2127;
--mark:#ff5fb4}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--fore);font:16px/1.5 system-ui,sans-serif}
main,header{max-width:76rem;margin:0 auto;padding:0 1rem}
h1{font-size:1.5rem;margin:1.2rem 0 .2rem}
h2{font-size:1.2rem;margin:2.2rem 0 .4rem;padding-top:.6rem;border-top:1px solid var(--line);overflow-wrap:anywhere}
h3{font-size:1rem;margin:1rem 0 0}
p,li{max-width:70ch;overflow-wrap:anywhere}
.soft{color:var(--soft);font-size:.9rem;margin:.2rem 0}
nav ul{padding-left:1.2rem;margin:.5rem 0}
a{color:inherit}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,23rem),1fr));gap:1rem}
.figure{min-width:0;background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.6rem}
.wide{grid-column:1/-1}
.plot{width:100%;height:26rem}
.wide .plot{height:32rem}
.scroll{overflow-x:auto;margin:.6rem 0}
.drawing{background:#fff;border:1px solid var(--line);border-radius:.5rem;padding:.5rem;overflow-x:auto}
.drawing svg{max-width:100%;height:auto;min-width:20rem;display:block}
table{border-collapse:collapse;font-size:.88rem;width:100%}
th,td{text-align:left;padding:.25rem .6rem;border-bottom:1px solid var(--line);vertical-align:top}
th{color:var(--soft);font-weight:600;white-space:nowrap}
td:last-child:not(.number){min-width:15rem}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.warn{color:var(--mark);font-weight:600}
@media(max-width:40rem){body{font-size:15px}.plot,.wide .plot{height:24rem}.figure{padding:.3rem}}
@media print{.figure{break-inside:avoid}}
"""

SCRIPT = """
"use strict";
(function () {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  function axis(own, narrow) {
    const line = dark.matches ? "#39414b" : "#d9dde3";
    return Object.assign({gridcolor: line, linecolor: line, zerolinecolor: line, automargin: true,
      exponentformat: "SI", minexponent: 0, nticks: narrow ? 6 : 0}, own);
  }
  function layout(figure, place) {
    const narrow = place.clientWidth < 520;
    const ink = dark.matches ? "#e4e7eb" : "#1b1f24";
    const many = figure.data.length > 3;
    return Object.assign({}, figure.layout, {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: {color: ink, size: narrow ? 11 : 13}, hovermode: "closest", showlegend: true,
      hoverlabel: {bgcolor: dark.matches ? "#262c34" : "#ffffff", font: {color: ink}, align: "left"},
      margin: {l: narrow ? 40 : 56, r: 12, t: 8, b: 40},
      legend: many && !narrow ? {x: 1.02, y: 1} : {orientation: "h", x: 0, y: -0.22, yanchor: "top"},
      xaxis: axis(figure.layout.xaxis, narrow), yaxis: axis(figure.layout.yaxis, narrow)});
  }
  function draw(figure) {
    const place = document.getElementById(figure.name);
    return Plotly.react(place, figure.data, layout(figure, place),
      {responsive: true, displaylogo: false, displayModeBar: false});
  }
  function next(index) {
    if (index >= figures.length) {
      document.documentElement.dataset.drawn = String(figures.length);
      document.documentElement.dataset.scheme = dark.matches ? "dark" : "light";
      return;
    }
    draw(figures[index]);
    setTimeout(next, 0, index + 1);
  }
  dark.addEventListener("change", function () { next(0); });
  next(0);
})();
"""
