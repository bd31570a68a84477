#!/usr/bin/env bash
# setup.sh: installs what is missing on Debian 12 or Ubuntu 24.04. Safe to rerun.
# Usage: scripts/setup.sh [build] [test]    build: compile the tool; test: also tests, linters, fuzzers, .venv
set -euo pipefail
cd "$(dirname "$0")/.."

build=(g++ make cmake ninja-build ccache libtbb-dev libfmt-dev nlohmann-json3-dev libcli11-dev)
tests=(git libgtest-dev libgmock-dev librapidcheck-dev clang clang-tidy shellcheck python3 python3-venv)
if [ -r /etc/os-release ] && grep -q '^ID=debian' /etc/os-release; then
  tests+=(chromium)  # Ubuntu's package of that name is a stub; there the report test uses any browser it finds
fi

wanted=()
for set in "${@:-build}"; do
  case $set in
    build) wanted+=("${build[@]}") ;;
    test) wanted+=("${tests[@]}") ;;
    *) echo "setup.sh: unknown set '$set' (accepted: build, test)" >&2; exit 2 ;;
  esac
done

if command -v dpkg-query >/dev/null; then
  missing=()
  for package in "${wanted[@]}"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  if [ "${#missing[@]}" -gt 0 ]; then
    install=(apt-get install -y --no-install-recommends "${missing[@]}")
    if [ "$(id -u)" = 0 ]; then
      as_root=()
    elif sudo -n true 2>/dev/null; then
      as_root=(sudo)
    else
      echo "setup.sh: these packages are missing and need root. Run once, then repeat the command:" >&2
      echo "    sudo apt-get update && sudo ${install[*]}" >&2
      exit 1
    fi
    echo "setup: installing ${missing[*]}"
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "${install[@]}" >/dev/null
  fi
else
  echo "setup: not a Debian system; install by your own means: ${wanted[*]}"
fi

if [[ " $* " == *" test "* ]]; then
  stamp=.venv/requirements-dev.txt
  if ! cmp -s scripts/requirements-dev.txt "$stamp"; then
    echo "setup: installing the tools of scripts/requirements-dev.txt into .venv"
    python3 -m venv .venv
    .venv/bin/pip install --quiet --disable-pip-version-check -r scripts/requirements-dev.txt
    cp scripts/requirements-dev.txt "$stamp"
  fi
fi
