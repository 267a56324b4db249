#!/usr/bin/env bash
# consume.sh BUILD EXAMPLE: installs BUILD into a new prefix, builds EXAMPLE against it alone and
# runs both it and the installed command.
set -euo pipefail
build=$1 example=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" >/dev/null
cmake -G Ninja -S "$example" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
cmake --build "$work/build"
echo '{"class": "M", "parameters": {"w": {"dtype": "F32", "shape": [4, 3]}}}' >"$work/tree.json"
[ "$("$work/build/embed" "$work/tree.json" | tail -n 1)" = "total: 48" ]
"$work/prefix/bin/haul" tree "$work/tree.json" --json | grep -q '"F32"'
if [ -x "$work/prefix/libexec/haul/haul-torch" ]; then
  "$work/prefix/bin/haul" env | grep -q '^torch'
fi
