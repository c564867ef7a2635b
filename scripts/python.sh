# Sourced by the scripts beside it: a Python that is new enough, and an environment made with it.

# Print the first Python >= 3.11 that has venv; $PYTHON comes first.
find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3.13 python3.12 python3.11 python3 python; do
        if command -v "$candidate" >/dev/null &&
            "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
                >/dev/null 2>&1; then
            echo "$candidate"
            return
        fi
    done
    echo "specdash needs Python 3.11 or newer with its venv module (Debian: python3-venv)." >&2
    return 1
}

# make_environment FOLDER: a virtual environment there; one that works is kept.
make_environment() {
    local folder="$1" python
    if [ -x "$folder/bin/python" ] &&
        "$folder/bin/python" -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' \
            >/dev/null 2>&1; then
        return
    fi
    python="$(find_python)"
    rm -rf "$folder"
    "$python" -m venv "$folder"
}
