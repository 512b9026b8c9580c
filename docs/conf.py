"""How Sphinx builds the manual."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.docutils import SphinxDirective

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from admin_calls import operations
from growth import Growth
from install_lines import Install
from names import error_anchor
from option_list import OptionList
from results import Comparison, Conditions, Results
from site_entries import note_search_entry

import aiokafka
from aiokafka import errors
from tools.repository import address

project = "aiokafka"
author = "aiokafka contributors"
copyright = author
version = release = aiokafka.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "names",
    "site_entries",
]
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
# One option a line.
python_maximum_signature_line_length = 80
html_theme = "furo"
html_title = f"aiokafka {release}, a drop-in implementation"
html_show_sphinx = False
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_js_files = ["pictures.js"]
html_search_scorer = str(Path(__file__).parent / "_static" / "scorer.js")
html_favicon = "_static/favicon.svg"
html_theme_options = {"sidebar_hide_name": False, "top_of_page_buttons": ["view", "edit"]}
if repository := address():
    html_theme_options |= {
        "source_repository": f"{repository}/",
        "source_branch": "main",
        "source_directory": "docs/",
    }
else:
    html_theme_options["top_of_page_buttons"] = []
exclude_patterns = ["_build"]
default_role = "py:obj"
smartquotes = False

autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = False
# Private names of layers below are shown as the package names them.
add_module_names = False
nitpicky = True
# `type` in a signature is Python's, whatever fields of that name there are.
suppress_warnings = ["ref.python"]


class ErrorCodes(SphinxDirective):
    """``.. error-codes::`` prints every error that a broker can answer as a table."""

    def run(self) -> list[nodes.Node]:
        rows = []
        for found in errors.kafka_errors.values():
            self.note(found.__name__)
        for number, found in sorted(errors.kafka_errors.items()):
            flags = ("retriable", "invalid_metadata", "is_fatal", "requires_abort")
            shown = ", ".join(flag for flag in flags if getattr(found, flag))
            rows.append(row(str(number), error(found), shown, found.description))
        return [table((6, 30, 20, 44), row("Code", "Class", "It is", "Meaning"), rows)]

    def note(self, name: str) -> None:
        note_search_entry(self.env, "error", name, error_anchor(name))


class ClientErrors(SphinxDirective):
    """``.. client-errors::`` prints every error that a client finds out by itself."""

    def run(self) -> list[nodes.Node]:
        rows = []
        for name in errors.__all__:
            found = getattr(errors, name)
            if isinstance(found, type) and name == found.__name__ and not is_broker_error(found):
                first = (found.__doc__ or "").split("\n\n")[0]
                note_search_entry(self.env, "error", name, error_anchor(name))
                rows.append(row(error(found), " ".join(first.split())))
        return [table((30, 70), row("Class", "Meaning"), rows)]


class Room(Directive):
    """``.. room:: record net`` prints the modules of folders, each with its first sentence."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        return [node for name in self.arguments[0].split() for node in folder_map(name)]


def folder_map(name: str) -> list[nodes.Node]:
    """Return a table of the modules in a folder of the package."""
    folder = Path(aiokafka.__file__).parent / name
    title = nodes.rubric(text=f"{name}/ ".replace("./", "aiokafka/").strip())
    about = nodes.paragraph(text=first_sentence(folder / "__init__.py"))
    rows = []
    for path in sorted(folder.glob("*.py"), key=lambda path: path.name.lstrip("_")):
        if path.name != "__init__.py":
            types = nodes.paragraph()
            for cls in public_classes(path)[:4]:
                types += [nodes.Text(" "), code(cls)] if types.children else [code(cls)]
            rows.append(row(code(path.name), first_sentence(path), types))
    return [title, about, table((20, 50, 30), row("File", "What it is for", "Classes"), rows)]


class AdminCalls(Directive):
    """``.. admin-calls::`` prints each call of the admin client's rooms with its first release."""

    def run(self) -> list[nodes.Node]:
        rows = [row(code(call), api, release, newer) for call, api, release, newer in operations()]
        return [table((32, 26, 14, 28), row("Call", "API", "Kafka", "Later"), rows)]


def first_sentence(path: Path) -> str:
    text = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n\n")[0]
    return re.split(r"(?<=[.:]) (?=[A-Z])", " ".join(text.split()))[0]


def public_classes(path: Path) -> list[str]:
    found = [
        node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)
    ]
    return [name for name in found if not name.startswith("_")]


def is_broker_error(found: type) -> bool:
    return issubclass(found, errors.BrokerResponseError) and "errno" in vars(found)


def code(text: str) -> nodes.literal:
    return nodes.literal(text=text)


def error(found: type) -> nodes.literal:
    """Return the name of an error, to which links lead."""
    return nodes.literal(text=found.__name__, ids=[error_anchor(found.__name__)])


def table(widths: tuple[int, ...], head: nodes.row, rows: list[nodes.row]) -> nodes.table:
    group = nodes.tgroup(cols=len(widths))
    group += [nodes.colspec(colwidth=width) for width in widths]
    group += nodes.thead("", head)
    group += nodes.tbody("", *rows)
    return nodes.table("", group)


def row(*cells: nodes.Node | str) -> nodes.row:
    made = nodes.row()
    for cell in cells:
        text = nodes.paragraph()
        text += nodes.Text(cell) if isinstance(cell, str) else cell
        made += nodes.entry("", text)
    return made


def source_of_compiled(app: Sphinx, module: str) -> tuple[str, dict[str, Any]] | None:
    """Return the source of a compiled module with the places of its names, for `[source]`."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None or spec.origin.endswith(".py"):
        return None  # viewcode finds it
    extension = Path(spec.origin)
    source = extension.with_name(f"{extension.name.partition('.')[0]}.py")
    analyzer = ModuleAnalyzer.for_string(source.read_text(), module)
    analyzer.find_tags()
    return analyzer.code, analyzer.tags


def module_of_member(app: Sphinx, module: str, name: str | None) -> str | None:
    """Return the module of the class of a member. Sphinx would take that of the member's value,
    such as an enum that is the default of a field."""
    owner, _, member = (name or "").partition(".")
    found = getattr(sys.modules.get(module), owner, None)
    return getattr(found, "__module__", None) if member else None


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("viewcode-follow-imported", module_of_member)
    app.connect("viewcode-find-source", source_of_compiled)
    app.add_directive("install", Install)
    app.add_directive("options", OptionList)
    app.add_directive("results", Results)
    app.add_directive("conditions", Conditions)
    app.add_directive("growth", Growth)
    app.add_directive("comparison", Comparison)
    app.add_directive("room", Room)
    app.add_directive("admin-calls", AdminCalls)
    app.add_directive("error-codes", ErrorCodes)
    app.add_directive("client-errors", ClientErrors)
    return {"parallel_read_safe": True}
