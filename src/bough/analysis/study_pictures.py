"""Pictures of studies: our curves, and those of others dashed in the same colours, with whose they are.

Rule: what is drawn is what the study gave; nothing is computed here.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from bough.analysis.picture_folder import make_picture_folder
from bough.errors import SiteError
from bough.sim.studies.study_rows import StudyFigure


def draw_figures(folder: str, figures: Sequence[StudyFigure]) -> list[str]:
    """Write a picture for each figure into a folder; their paths."""
    try:
        from matplotlib import colormaps
        from matplotlib.figure import Figure
    except ImportError as error:
        raise SiteError("pictures need matplotlib: pip install 'bough[plot]'") from error
    make_picture_folder(folder)
    palette = colormaps["tab10"].colors  # type: ignore[attr-defined]
    written = []
    for figure in figures:
        colours: dict[str, object] = {}
        drawn = Figure(figsize=(9, 5), layout="constrained")
        axes = drawn.subplots()
        for curve in figure.curves:
            colour = colours.setdefault(curve.label, palette[len(colours) % len(palette)])
            axes.plot(
                [x for x, _ in curve.points],
                [y for _, y in curve.points],
                label=f"{curve.label} ({curve.of})" if curve.of else curve.label,
                color=colour,
                linestyle="" if curve.dots else "--" if curve.of else "-",
                drawstyle="steps-post" if curve.steps else "default",
                marker="" if curve.steps or len(curve.points) > 100 else ("o" if curve.of else "."),
                fillstyle="none",
            )
        axes.set_title(figure.title, fontsize=10, loc="left")
        axes.set_xlabel(figure.x)
        axes.set_ylabel(figure.y)
        if figure.log_x:
            axes.set_xscale("log")
        if figure.log_y:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.legend(fontsize=8)
        path = os.path.join(folder, f"{figure.name}.svg")
        drawn.savefig(path, metadata={"Date": None})  # the same figures make the same file
        written.append(path)
    return written
