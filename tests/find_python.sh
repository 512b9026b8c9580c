#!/bin/sh
# Prints a Python of the wanted version (3.12): from the path, or one that pyenv has installed.
set -e
if "python$1" -c '' 2>/dev/null; then
    echo "python$1"
    exit
fi
for candidate in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python; do
    if [ -x "$candidate" ]; then
        echo "$candidate"
        exit
    fi
done
echo "Python $1 is not installed" >&2
exit 1
