// html_style.cpp: the style sheet of the report.
#include "html_report.h"

namespace checkvalve::cli {

const char* const kReportStyle = R"css(
:root{color-scheme:light dark;--page:#f6f7f9;--card:#fff;--ink:#18202e;--soft:#5d6778;--line:#dde1e8;
--good:#12805c;--good-bg:#dcf3ea;--bad:#c92a2a;--bad-bg:#ffe3e3;--open:#8a5a00;--open-bg:#fff0cc;--bar:#8aa4d6}
@media (prefers-color-scheme:dark){:root{--page:#0d1117;--card:#161c27;--ink:#e4e9f2;--soft:#98a3b6;--line:#2a3342;
--good:#63d2a6;--good-bg:#123427;--bad:#ff8787;--bad-bg:#43191c;--open:#ffd166;--open-bg:#3a2e0e;--bar:#4c6699}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,"DejaVu Sans",sans-serif}
main{max-width:1120px;margin:0 auto;padding:28px 24px 64px}
header{padding:22px 26px;border-radius:14px;background:var(--card);border:1px solid var(--line);
border-left:8px solid var(--good)}
header.leaks{border-left-color:var(--bad)}
header.open{border-left-color:var(--open)}
.kicker{margin:0;font-size:13px;letter-spacing:.08em;text-transform:uppercase;color:var(--soft)}
h1{margin:.2em 0 .3em;font-size:30px;line-height:1.2;letter-spacing:-.01em;text-wrap:balance}
h2{margin:0 0 .6em;font-size:19px}
.lead{margin:0;max-width:75ch;color:var(--soft)}
section{margin-top:34px}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(230px,1fr));gap:16px;margin-top:18px}
.card{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:14px}
.card.bad{border:2px solid var(--bad);padding:13px}
.card h3{display:flex;justify-content:space-between;align-items:center;gap:8px;margin:0;font:600 15px/1.3
ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace}
.what{margin:2px 0 10px;font-size:13px;line-height:1.35;color:var(--soft);min-height:2.7em}
.map{display:block;width:100%;border-radius:6px}
.finding{margin:10px 0 0;font-size:14px;line-height:1.4}
.bad .finding b{color:var(--bad)}
.badge{display:inline-block;padding:1px 9px;border-radius:99px;font:600 12px/1.6 system-ui,Arial,sans-serif;
text-transform:uppercase;letter-spacing:.04em}
.badge.holds{color:var(--good);background:var(--good-bg)}
.badge.leaks{color:var(--bad);background:var(--bad-bg)}
.badge.open{color:var(--open);background:var(--open-bg)}
.reading{display:flex;flex-wrap:wrap;gap:28px;align-items:center;background:var(--card);border:1px solid var(--line);
border-radius:12px;padding:18px 22px}
.reading>div{flex:1 1 380px;max-width:62ch}
.reading p{margin:.5em 0}
.guide{flex:0 1 470px;width:100%;max-width:470px}
.guide text{font:13px system-ui,Arial,"DejaVu Sans",sans-serif;fill:var(--ink)}
.guide .loud{fill:var(--bad);font-weight:600}
.guide .rule{stroke:var(--soft);stroke-width:1;fill:none}
.scroll{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:12px}
table{border-collapse:collapse;width:100%;font-size:14px}
th,td{padding:7px 12px;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
thead th{font-size:12.5px;color:var(--soft);font-weight:600;white-space:nowrap}
tbody th{font:600 13.5px ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:nowrap}
tbody tr:last-child>*{border-bottom:0}
.num{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.bar{display:inline-block;width:70px;height:8px;margin-right:10px;border-radius:4px;background:var(--line);
overflow:hidden}
.bar i{display:block;height:100%;background:var(--bar)}
.leak{margin-bottom:12px;padding:14px 18px;background:var(--card);border:1px solid var(--line);
border-left:5px solid var(--bad);border-radius:10px}
.leak h3{margin:0;font:600 15px/1.4 ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace}
.leak p{margin:.3em 0 .5em}
.note{margin:.7em 0 0;font-size:13.5px;color:var(--soft)}
pre,code{font-family:ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:13px}
pre{margin:0;padding:12px 16px;background:var(--card);border:1px solid var(--line);border-radius:12px;
white-space:pre-wrap;overflow-wrap:anywhere}
code{color:var(--soft);overflow-wrap:anywhere}
@media print{body{background:#fff}.card,.reading,.scroll{break-inside:avoid}}
)css";

}  // namespace checkvalve::cli
