"""The routes of the search page: for a query the nearest rows by each model. Images are named by their rows."""

import math
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Int64
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from polygrain.app.page.pictures import Pictures, Query
from polygrain.app.page.sides import MOST_SHOWN, Side
from polygrain.collection.index import Index
from polygrain.retrieval.neighbours import without_self
from polygrain.sources.folder import composed
from polygrain.store.rectangle import Unreadable

HERE = Path(__file__).parent
FILES = {"": "index.html", "page.js": "page.js", "page.css": "page.css"}
MOST_BYTES = 32 * 2**20
# Images whose nearest are compared with their folder, and how many of them.
MOST_ASKED, JUDGED = 500, 10
# More first folders than that are no choice for a person; names can still be filtered.
MOST_TASKS = 1000


class Page:
    """The sides of the page, the last one the model; and what their images look like."""

    def __init__(self, sides: list[Side], above: float) -> None:
        self.sides, self.above = sides, above
        for side in sides:  # before the first question: what cannot be read is told at once
            _ = side.network, side.collection.plain_index, side.collection.index
        self.collection = sides[-1].collection
        self.paths = self.collection.paths
        self.pictures = Pictures(self.collection.images)
        self.folders = np.unique(self.collection.images.classes, return_inverse=True)[1]
        firsts = [path.partition("/")[0] if "/" in path else "" for path in self.paths]
        self.task_names, self.tasks = np.unique(firsts, return_inverse=True)
        self.folded = [composed(path).casefold() for path in self.paths]
        self.right = lru_cache(32)(self.judge)
        self.alike = lru_cache(16)(self.find_alike)

    def about(self) -> dict[str, Any]:
        counts = zip(self.task_names.tolist(), np.bincount(self.tasks).tolist(), strict=True)
        tasks = [{"name": name, "count": count} for name, count in counts]
        return {
            "folder": str(self.collection.root),
            "count": len(self.paths),
            "tasks": tasks if len(tasks) <= MOST_TASKS else [],
            "folders": len(np.unique(self.folders)),
            "most_bytes": MOST_BYTES,
            "sides": [
                {"name": side.name, "what": side.what, "settings": side.settings, "start": side.start}
                for side in self.sides
            ],
            "shown": self.sides[-1].shown,
        }

    def searched(self, place: int | None) -> list[Index]:
        """The collection on each side: the model's at a place of its slider, the others' as they begin."""
        *others, model = self.sides
        return [*(side.at(side.start) for side in others), model.at(model.start if place is None else place)]

    def asking(self, rows: Int64[np.ndarray, " query"]) -> list[Float32[np.ndarray, "query _"]]:
        """Rows as queries on each side: plain ones, since smoothed rows already contain their neighbours."""
        return [side.collection.plain_index.rows(rows) for side in self.sides]

    def vectors(self, query: Query) -> list[Float32[np.ndarray, "1 _"]]:
        """The query's embedding on each side; that of a whole row is there already."""
        if query.row is not None and query.box is None:
            return self.asking(np.array([query.row]))
        pictures = self.pictures.stored(query, [side.network.config for side in self.sides])
        return [side.embed(picture) for side, picture in zip(self.sides, pictures, strict=True)]

    def judge(self, place: int | None) -> dict[str, Any]:
        """For each side the share of an image's nearest that are from its own folder, over all images or drawn ones."""
        folders, shares = self.folders, []
        asked = np.flatnonzero(np.bincount(folders)[folders] > 1)
        if len(asked) > MOST_ASKED:
            asked = np.sort(np.random.default_rng(0).choice(asked, MOST_ASKED, replace=False))
        if folders.max() > 0 and len(asked):
            for index, queries in zip(self.searched(place), self.asking(asked), strict=True):
                rows = index.search(queries, JUDGED + 1)[1]
                rows = without_self(rows, asked, rows.shape[1] - 1)
                shares.append(float((folders[rows] == folders[asked, None]).mean()))
        return {"shares": shares, "asked": len(asked), "nearest": min(JUDGED, len(folders) - 1)}

    def find_alike(self, above: float) -> dict[str, Any]:
        """The most alike of the near-duplicates, and the oddest of the images.

        `least`: a cosine below which near-duplicates are not worth a look, since half of all images have one there.
        """
        graph = self.collection.graph
        least = math.floor(100 * np.median(graph.cosines[:, 0])) / 100 if graph.cosines.size else above
        reply = {"above": above, "least": min(least, self.above), "closest": graph.closest}
        found = {"duplicate": self.collection.near_duplicates(above), "odd": self.collection.odd()}
        for kind, rows in found.items():
            shown = [
                row._asdict() | {"image": self.shown(row.image), "other": self.shown(row.other)}
                for row in rows[:MOST_SHOWN]
            ]
            reply[kind] = {"rows": shown, "of": len(rows)}
        return reply

    def among(self, task: str | None, text: str) -> Bool[np.ndarray, " row"] | None:
        """The rows of a task whose paths have a text in them; None for all."""
        if task is not None and task not in self.task_names:
            raise HTTPException(400, f"there is no task {task!r:.200}")
        chosen = None if task is None else self.task_names[self.tasks] == task
        if text:
            has = np.fromiter((composed(text).casefold() in path for path in self.folded), bool, len(self.folded))
            chosen = has if chosen is None else chosen & has
        return chosen

    def sample(self, task: str | None, text: str, start: int, count: int) -> dict[str, Any]:
        """Rows to begin with, spread over all; other ones for each start."""
        among = self.among(task, text)
        rows = np.arange(len(self.paths)) if among is None else np.flatnonzero(among)
        step = max(1, len(rows) // count)
        chosen = rows[(start + step * np.arange(min(count, len(rows)))) % len(rows)] if len(rows) else rows
        return {"rows": [self.shown(row) for row in sorted(set(chosen.tolist()))], "of": len(rows)}

    def search(self, query: Query, task: str | None, text: str, k: int, place: int | None = None) -> dict[str, Any]:
        """The k nearest rows on each side, the query's own left out, with the milliseconds it took.

        `mates`: how many other images of those searched are in the query's folder.
        """
        start, indices = time.perf_counter(), self.searched(place)
        among = self.among(task, text)
        if query.row is not None:
            self.pictures.path(query.row)
            among = np.ones(len(self.paths), bool) if among is None else among.copy()
            among[query.row] = query.box is not None and among[query.row]
        sides = []
        for index, vector in zip(indices, self.vectors(query), strict=True):
            _, rows = index.search(vector, k, among)
            sides.append([self.shown(row) for row in rows[0].tolist()])
        of = len(self.paths) if among is None else int(among.sum())
        reply = {"sides": sides, "of": of, "asked": None, "ms": round(1000 * (time.perf_counter() - start), 1)}
        if query.row is not None:
            mates = self.folders == self.folders[query.row]
            mates[query.row] = False
            reply |= {"asked": self.shown(query.row), "mates": int((mates if among is None else mates & among).sum())}
        return reply

    def shown(self, row: int) -> dict[str, Any]:
        return {"row": row, "path": self.paths[row], "folder": int(self.folders[row])}


async def query_of(request: Request) -> Query:
    """The query of a request; HTTPException says what is wrong with it."""
    words = request.query_params
    try:
        row = int(words["row"]) if "row" in words else None
        box = tuple(float(place) for place in words["box"].split(",")) if "box" in words else None
    except ValueError as error:
        raise HTTPException(400, f"row and box are numbers: {error}") from error
    # This form refuses NaN, too.
    if box is not None and not (len(box) == 4 and 0 <= box[0] < box[2] <= 1 and 0 <= box[1] < box[3] <= 1):
        raise HTTPException(400, "a box is left, top, right, bottom in 0..1")
    upload = bytearray()
    async for chunk in request.stream():
        upload += chunk
        if len(upload) > MOST_BYTES:
            raise HTTPException(413, f"more than {MOST_BYTES // 2**20} MiB: a query is one image")
    if (row is None) == (not upload):
        raise HTTPException(400, "a query is a row or the bytes of an image")
    return Query(row, bytes(upload), box)


def number(request: Request, name: str, default: int, most: int) -> int:
    try:
        return min(max(0, int(request.query_params.get(name, default))), most)
    except ValueError as error:
        raise HTTPException(400, f"{name} is a number") from error


def build(sides: list[Side], above: float) -> Starlette:
    """The page's app for these sides; a pair from the cosine `above` is a near-duplicate."""
    page = Page(sides, above)

    def filters(request: Request) -> tuple[str | None, str]:
        return request.query_params.get("task"), request.query_params.get("text", "")[:200]

    def place_of(request: Request) -> int:
        return number(request, "place", sides[-1].start, sides[-1].places - 1)

    def file(request: Request) -> Response:
        return FileResponse(HERE / FILES[request.url.path.rpartition("/")[2]])

    def about(request: Request) -> Response:
        return JSONResponse(page.about())

    def right(request: Request) -> Response:
        return JSONResponse(page.right(place_of(request)))

    def alike(request: Request) -> Response:
        try:
            above = float(request.query_params.get("above", page.above))
        except ValueError as error:
            raise HTTPException(400, "above is a number") from error
        if not -1 <= above <= 1:
            raise HTTPException(400, "above is a cosine, -1 to 1")
        return JSONResponse(page.alike(above))

    def image(request: Request) -> Response:
        return Response(page.pictures.thumbnail(request.path_params["row"]), media_type="image/jpeg")

    def sample(request: Request) -> Response:
        count = number(request, "count", 48, MOST_SHOWN)
        return JSONResponse(page.sample(*filters(request), number(request, "start", 0, 2**31), max(1, count)))

    async def preview(request: Request) -> Response:
        content = await run_in_threadpool(page.pictures.preview, await query_of(request))
        return Response(content, media_type="image/jpeg")

    async def search(request: Request) -> Response:
        query, k = await query_of(request), max(1, number(request, "k", 12, MOST_SHOWN))
        return JSONResponse(await run_in_threadpool(page.search, query, *filters(request), k, place_of(request)))

    routes = [Route(f"/{name}", file) for name in FILES]
    routes += [
        Route("/about", about),
        Route("/right", right),
        Route("/alike", alike),
        Route("/sample", sample),
        Route("/image/{row:int}", image),
    ]
    routes += [Route(f"/{act.__name__}", act, methods=["POST"]) for act in (preview, search)]
    errors = {
        Unreadable: lambda _, error: JSONResponse({"error": f"the image is left out: {error}"}, 422),
        HTTPException: lambda _, error: JSONResponse({"error": error.detail}, error.status_code),
        OSError: lambda _, error: JSONResponse({"error": f"the file cannot be read: {error.strerror}"}, 404),
    }
    return Starlette(routes=routes, exception_handlers=errors)
