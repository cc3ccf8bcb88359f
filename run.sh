#!/usr/bin/env bash
# Install what is needed into .venv (once), then start the page, run the tests, or run a command of the engine.
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd) # paths that the caller gives stay relative to the caller's folder

usage() {
  cat <<'TEXT'
./run.sh [flags of webui.py]     install if needed, then start the page (./run.sh --flags lists its flags)
./run.sh clone ...               speak one text on the command line (./run.sh clone --help)
./run.sh voice ...               save a voice as one file, for later use without its recording
./run.sh fetch v3|v2             download a published release into pretrained_models/
./run.sh compare ...             one request in several variants, side by side
./run.sh doctor                  say why this machine is slow, and what would help
./run.sh bench ...               measure this machine
./run.sh test [pytest args]      install if needed, then run the tests
./run.sh install                 install only
./run.sh --help                  this text

PYTHON=/path/to/python3.11 chooses the interpreter (3.10 to 3.12). VENV=dir chooses where packages go (default .venv here).
TEXT
}

venv=${VENV:-$root/.venv}

find_python() {
  local name
  for name in ${PYTHON:-python3.11 python3.12 python3.10 python3}; do
    if "$name" -c 'import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info < (3, 13))' 2>/dev/null; then
      command -v "$name"
      return
    fi
  done
  echo "run.sh: no usable Python 3.10-3.12 with venv found (tried: ${PYTHON:-python3.11 python3.12 python3.10 python3})." >&2
  echo "Install one (Debian and Ubuntu: apt-get install python3 python3-venv), or set PYTHON=/path/to/python." >&2
  exit 1
}

# install NAME FILE: into the venv, again only when the file has changed
install() {
  local stamp=$venv/installed-$1 file=$root/$2 want
  want=$(cksum <"$file")
  [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ] && return
  if [ ! -x "$venv/bin/python" ]; then
    local python
    python=$(find_python)
    echo "Making $venv with $("$python" --version)" >&2
    "$python" -m venv "$venv"
  fi
  echo "Installing $2 (the first time takes some minutes)" >&2
  if ! "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$file"; then
    echo "run.sh: installing failed; is the network reachable, and is there 8 GB of free disk? Run it again to continue." >&2
    exit 1
  fi
  echo "$want" >"$stamp"
}

# Segments that can grow keep the GPU's memory from splintering. PYTORCH_ALLOC_CONF is the name since torch 2.9.
if [ -z "${PYTORCH_ALLOC_CONF:-}${PYTORCH_CUDA_ALLOC_CONF:-}" ]; then
  export PYTORCH_ALLOC_CONF=expandable_segments:True
fi
export GRADIO_ANALYTICS_ENABLED=False HF_HUB_DISABLE_TELEMETRY=1 ORT_DISABLE_TELEMETRY=1

case "${1:-}" in
  -h | --help) usage ;;
  --flags)
    install app requirements.txt
    exec "$venv/bin/python" "$root/webui.py" --help
    ;;
  install) install app requirements.txt ;;
  test)
    shift
    install app requirements.txt
    install tests tests/requirements.txt
    cd "$root"
    exec "$venv/bin/python" -m pytest "$@"
    ;;
  clone | voice | fetch | bench | compare | doctor)
    install app requirements.txt
    export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
    exec "$venv/bin/python" -m cosy_engine "$@"
    ;;
  "" | -*)
    install app requirements.txt
    exec "$venv/bin/python" "$root/webui.py" "$@"
    ;;
  *)
    echo "run.sh: unknown command '$1'; ./run.sh --help lists them" >&2
    exit 2
    ;;
esac
