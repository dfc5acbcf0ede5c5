#!/usr/bin/env bash
# Makes a folder with the real SGLang server for a CPU: a virtual environment, tiny random models, a logit processor.
# usage: setup.sh DIR      (3.4 GB, some minutes; PYTHON=... names the Python 3.11 to use)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dir=$1
mkdir -p "$dir/run"
cd "$dir"
[ -x venv/bin/python ] || "${PYTHON:-python3.11}" -m venv venv
pip() { venv/bin/python -m pip -q "$@"; }
pip install --upgrade pip
pip install torch==2.13.0
# Their own requirements are for machines with a GPU; those of them that a CPU needs are in requirements.txt.
pip install --no-deps sglang==0.5.23 xgrammar==0.2.7 compressed-tensors==0.18.0 soundfile==0.13.1
pip install --no-deps -r "$here/requirements.txt"
site=$(venv/bin/python -c 'import site; print(site.getsitepackages()[0])')
cp "$here/stub_gpu.py" "$site/"
echo 'import stub_gpu' >"$site/stub_gpu.pth"
venv/bin/python "$here/make_model.py"
SGLANG_USE_CPU_ENGINE=1 venv/bin/python "$here/make_processor.py"
echo "ready: SSEFOLD_LIVE=$PWD make live"
