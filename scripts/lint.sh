#!/usr/bin/env bash
# lint.sh: clang-format, clang-tidy, ruff and shellcheck; anything they find is an error.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t sources < <(git ls-files '*.cpp' '*.h')
mapfile -t units < <(git ls-files 'src/*.cpp' 'tools/*.cpp')
mapfile -t python < <(git ls-files '*.py')
mapfile -t shell < <(git ls-files '*.sh' .ci/run)

echo "lint: clang-format on ${#sources[@]} files"
.venv/bin/clang-format --dry-run --Werror "${sources[@]}"
if [ "${#python[@]}" -gt 0 ]; then
  echo "lint: ruff on ${#python[@]} files"
  .venv/bin/ruff check "${python[@]}"
  .venv/bin/ruff format --check "${python[@]}"
fi
echo "lint: shellcheck on ${#shell[@]} files"
shellcheck "${shell[@]}"
echo "lint: clang-tidy on ${#units[@]} files"
cmake --preset release -DCHECKVALVE_BUILD_TESTS=ON >/dev/null
printf '%s\0' "${units[@]}" | xargs -0 -n 2 -P "$(nproc)" clang-tidy -p build --quiet --warnings-as-errors='*' 2>/dev/null
echo "lint: clean"
