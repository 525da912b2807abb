"""One script of several: the drawing code as it must stand in a file that fetches nothing.

The page loads the same modules one by one; only a report needs them in one piece. A module
may import names from its neighbours on one line each and export declarations in place; names
at the top level of all modules must differ, which the browser checks by refusing the script.
"""

from __future__ import annotations

import re
from importlib.resources import files

_IMPORT = re.compile(r'^import \{[^}\n]*\} from "\./([a-z_]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?function|class|const)", re.MULTILINE)
_LEFT_OVER = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


def static_text(name: str) -> str:
    """A file of ``replay/view/static``."""
    return (files("replay.view") / "static" / name).read_text(encoding="utf-8")


def bundle(entry: str) -> str:
    """The module ``entry`` and all that it imports, dependencies first, as one script.

    Raises ValueError where a module uses a form of import or export that this cannot join.
    """
    done: dict[str, str] = {}

    def add(name: str) -> None:
        if name in done:
            return
        done[name] = ""  # holds the place against a cycle; the order is set on the way back
        text = static_text(name)
        for needed in _IMPORT.findall(text):
            add(needed)
        text = _EXPORT.sub("", _IMPORT.sub("", text))
        left = _LEFT_OVER.search(text)
        if left:
            raise ValueError(f"{name}: cannot join {left.group(0)!r}")
        del done[name]
        done[name] = text

    add(entry)
    return "\n".join(done.values())
