# shellcheck shell=bash
# env.sh: node.env, read as data: nothing in it is ever evaluated. Sourced by all.sh.

declare -gA NODE_ENV=()

# Reads KEY=VALUE lines into NODE_ENV. The value is everything behind the first "=", taken as it is: no quotes, no
# expansion, no continuation. Empty lines and lines that start with "#" are skipped; the last line of a key holds.
env::load() { # FILE
  local line number=0
  [ -r "$1" ] || log::die "$1 is missing or cannot be read" "run the bootstrap action (load-bundle.sh) as root first"
  while IFS= read -r line || [ -n "$line" ]; do
    number=$((number + 1))
    [[ -z $line || $line == '#'* ]] && continue
    if [[ ! $line =~ ^([A-Z][A-Z0-9_]*)=([^[:cntrl:]]*)$ ]]; then
      log::die \
        "$1:$number: $(printf %q "$line"): not KEY=VALUE: an upper-case key, a value without control characters" \
        "correct the line (values of the site: /etc/slipway/site.env) and run the set-up again"
    fi
    NODE_ENV[${BASH_REMATCH[1]}]=${BASH_REMATCH[2]}
  done <"$1"
}

env::get() { # KEY [DEFAULT]: prints the value; an absent key without a default is a fault
  if [[ -v NODE_ENV[$1] ]]; then
    printf '%s' "${NODE_ENV[$1]}"
  elif [ "$#" -ge 2 ]; then
    printf '%s' "$2"
  else
    log::die "$SLIPWAY_NODE_ENV has no $1" "add $1=... to /etc/slipway/site.env and run the set-up again"
  fi
}

env::get_number() { # KEY DEFAULT: a whole number from 1 to 999999
  local value
  value=$(env::get "$1" "$2")
  if [[ ! $value =~ ^[1-9][0-9]{0,5}$ ]]; then
    log::die "$SLIPWAY_NODE_ENV: $1 = '$value': not a whole number from 1 to 999999" \
      "correct $1 in /etc/slipway/site.env and run the set-up again"
  fi
  printf '%s' "$value"
}

env::get_path() { # KEY DEFAULT: an absolute path of plain characters
  local value
  value=$(env::get "$1" "$2")
  if [[ ! $value =~ ^(/[A-Za-z0-9._-]+)+$ || $value == *..* ]]; then
    log::die "$SLIPWAY_NODE_ENV: $1 = '$value': not an absolute path of letters, digits, '.', '_' and '-'" \
      "correct $1 in /etc/slipway/site.env and run the set-up again"
  fi
  printf '%s' "$value"
}
