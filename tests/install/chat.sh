#!/usr/bin/env bash
# chat.sh BUILD EXAMPLE WRITER: installs BUILD into a prefix of its own, builds EXAMPLE against it
# alone and talks to the model that WRITER writes, as the installed command does.
set -euo pipefail
build=$1 example=$2 writer=$3
work=$build/tests/install/chat  # a name that stays: ccache then knows the files
rm -rf "$work"
mkdir -p "$work"
if command -v ccache >/dev/null; then export CMAKE_CXX_COMPILER_LAUNCHER=ccache; fi
cmake --install "$build" --prefix "$work/prefix" >/dev/null
cmake -G Ninja -S "$example" -B "$work/build" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
cmake --build "$work/build"
"$writer" "$work/model"
cd "$work"

fail() {
  echo "$*" >&2
  exit 1
}
printf 'the thing\nanother thing\nthe last\n' >lines
build/chat model <lines >ours
prefix/bin/haul run model --chat <lines >theirs 2>err || fail "$(cat err)"
[ "$(wc -c <theirs)" -gt 20 ] || fail "hardly an answer: $(cat theirs)"
cmp <(sed 's/> //g' ours) <(sed 's/> //g' theirs) || fail "$(cat ours theirs)"
build/chat nowhere <lines >out 2>err && fail "no error"
grep -q nowhere err || fail "$(cat err)"
