"""All tables, by their name on the command line."""

from difflib import get_close_matches

from . import cross_metric, dkm, kmeansnet, sscnet, tell
from .spec import PaperTable

PAPERS = (tell, kmeansnet, cross_metric, dkm, sscnet)
TABLES: dict[str, PaperTable] = {table.name: table for paper in PAPERS for table in paper.TABLES}


def find(name: str) -> PaperTable:
    if name not in TABLES:
        close = get_close_matches(name.lower(), TABLES, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(TABLES)}."
        raise ValueError(f"No table is called {name!r}: {hint}")
    return TABLES[name]
