"""What one frame of a live chart costs: plotext 5 in its Textual widget, plotext 6, and ours.

    python benchmarks/charts.py [plotext5|textual-plotext|plotext6|cockpit|strip|all]

A frame is 300 points on 160 x 18 cells with fixed axes, made into styled text. Each subject runs
only where its package is installed; textual-plotext needs plotext < 6, so that the two generations
need an environment each:

    python -m venv A && A/bin/pip install 'textual-plotext==1.0.1' 'plotext<6' 'textual>=8.2,<9'
    python -m venv B && B/bin/pip install 'plotext>=6.1,<7' 'textual>=8.2,<9'

Seen (Python 3.11, plotext 5.3.2 and 6.1.0, textual-plotext 1.0.1, Textual 8.2.8, x86-64, CPU
milliseconds a frame, median of 7 rounds of 40 frames; peak resident size of the process):

    plotext 5, global figure, as Rich text         6.8 ms    25 MiB
    textual-plotext, repainted in an app          17.4 ms    37 MiB
    plotext 6, a figure of its own, Rich text      8.1 ms    37 MiB
    specdash.tui.chart (plotext 6)                 5.2 ms    45 MiB
    specdash.tui.chart, repainted in an app        9.9 ms    48 MiB
    specdash.tui.strip, two rows                   0.2 ms    21 MiB

Threads: plotext 5 keeps one global figure, and four threads drawing at once spoil each other's
frames (166 of 240 wrong). plotext 6 has one *public* figure for the process as well, but a
terminal object of one's own carries a figure of its own: 0 of 240 wrong. Input: both raise
ValueError for an infinite value, and plotext 6 refuses None; ``specdash.tui.chart`` takes both out
before.

Verdict: plotext 6 with a figure of its own for each drawing, rastering only the dots; frame,
labels and colours are put around them by ``specdash.tui.chart``, which follows the theme and
needs no ANSI to be parsed back. Sparklines are made by hand: a strip costs a twentieth of a chart.
"""

from __future__ import annotations

import asyncio
import math
import resource
import statistics
import sys
import threading
import time
from collections.abc import Callable

WIDTH, HEIGHT, POINTS = 160, 18, 300
XS = [index * 0.2 for index in range(POINTS)]
YS = [200 + 50 * math.sin(index / 20) + 10 * math.sin(index * 1.7) for index in range(POINTS)]


def plotext5_frame(values: list[float]) -> str:
    import plotext

    plotext.clear_figure()
    plotext.plotsize(WIDTH, HEIGHT)
    plotext.theme("clear")
    plotext.plot(XS, values, marker="braille", color=(108, 182, 255))
    plotext.ylim(0, 300)
    plotext.xlim(0, 60)
    return str(plotext.build())


def plotext6_frame(values: list[float]) -> str:
    import plotext

    terminal = type(plotext.terminal)()
    terminal.limit(False, False)
    figure = terminal._master
    figure.plot_size(WIDTH, HEIGHT)
    figure.ruler("y").lim(0, 300)
    figure.ruler("x").lim(0, 60)
    signal = figure.signal(XS, values, marker="braille")
    signal.lines()
    figure.draw(signal)
    return str(figure.build().string())


def as_text(frame: Callable[[list[float]], str]) -> None:
    from rich.text import Text

    Text.from_ansi(frame(YS))


def cockpit_frame() -> None:
    from specdash.tui.chart import Series, draw, time_axis, value_axis

    series = Series(list(zip(XS, YS, strict=True)), "$sd-now", fill="$sd-tint")
    draw([series], time_axis(60.0, WIDTH), value_axis(300.0, HEIGHT), WIDTH, HEIGHT)


def strip_frame() -> None:
    from specdash.tui import strip

    samples = list(zip(XS, YS, strict=True))
    strip.blocks(strip.columns(samples, 0.0, 60.0, WIDTH), 2, 0.0, 300.0)


