"""The pictures of the manual are drawn from their texts, and shown."""

from __future__ import annotations

import importlib.util
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parent.parent / "docs"
TEXTS = sorted((DOCS / "pictures").glob("*.txt"))


@pytest.fixture(scope="module")
def draw() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw", DOCS / "pictures" / "draw.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.stem)
def test_pictures_are_up_to_date(text: Path, draw: ModuleType) -> None:
    drawn = draw.Picture(text.read_text()).svg()
    assert text.with_suffix(".svg").read_text() == drawn, "run `make pictures`"
    ElementTree.fromstring(drawn)


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.stem)
def test_pictures_are_shown(text: Path) -> None:
    pages = [page.read_text() for page in DOCS.glob("*.rst")]
    assert any(f"figure:: pictures/{text.stem}.svg\n" in page for page in pages)


def test_pictures_follow_the_wish_for_dark(draw: ModuleType) -> None:
    drawn = draw.Picture("canvas 60 40\nlog p 5 5 0 1/new\nbox b 5 5 9 9 B").svg()
    style = drawn.partition("</style>")[0]
    light, dark = (set(re.findall(r"(--\w+): #", part)) for part in style.split("@media"))
    assert light == dark == set(re.findall(r"var\((--\w+)\)", drawn))
    assert "#" not in drawn.partition("</style>")[2].replace("url(#head)", "")


def test_an_unknown_word_is_refused(draw: ModuleType) -> None:
    with pytest.raises(ValueError, match="circle"):
        draw.Picture("canvas 10 10\ncircle 1 1")


def test_an_unknown_cell_is_refused(draw: ModuleType) -> None:
    with pytest.raises(ValueError, match="red"):
        draw.Picture("canvas 10 10\nlog p 0 0 1/red")


def test_two_arrows_between_the_same_boxes_do_not_lie_on_each_other(draw: ModuleType) -> None:
    boxes = "canvas 300 50\nbox a 0 0 50 40 A\nbox b 200 0 50 40 B\n"
    one = draw.Picture(boxes + "arrow a b").svg()
    two = draw.Picture(boxes + "arrow a b\narrow b a").svg()
    assert "M50.0,20.0 L200.0,20.0" in one
    assert "M50.0,29.0 L200.0,29.0" in two and "M200.0,11.0 L50.0,11.0" in two
