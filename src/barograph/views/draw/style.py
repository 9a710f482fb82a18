"""The look of a page that is one file, such as a report: light and dark, a phone's width, paper.

In:   nothing.
Out:  its style sheet.
"""

from __future__ import annotations

from barograph.views.draw.palette import DARK, DARK_LINES, LIGHT, LINES, NOT_FINITE, SIZES, variables

_LINES = "".join(
    f"svg .line.c{at}{{stroke:var(--c{at})}}svg .dot.c{at},svg .band.c{at}{{fill:var(--c{at})}}"
    f".key.c{at}{{background:var(--c{at})}}"
    for at in range(8)
)

STYLE = f"""
:root{{color-scheme:light dark;{variables(LIGHT | SIZES, LINES)}}}
@media screen and (prefers-color-scheme:dark){{:root{{{variables(DARK, DARK_LINES)}}}}}
*{{box-sizing:border-box}}
html{{scroll-padding-top:5rem;-webkit-text-size-adjust:100%}}
body{{font:var(--lead)/1.55 var(--sans);color:var(--ink);background:var(--paper);
margin:0}}
main,header.top{{max-width:64rem;margin:0 auto;padding:0 1.25rem}}
header.top{{padding-top:2rem}}
h1{{font-size:var(--figure);line-height:1.25;letter-spacing:-.015em;margin:0;overflow-wrap:anywhere}}
h2{{font-size:var(--title);letter-spacing:-.015em;line-height:1.3;margin:2.6rem 0 .7rem}}
h3{{font-size:var(--lead);margin:1.4rem 0 .5rem}}
p{{margin:.45rem 0;max-width:46rem;overflow-wrap:anywhere}}
a{{color:var(--accent)}}
.subtitle,.dim{{color:var(--ink-3)}}.good{{color:var(--good)}}.bad{{color:var(--bad)}}.warn{{color:var(--warn)}}
p.bad::before{{content:"✖ "}}p.warn::before{{content:"▲ "}}
data{{font-variant-numeric:tabular-nums}}
p data{{font-weight:600}}p.dim data{{font-weight:inherit}}
nav{{position:sticky;top:0;z-index:5;background:var(--paper);border-bottom:1px solid var(--rule);margin-top:1rem}}
nav ul{{list-style:none;display:flex;flex-wrap:wrap;gap:.1rem 1.1rem;overflow-x:auto;max-width:64rem;
margin:0 auto;padding:.5rem 1.25rem;
scrollbar-width:thin;white-space:nowrap;font-size:var(--text)}}
nav a{{text-decoration:none;color:var(--ink-3)}}nav a:hover,nav a:focus{{color:var(--ink);text-decoration:underline}}
.tiles{{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:.6rem;margin:.8rem 0 1.2rem}}
.tiles>div{{padding:.3rem 0}}
.tiles dt{{color:var(--ink-3);font-size:var(--small)}}
.tiles dd{{margin:0;font-size:var(--figure);font-weight:600;line-height:1.25;letter-spacing:-.02em}}
.tiles dd+dd{{font-size:var(--small);font-weight:400;letter-spacing:0;color:var(--ink-3);overflow-wrap:anywhere}}
dl.facts{{display:grid;grid-template-columns:minmax(8rem,14rem) 1fr;gap:.25rem 1rem;margin:.6rem 0}}
dl.facts dt{{color:var(--ink-3)}}dl.facts dd{{margin:0;overflow-wrap:anywhere}}
.scroll{{overflow-x:auto;margin:.7rem 0;max-width:100%}}
.tall{{max-height:24rem;overflow-y:auto}}
table{{border-collapse:collapse;font-size:var(--text);min-width:min(100%,24rem)}}
th,td{{padding:.28rem .9rem .28rem 0;text-align:left;border-bottom:1px solid var(--rule);vertical-align:top;
overflow-wrap:break-word}}td:last-child{{overflow-wrap:anywhere}}
thead th{{color:var(--ink-3);font-weight:500;position:sticky;top:0;background:var(--paper)}}
td.number,th.number{{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}}
td:last-child,th:last-child{{padding-right:0}}
pre{{background:var(--sunk);border-radius:.5rem;padding:.7rem .9rem;overflow-x:auto;font-size:var(--text);
line-height:1.45;margin:.3rem 0;max-height:26rem;overflow-y:auto;white-space:pre-wrap;overflow-wrap:anywhere}}
pre .prompt{{color:var(--ink-3)}}
.label{{color:var(--ink-3);font-size:var(--text);margin:.8rem 0 0}}
figure{{margin:1.4rem 0;min-width:0;break-inside:avoid}}
figcaption{{font-weight:600;display:flex;flex-wrap:wrap;gap:.2rem .8rem;align-items:baseline}}
figcaption .unit{{color:var(--ink-3);font-weight:400;font-size:var(--text)}}
figure svg{{display:block;width:100%;height:auto}}
svg text{{font:var(--tiny) var(--sans);fill:var(--ink-3)}}
svg .grid{{stroke:var(--rule);stroke-width:.7;fill:none}}svg .zero{{stroke:var(--ink-3);stroke-width:1}}
svg .line{{fill:none;stroke-width:1.5;stroke-linejoin:round}}svg .faint{{opacity:.35;stroke-width:1}}
svg .dotted{{stroke-width:.8;opacity:.8}}svg .band{{opacity:.18;stroke:none}}
svg .odd{{stroke:var(--bad);stroke-width:1.4;fill:none}}svg rect.odd{{fill:{NOT_FINITE};stroke:none}}
svg .empty{{fill:var(--sunk)}}
svg .flag path{{stroke:var(--info);stroke-dasharray:4 3}}svg .flag circle{{fill:var(--info)}}
svg .flag.critical path{{stroke:var(--bad)}}svg .flag.critical circle{{fill:var(--bad)}}
svg .flag.warning path{{stroke:var(--warn)}}svg .flag.warning circle{{fill:var(--warn)}}
svg .flag text{{fill:var(--paper);font-weight:700;font-size:var(--tiny)}}
{_LINES}
.keys{{display:flex;flex-wrap:wrap;gap:.15rem .9rem;list-style:none;margin:.25rem 0;padding:0;font-size:var(--text)}}
.key{{display:inline-block;width:.95rem;height:.2rem;border-radius:1px;vertical-align:middle;margin-right:.4rem}}
.key.faint{{opacity:.4}}
.keys button{{font:inherit;color:inherit;background:none;border:0;padding:.1rem .2rem;margin:0;cursor:pointer;
text-align:left;border-radius:.25rem}}
.keys button[aria-pressed=false]{{opacity:.4;text-decoration:line-through}}
.keys output{{font-variant-numeric:tabular-nums;font-weight:600;margin-left:.35rem}}
.tools{{display:flex;flex-wrap:wrap;gap:.3rem;align-items:center;font-size:var(--text);
color:var(--ink-3);margin-top:.3rem}}
.tools button{{font:inherit;color:var(--ink);background:var(--sunk);border:1px solid var(--rule);border-radius:.35rem;
padding:.15rem .55rem;min-height:1.9rem;min-width:2rem;cursor:pointer}}
.tools button[aria-pressed=true]{{background:var(--ink);color:var(--paper)}}
button:focus-visible,a:focus-visible,[tabindex]:focus-visible{{outline:2px solid var(--accent);outline-offset:1px}}
.tools .seen{{margin-left:.4rem}}
.live{{position:relative}}
.tip{{font-size:var(--text);color:var(--ink-3);min-height:1.3em}}
.finding{{border-left:4px solid var(--info);padding:.1rem 0 .1rem .9rem;margin:1.1rem 0;break-inside:avoid}}
.finding.critical{{border-color:var(--bad)}}.finding.warning{{border-color:var(--warn)}}
.finding h3{{margin:0 0 .2rem;font-weight:600}}
.finding .severity{{text-transform:uppercase;font-size:var(--tiny);letter-spacing:.05em;color:var(--info);
margin-right:.5rem}}
.finding.critical .severity{{color:var(--bad)}}.finding.warning .severity{{color:var(--warn)}}
.finding ul{{margin:.2rem 0 .4rem;padding-left:1.2rem}}.finding li{{margin:.1rem 0}}
.finding:target{{background:var(--sunk)}}
.pair{{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));gap:.4rem 2rem}}
.pair>*{{min-width:0}}figure.small{{max-width:38rem}}.pair figure{{margin:.7rem 0}}
.pictures{{grid-template-columns:repeat(auto-fill,minmax(min(100%,15rem),1fr))}}
figure.image img{{display:block;max-width:100%;height:auto;max-height:26rem;object-fit:contain;
min-width:min(100%,9rem);border-radius:.25rem}}
figure.image figcaption{{font-weight:400;font-size:var(--text);margin-top:.3rem}}
code{{font-size:.92em;background:var(--sunk);border-radius:.25rem;padding:.05em .3em}}
footer{{color:var(--ink-3);font-size:var(--text);max-width:64rem;margin:3rem auto 2rem;padding:0 1.25rem}}
.skip{{position:absolute;left:-99rem}}.skip:focus{{left:1rem;top:.4rem;background:var(--paper);z-index:9;padding:.3rem}}
.uplot,.uplot *{{box-sizing:border-box}}.uplot{{width:min-content}}
.u-wrap{{position:relative;user-select:none}}.u-over,.u-under{{position:absolute}}.u-under{{overflow:hidden}}
.uplot canvas{{display:block;position:relative;width:100%;height:100%}}.u-axis{{position:absolute}}
.u-select{{background:color-mix(in srgb,var(--accent) 18%,transparent);position:absolute;pointer-events:none}}
.u-cursor-x,.u-cursor-y{{position:absolute;left:0;top:0;pointer-events:none;will-change:transform}}
.u-hz .u-cursor-x{{height:100%;border-right:1px dashed var(--ink-3)}}.u-hz .u-cursor-y{{width:100%;
border-bottom:1px dashed var(--ink-3)}}
.u-cursor-pt{{position:absolute;top:0;left:0;border-radius:50%;border:0 solid;pointer-events:none;
will-change:transform;background-clip:padding-box!important}}
.u-off{{display:none}}
.u-over{{touch-action:pan-y}}
.flagged{{position:absolute;top:0;bottom:0;width:0;border-left:1px dashed var(--info);pointer-events:none}}
.flagged a{{position:absolute;top:-17px;left:-9px;width:17px;height:17px;border-radius:50%;background:var(--info);
color:var(--paper);font-size:var(--tiny);font-weight:700;line-height:17px;text-align:center;text-decoration:none;
pointer-events:auto}}
.flagged.critical{{border-color:var(--bad)}}.flagged.critical a{{background:var(--bad)}}
.flagged.warning{{border-color:var(--warn)}}.flagged.warning a{{background:var(--warn)}}
@media screen{{.drawn>.still{{display:none}}}}
@media(max-width:40rem){{
main,header.top,nav ul,footer{{padding-left:.85rem;padding-right:.85rem}}
dl.facts{{grid-template-columns:1fr;gap:0}}dl.facts dd{{margin-bottom:.5rem}}
.tiles{{grid-template-columns:1fr 1fr}}nav ul{{flex-wrap:nowrap}}
.still,.map{{overflow-x:auto}}.still svg,.map svg{{min-width:44rem}}.pair .still svg{{min-width:0}}
}}
@media print{{
@page{{margin:16mm 14mm}}
body{{font-size:10.5pt}}main,header.top,footer{{max-width:none;padding:0}}
nav,.live,.tools,.skip,.tip,figure>.keys{{display:none!important}}.pair{{grid-template-columns:1fr 1fr}}
figure.small{{max-width:50%}}.pair figure.small{{max-width:none}}figure{{margin:.8rem 0}}
.still{{display:block!important;overflow:visible}}.still svg{{min-width:0}}
h2{{break-after:avoid;margin-top:1.6rem}}h3,figcaption,.label{{break-after:avoid}}
figure,table tr,.tiles>div,.finding{{break-inside:avoid}}
pre,.tall,.scroll{{max-height:none;overflow:visible}}
thead th{{position:static}}
a{{color:inherit;text-decoration:none}}
.tiles>div,pre,svg .empty{{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
}}
"""