def rounds(frame: Callable[[], None]) -> float:
    """Median CPU milliseconds a frame."""
    frame()
    taken = []
    for _ in range(7):
        start = time.process_time()
        for _ in range(40):
            frame()
        taken.append((time.process_time() - start) / 40 * 1000)
    return statistics.median(taken)


def spoiled(frame: Callable[[list[float]], str]) -> int:
    """Wrong frames of four threads that draw 60 each at once."""
    levels = [[60.0 + 50 * n] * POINTS for n in range(4)]
    wanted = [frame(level) for level in levels]
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(60):
            try:
                good = frame(levels[number]) == wanted[number]
            except Exception:  # noqa: BLE001 - any failure of the subject is a spoiled frame
                good = False
            if not good:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(wrong)


async def textual_plotext_frames() -> float:
    """CPU milliseconds a frame inside a Textual app, the repaint included."""
    from textual.app import App, ComposeResult
    from textual_plotext import PlotextPlot

    class Screen(App[None]):
        def compose(self) -> ComposeResult:
            yield PlotextPlot()

    app = Screen()
    async with app.run_test(size=(WIDTH, HEIGHT)) as pilot:
        plot = app.query_one(PlotextPlot)
        taken = []
        for number in range(40):
            start = time.process_time()
            plot.plt.clear_figure()
            plot.plt.plot(XS, [value + number for value in YS], marker="braille")
            plot.plt.ylim(0, 300)
            plot.refresh()
            await pilot.pause()
            taken.append((time.process_time() - start) * 1000)
    return statistics.median(taken)


async def cockpit_frames_in_app() -> float:
    """The same for our chart."""
    from textual.app import App, ComposeResult
    from textual.content import Content
    from textual.widget import Widget

    from specdash.tui.chart import Series, draw, time_axis, value_axis
    from specdash.tui.paint import role_colors

    class Chart(Widget):
        lift = 0

        def render(self) -> Content:
            points = [(x, y + self.lift) for x, y in zip(XS, YS, strict=True)]
            rows = draw(
                [Series(points, "$sd-now", fill="$sd-tint")],
                time_axis(60.0, WIDTH),
                value_axis(300.0, HEIGHT),
                WIDTH,
                HEIGHT,
            )
            return Content("\n").join(rows)

    class Screen(App[None]):
        def get_theme_variable_defaults(self) -> dict[str, str]:
            return dict(role_colors(self.current_theme))

        def compose(self) -> ComposeResult:
            yield Chart()

    app = Screen()
    async with app.run_test(size=(WIDTH, HEIGHT)) as pilot:
        chart = app.query_one(Chart)
        taken = []
        for number in range(40):
            start = time.process_time()
            chart.lift = number
            chart.refresh()
            await pilot.pause()
            taken.append((time.process_time() - start) * 1000)
    return statistics.median(taken)


def report(name: str, milliseconds: float, note: str = "") -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{name:<38} {milliseconds:6.2f} ms   {peak:5.0f} MiB   {note}", flush=True)


def main() -> None:
    wanted = sys.argv[1] if len(sys.argv) > 1 else "all"
    if wanted in ("plotext5", "all"):
        import plotext

        if hasattr(plotext, "clear_figure"):
            report("plotext 5, text", rounds(lambda: as_text(plotext5_frame)))
            report("plotext 5, threads", 0.0, f"{spoiled(plotext5_frame)} of 240 frames wrong")
    if wanted == "textual-plotext":
        report("textual-plotext in an app", asyncio.run(textual_plotext_frames()))
    if wanted in ("plotext6", "all"):
        import plotext

        if hasattr(plotext, "figure"):
            report("plotext 6, own figure, text", rounds(lambda: as_text(plotext6_frame)))
            report("plotext 6, threads", 0.0, f"{spoiled(plotext6_frame)} of 240 frames wrong")
    if wanted in ("cockpit", "all"):
        report("specdash.tui.chart", rounds(cockpit_frame))
        report("specdash.tui.chart in an app", asyncio.run(cockpit_frames_in_app()))
    if wanted in ("strip", "all"):
        report("specdash.tui.strip, two rows", rounds(strip_frame))


if __name__ == "__main__":
    main()
