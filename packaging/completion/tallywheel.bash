# tallywheel.bash -- completion of the command `tallywheel` in bash.
# Always true: what may follow is asked of the command itself (--help), so a new option needs no change here.
# shellcheck shell=bash

# _tallywheel_options COMMAND...: a line for each option of a help, with the word for its value if it takes one.
_tallywheel_options() {
    "$@" --help 2>/dev/null | awk '
        /^Usage:/ {
            gsub(/\[|\]|[|]/, " ")
            for (i = 1; i <= NF; i++) if ($i ~ /^--/) print $i, $(i + 1) ~ /^[A-Z]/ ? $(i + 1) : ""
        }
        match($0, /^  --[a-z][a-z-]*( [^ ]+)?/) { print substr($0, 3, RLENGTH - 2) }'
}

# _tallywheel_values COMMAND... OPTION WORD: the values of an option that takes one of a few.
_tallywheel_values() {
    local word=${*: -1}
    case $word in
    FORM | FORMAT) "${@:1:$#-1}" '?' 2>&1 | sed -n 's/.* is one of //p' | tr -d , ;;
    SHAPE) echo string hash zset ;;
    esac
}

_tallywheel() {
    local tool=$1 word=$2 before=$3 options value
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        options=$("$tool" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z-]*\)  .*/\1/p')
        mapfile -t COMPREPLY < <(compgen -W "$options --help --version" -- "$word")
        return
    fi
    options=$(_tallywheel_options "$tool" "${COMP_WORDS[1]}")
    value=$(awk -v option="$before" '$1 == option && $2 != "" { print $2; exit }' <<<"$options")
    if [ "$value" = '' ] && [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(cut -d ' ' -f 1 <<<"$options")" -- "$word")
    elif [ "$value" = '' ] || [ "$value" = FILE ]; then
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    else
        mapfile -t COMPREPLY < <(compgen -W "$(_tallywheel_values "$tool" "${COMP_WORDS[1]}" "$before" "$value")" -- "$word")
    fi
}

complete -F _tallywheel tallywheel
