#!/usr/bin/env bash
# mingpt.sh BUILD EXAMPLE WRITER: installs BUILD into a prefix of its own, builds EXAMPLE against it
# alone and runs it over every kind of map on the checkpoint that WRITER writes: one text, and logits
# equal to the last bit.
set -euo pipefail
. "$(dirname "$0")/build_example.sh"

mingpt() {
  build/mingpt model --prompt "the thing" --max-new-tokens 30 "$@"
}
# expect_error CODE TEXT FLAGS…: ends with CODE and says TEXT.
expect_error() {
  local code=$1 text=$2 found=0
  shift 2
  build/mingpt "$@" >out 2>err || found=$?
  [ "$found" = "$code" ] || fail "exit $found, expected $code: mingpt $*: $(cat err)"
  grep -qF -- "$text" err || fail "not said: '$text' but: $(cat err)"
}

echo '{"": "cpu"}' >cpu.json
echo '{"": "disk"}' >disk.json
echo '{"transformer.wte": "disk", "transformer.wpe": "cpu", "transformer.h.0": "disk",
       "transformer.h": "cpu", "transformer.h.2.mlp": "disk", "transformer.ln_f": "disk",
       "lm_head": "cpu"}' >mixed.json
for map in cpu mixed disk; do
  mingpt --device-map $map.json --json >$map.out 2>$map.err || fail "$map: $(cat $map.err)"
  cmp cpu.out $map.out || fail "$map gives something else: $(cat cpu.out $map.out)"
done
grep -q 'moved 0 bytes' cpu.err || fail "a model in RAM was moved: $(cat cpu.err)"
for map in mixed disk; do
  grep -q 'moved [1-9].*[KMG]B; offloaded weights were used [1-9]' $map.err || fail "$(cat $map.err)"
done
[ "$(ls model/*.safetensors | wc -l)" -gt 3 ] || fail "the checkpoint is not in shards"

# A budget that not all blocks fit into. Nothing that it needs is written anywhere.
mingpt --max-memory cpu=120KB,disk=1GB --json >auto.out 2>auto.err || fail "$(cat auto.err)"
cmp cpu.out auto.out
grep -Eq 'device map: [1-9][0-9]* on cpu, [1-9][0-9]* on disk' auto.err || fail "$(cat auto.err)"

# The text alone is the text of the JSON, and the shape by flags is the shape by config.json.
mingpt --device-map disk.json >text.out 2>/dev/null
head -c 9 text.out | grep -qx 'the thing' || fail "$(cat text.out)"
rm model/config.json
mingpt --n-layer 3 --n-head 4 --n-embd 32 --vocab-size 269 --n-positions 24 \
  --device-map disk.json >flags.out 2>/dev/null
cmp text.out flags.out

expect_error 2 "mingpt: error: --max-new-tokens" model --max-new-tokens -1
expect_error 2 "mingpt --help" --no-such-flag
expect_error 2 "n_embd 33 is no multiple of n_head 4" model --n-embd 33 --n-head 4
expect_error 1 "nowhere" nowhere
expect_error 1 "shapes differ" model --n-layer 3 --n-head 4 --n-embd 64 --vocab-size 269
expect_error 1 "transformer.h.3.mlp.c_proj.bias" model --n-layer 4 --n-head 4 --n-embd 32 \
  --vocab-size 269 --n-positions 24
