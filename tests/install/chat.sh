#!/usr/bin/env bash
# chat.sh BUILD EXAMPLE WRITER: installs BUILD into a prefix of its own, builds EXAMPLE against it
# alone and talks to the model that WRITER writes, as the installed command does.
set -euo pipefail
. "$(dirname "$0")/build_example.sh"

printf 'the thing\nanother thing\nthe last\n' >lines
build/chat model <lines >ours
prefix/bin/haul run model --chat <lines >theirs 2>err || fail "$(cat err)"
[ "$(wc -c <theirs)" -gt 20 ] || fail "hardly an answer: $(cat theirs)"
cmp <(sed 's/> //g' ours) <(sed 's/> //g' theirs) || fail "$(cat ours theirs)"
build/chat nowhere <lines >out 2>err && fail "no error"
grep -q nowhere err || fail "$(cat err)"
