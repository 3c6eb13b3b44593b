#!/bin/bash
# completion.sh TALLYWHEEL FOLDER -- what bash and zsh offer is what the command's help says, no more and no less.
# Method: the functions of packaging/completion are called as a shell calls them; for zsh what they hand to its own
# functions is looked at. Prints TAP.
set -u
tool=$(realpath "$1")
completion=$(realpath "$2/../../packaging/completion")
# shellcheck source=tests/support/tap.sh disable=SC2154
. "$2/../support/tap.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
touch "$work/access.log" "$work/access one.log"
cd "$work" || exit 2

# same WHAT THESE THOSE: two lists of lines, in any order
same() {
    diff <(sort -u <<<"$2") <(sort -u <<<"$3") >diff.txt && return
    sed "s/^/# $1: /" diff.txt
    return 1
}

options_of() { # COMMAND: by its help; demo names them in its first line
    "$tool" "$1" --help | sed -n '/^Usage:/p; /^  --/s/\( --[a-z-]*\).*/\1/p' | grep -oE -e '--[a-z][a-z-]*'
}
commands=$("$tool" --help | grep -oE '^  [a-z][a-z-]*' | tr -d ' ')
formats=$("$tool" count --format '?' 2>&1 | sed 's/.*is one of //' | tr -s ', ' '\n')
shapes=$("$tool" audit --redis redis://x --shape '?' 2>&1 | sed 's/.*is one of //' | tr -s ', ' '\n')

echo 1..9

# shellcheck source=/dev/null
. "$completion/tallywheel.bash"
offered() { # WORDS...: what bash would show behind them, a line each; the last is what was begun
    COMP_WORDS=(tallywheel "$@")
    COMP_CWORD=$#
    _tallywheel "$tool" "${COMP_WORDS[$#]}" "${COMP_WORDS[$# - 1]}"
    printf '%s\n' "${COMPREPLY[@]}"
}

same commands "$(offered '')" "$commands"$'\n--help\n--version'
ok $? 'bash offers the commands of the help'
wrong=0
for command in $commands; do same "$command" "$(offered "$command" --)" "$(options_of "$command")" || wrong=1; done
ok $wrong 'and behind each command the options of its help'
same prefix "$(offered count --tls-k)" --tls-key && same formats "$(offered count --format '')" "$formats" &&
    same numbers "$(offered count --top '')" ''
ok $? 'a few values where there are a few, nothing where anything may stand'
same files "$(offered count acc)" $'access.log\naccess one.log' && same authorities "$(offered audit --tls-ca access.)" access.log
ok $? 'and files where a file may stand'
same shapes "$(offered audit --shape '')" "$shapes"
ok $? 'the shapes that it names are those of the command'

if ! command -v zsh >/dev/null 2>&1; then
    for which in 6 7 8 9; do skip "zsh, $which" "zsh is not installed: apt-get install zsh"; done
    exit
fi
cat >asked.zsh <<'ASKED'
completion=$1
shift
_describe() { print -rl -- "${(@P)2}" }
_arguments() { print -rl -- "$@" }
words=("$@") CURRENT=$#
source $completion/_tallywheel
ASKED
asked() { # WORDS...: what zsh is handed
    zsh -f asked.zsh "$completion" "$tool" "$@"
}
same commands "$(asked '' | cut -d : -f 1)" "$commands"
ok $? 'zsh offers the commands of the help'
wrong=0
for command in $commands; do
    same "$command" "$(asked "$command" '' | sed -n 's/^\(--[a-z-]*\)\[.*/\1/p')" "$(options_of "$command")" || wrong=1
done
ok $wrong 'and behind each command the options of its help'
asked count '' >specs.txt && grep -qF -- '--top[show only the N greatest counts of each window]:N: ' specs.txt &&
    grep -qxF -- '*:file:_files' specs.txt && grep -q -e '^--tls-ca\[.*\]:FILE:_files$' specs.txt
ok $? 'with what the help says of them, and files'
same formats "$(sed -n 's/^--format.*(\(.*\))$/\1/p' specs.txt | tr ' ' '\n')" "$formats"
ok $? 'and a few values where there are a few'
