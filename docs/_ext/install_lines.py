"""``.. install:: cli`` prints the commands that install this package with an extra."""

from __future__ import annotations

from docutils import nodes
from docutils.parsers.rst import Directive, directives

from tools.install_lines import console, image


class Install(Directive):
    """Print the commands for an extra (or several, separated by commas), or for no extra."""

    optional_arguments = 1
    option_spec = {"more": directives.unchanged, "image": directives.flag}

    def run(self) -> list[nodes.Node]:
        extras = self.arguments[0] if self.arguments else ""
        if "image" in self.options:
            lines, language = image(extras), "docker"
        else:
            lines, language = console(extras, self.options.get("more", "")), "bash"
        text = "\n".join(lines)
        return [nodes.literal_block(text, text, language=language)]
