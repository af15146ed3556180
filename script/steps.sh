# Shared by the scripts in this folder, which source it: where the project is, how a step is
# announced, how an error is told, how packages are installed.
set -eu
unset CDPATH
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
started=$(date +%s)
jobs=$(nproc 2>/dev/null || echo 2)

step() { printf '==> [%3d s] %s\n' "$(($(date +%s) - started))" "$*" >&2; }
fail() {
  printf '\n%s: %s\n' "$(basename "$0")" "$1" >&2
  shift
  for advice in "$@"; do printf '  %s\n' "$advice" >&2; done
  exit 1
}
# The comment at the top of the script is its help.
help() { sed -n '2,/^[^#]/ { /^#/ { s/^# \{0,1\}//; p; }; }' "$0"; exit 0; }

# install_packages FILE...: installs what of these lists is missing; says nothing if nothing is.
install_packages() {
  command -v dpkg-query >/dev/null ||
    fail "this is not a Debian system" "install what script/packages.txt names by hand, then set CAIRN_SKIP_PACKAGES=1"
  missing=""
  for package in $(cat "$@" | sed 's/#.*//'); do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing="$missing $package"
  done
  [ -n "$missing" ] || return 0
  sudo=""
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null ||
      fail "packages are missing:$missing" "run script/bootstrap as root, or install sudo"
    sudo=sudo
  fi
  step "installing packages:$missing"
  export DEBIAN_FRONTEND=noninteractive
  quiet_apt="-qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0"
  # shellcheck disable=SC2086
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get $quiet_apt update ||
    fail "apt-get update failed" "is the network there, and are apt's sources right?"
  # shellcheck disable=SC2086
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get $quiet_apt install --no-install-recommends -y $missing >&2 ||
    fail "apt-get install failed for:$missing" "Debian 12 (bookworm) has all of them; see apt's message above"
}

# python_tools FILE: the project's own virtual environment, with what FILE pins. Made once; touched
# again only when FILE changes.
python_tools() {
  stamp=".venv/.installed-$(basename "$1")"
  cmp -s "$1" "$stamp" && return 0
  if [ ! -x .venv/bin/pip ]; then
    step "making .venv"
    rm -rf .venv
    python3 -m venv .venv || fail "python3 -m venv failed" "is the package python3-venv installed?"
  fi
  step "installing $(grep -v '^#' "$1" | tr '\n' ' ')into .venv"
  .venv/bin/pip install --quiet --disable-pip-version-check -r "$1" ||
    fail "pip could not install $1" "is the network there? pip's own message is above"
  cp "$1" "$stamp"
}

# configure PRESET; build PRESET [TARGET...]. CAIRN_BUILT=1: a script that calls this one has built already.
configure() {
  [ -f "build/$1/build.ninja" ] || step "configuring $1"
  # Quiet unless it fails; ninja configures again by itself when a CMake file changes.
  if [ ! -f "build/$1/build.ninja" ]; then
    log=$(cmake --preset "$1" 2>&1) || { printf '%s\n' "$log" >&2; fail "cmake --preset $1 failed"; }
  fi
}
build() {
  [ -z "${CAIRN_BUILT:-}" ] || return 0
  preset=$1
  shift
  configure "$preset"
  step "building $preset${*:+: $*}"
  # shellcheck disable=SC2046
  cmake --build "build/$preset" -j "$jobs" $([ $# -gt 0 ] && echo --target "$@") >&2 ||
    fail "the build failed" "the first error is above; 'rm -rf build/$preset' starts over"
}
