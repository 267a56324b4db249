# Sourced by a test of an example, with BUILD, EXAMPLE and WRITER as its arguments: installs BUILD into
# a prefix of its own, builds EXAMPLE against it alone, has WRITER write a model, and goes to the
# folder that has all of them: prefix, build and model.
build=$1 example=$2 writer=$3
work=$build/tests/install/$(basename "$example")  # a name that stays: ccache then knows the files
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
