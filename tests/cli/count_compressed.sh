#!/bin/sh
# shellcheck disable=SC2181  # a status is looked at where it is compared
# count_compressed.sh TOOL FOLDER -- gzip and zstd are read as they are: alone, together, in a pipe, in several parts.
# Goal: the same rows as of the plain text; a file that is cut or damaged is an error that says so.
tool=$1
# shellcheck source=tests/cli/cli.sh disable=SC2154
. "$2/cli.sh"
plan 17
reads() { # NAME: false if this build does not
    printf '\037\213' >"$work/magic.gzip"
    printf '\050\265\057\375' >"$work/magic.zstd"
    run 1 count --format tsv "$work/magic.$1" && ! grep -qF 'does not read' "$work/err"
}

awk -v seed="$seed" 'BEGIN {
    srand(seed)
    for (i = 0; i < 60000; i++) printf "%d\tkey%d\n", 1431857103 + int(rand() * 172800), int(rand() * rand() * 3000)
}' >"$work/log"
run 0 count --format tsv --output tsv "$work/log" && cp "$work/out" "$work/want"
head -n 20000 "$work/log" >"$work/log1"
tail -n +20001 "$work/log" >"$work/log2"

try() { # NAME PROGRAM
    name=$1
    if ! reads "$name" || ! "$2" -c </dev/null >"$work/empty.$name"; then
        for sentence in whole parts pipe empty cut damaged followed; do
            skip "$name: $sentence" "no $2, or built without it: apt-get install $2 zlib1g-dev libzstd-dev"
        done
        return
    fi
    "$2" -c <"$work/log" >"$work/log.$name"
    run 0 count --format tsv --output tsv "$work/log.$name"
    same "$work/out" "$work/want" && err_is_empty
    ok $? "$name: the rows of the plain text"
    "$2" -c <"$work/log1" >"$work/parts.$name"
    "$2" -c <"$work/log2" >>"$work/parts.$name"
    run 0 count --format tsv --output tsv --threads 2 "$work/parts.$name" && same "$work/out" "$work/want" && err_is_empty
    ok $? "$name: two parts in one file"
    {
        head -c 3 "$work/log.$name"
        sleep 0.2
        tail -c +4 "$work/log.$name"
    } | "$tool" count --format tsv --output tsv - >"$work/out" 2>"$work/err"
    [ $? -eq 0 ] && same "$work/out" "$work/want"
    ok $? "$name: from a pipe, where the first bytes come alone"
    run 0 count --format tsv --output tsv "$work/empty.$name" && [ ! -s "$work/out" ] && err_is_empty
    ok $? "$name: nothing, compressed, is no mistake"
    head -c $(($(wc -c <"$work/log.$name") - 3)) "$work/log.$name" >"$work/cut.$name"
    run 1 count --format tsv --output tsv "$work/cut.$name" "$work/log2" && err_has 'end too early' && ! err_has 'skipped' >"$work/said" &&
        [ "$(wc -l <"$work/out")" -gt 1000 ]
    ok $? "$name: a file that was cut is an error; what came before the cut is counted"
    {
        head -c 20000 "$work/log.$name"
        head -c 64 /dev/zero | tr '\0' '\377'
        tail -c +20065 "$work/log.$name"
    } >"$work/bad.$name"
    run 1 count --format tsv --output tsv "$work/bad.$name" && err_has "$work/bad.$name: "
    ok $? "$name: damage is an error"
    run 1 count --follow --format tsv "$work/log.$name" && err_has "is compressed ($name); --follow reads plain text only"
    ok $? "$name: --follow says that it reads plain text only"
}
try gzip gzip
try zstd zstd
# Many files at once, read by several threads: rows and the first skipped line are those of one thread.
set --
if reads gzip; then
    for part in $(seq 12); do
        tail -n +$((part * 5000 - 4999)) "$work/log" | head -n 5000 >"$work/many$part"
        [ "$part" -eq 7 ] && sed -i '77s/.*/nonsense/' "$work/many7"
        [ "$part" -eq 9 ] && sed -i '3s/.*/nonsense/' "$work/many9"
        if [ "$part" -ne 5 ]; then gzip "$work/many$part" && mv "$work/many$part.gz" "$work/many$part"; fi
        set -- "$@" "$work/many$part"
    done
    run 0 count --format tsv --output tsv --threads 1 "$@" && cp "$work/out" "$work/one" && cp "$work/err" "$work/err1" &&
        err_has "2 lines skipped, first: $work/many7:77: " && run 0 count --format tsv --output tsv --threads 8 "$@" &&
        same "$work/out" "$work/one" && same "$work/err" "$work/err1"
    ok $? 'many files, eight threads: the rows and the complaint of one thread'
    head -c 3000 "$work/many3" >"$work/many3.cut"
    mv "$work/many3.cut" "$work/many3"
    run 1 count --format tsv --output tsv --threads 1 "$@" && cp "$work/out" "$work/one" &&
        run 1 count --format tsv --output tsv --threads 8 "$@" && same "$work/out" "$work/one" && err_has "$work/many3: the compressed data end too early"
    ok $? 'many files, one of them cut: the same'
else
    skip 'many files' 'built without zlib: apt-get install zlib1g-dev'
    skip 'many files, one of them cut' 'built without zlib: apt-get install zlib1g-dev'
fi
run 1 count --format tsv --output tsv "$work/log1" "$work/absent" "$work/log2" && same "$work/out" "$work/want"
ok $? 'plain files beside them are what they were'
