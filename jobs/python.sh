#!/usr/bin/env bash
# The Python package in a virtual environment: python.sh [FOLDER], build-python by default. Installs what is missing.
# Debian and Ubuntu let pip install nowhere else. In an environment of your own: pip install .
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
folder=${1:-$root/build-python}
terrace_install python
[ -x "$folder/bin/pip" ] || python3 -m venv "$folder"
"$folder/bin/pip" install -q "$root"
"$folder/bin/python" -c 'import terrace; print("terrace", terrace.version())'
echo "next: . $folder/bin/activate"
