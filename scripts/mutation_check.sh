#!/usr/bin/env bash
# mutation_check.sh: breaks one rule of the library at a time in a copy of the sources and requires a test to fail each time.
# Usage: scripts/mutation_check.sh [build folder, default build-mutation]
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
work=${1:-build-mutation}
rm -rf "$work/source"
mkdir -p "$work/source" "$work/build"
work=$(cd "$work" && pwd)

# name | file | sed expression | test program | filter of the tests that must catch it
mutations=(
  "span rule: the own block reads the shared copy|src/numerics/span_rule.h|s|j / unit >= position / unit|j / unit > position / unit|guarantees_test|*Safe.G1Causal/reference_mxfp8_own_block"
  "span rule: the own span reads the shared copy|src/numerics/span_rule.h|s|j / unit >= position / unit|j / unit > position / unit|guarantees_test|*Safe.G1Causal/reference_int8_token"
  "span rule: the span cut by a window reads the shared copy|src/numerics/span_rule.h|s|return first_span .. own .. cut;|return first_span \|\| own;|guarantees_test|*Safe.G1WithWindow/reference_*_token"
  "causal mask: one key too many|src/numerics/span_rule.h|s|range.end = position + 1;|range.end = position + 2;|guarantees_test|*Safe.G1Causal/reference_bf16"
  "alignment: top-left instead of bottom-right|src/backends/reference/row.cpp|s|row + seq.s_kv - seq.s_q|row|conformance_test|Cases.C23C24C33Alignment"
  "delta: from another dO than dP|src/backends/reference/backward.cpp|s|d_out.for_dp.row(i)\[c\] \* load_element|d_out.for_dv.row(i)[c] * load_element|conformance_test|*DeltaFromOutput/reference_int8_token"
  "delta: left out|src/backends/reference/backward.cpp|s|(ds\[j\] - delta)|(ds[j] - 0.0 * delta)|conformance_test|*MatchesTheDecodedOracle/reference_bf16"
  "delta: rows without dO still contribute|src/backends/reference/backward.cpp|s|place.visible.end = place.visible.begin;|;|guarantees_test|*Safe.G2GradientCausal/reference_int8_token"
  "containment: NaN ignored in amax|src/numerics/quantize.cpp|s|is_finite(x) ? std::fabs(x) : std::numeric_limits<float>::infinity()|is_finite(x) ? std::fabs(x) : 0.0F|guarantees_test|*Safe.NonFiniteContainment/reference_mxfp8_token"
  "softmax: denominator from rounded P|src/backends/reference/row.cpp|s|l += mode.folded ? p \*|l += mode.folded ? round_to(mode.p, c_p * p) / c_p *|conformance_test|*MatchesTheDecodedOracle/reference_int8_token"
  "e4m3: ties away from even|src/numerics/float8.h|s|((rebased >> kShift) \& 1U)|1U|numerics_test|*"
  "scale rule: 448 needs the next scale|src/numerics/scale_rule.h|s|> 0x600000U|>= 0x600000U|numerics_test|*"
)

git ls-files -z -- CMakeLists.txt cmake include src tests data | tar --null -T - -cf - | tar -xf - -C "$work/source"
cmake -S "$work/source" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCHECKVALVE_BUILD_TOOLS=OFF \
  -DCMAKE_CXX_COMPILER_LAUNCHER="$(command -v ccache || true)" >"$work/configure.log"
build() { ninja -C "$work/build" "$1" >"$work/build.log" || { tail -30 "$work/build.log"; exit 1; }; }

caught=0
for mutation in "${mutations[@]}"; do
  name=${mutation%%|*}; rest=${mutation#*|}
  file=${rest%%|*}; rest=${rest#*|}
  filter=${rest##*|}; rest=${rest%|*}
  program=${rest##*|}; expression="${rest%|*}|"
  build "$program"
  "$work/build/bin/$program" --gtest_filter="$filter" >"$work/before.log" 2>&1 ||
    { echo "FAIL  $name: the tests fail before the mutation"; tail -5 "$work/before.log"; exit 1; }
  grep -q "PASSED.*[1-9][0-9]* test" "$work/before.log" || { echo "FAIL  $name: the filter selects no test"; exit 1; }
  sed -i "$expression" "$work/source/$file"
  if cmp -s "$root/$file" "$work/source/$file"; then
    echo "FAIL  $name: the pattern no longer matches $file"
    exit 1
  fi
  build "$program"
  if "$work/build/bin/$program" --gtest_filter="$filter" >"$work/after.log" 2>&1; then
    echo "FAIL  $name: no test noticed"
    exit 1
  fi
  grep -q "FAILED TEST" "$work/after.log" || { echo "FAIL  $name: the program died without a failed test"; exit 1; }
  cp "$root/$file" "$work/source/$file"  # a fresh time stamp, so that ninja builds it again
  echo "caught  $name  ($program, $(grep -c '^\[  FAILED  \].*(' "$work/after.log") failed)"
  caught=$((caught + 1))
done
echo "mutation check: $caught of ${#mutations[@]} mutations caught"
