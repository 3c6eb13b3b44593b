#!/bin/sh
# shellcheck disable=SC2181  # a status is looked at where it is compared
# count_output.sh TOOL FOLDER -- what is printed: order, escapes, JSON, the table, keys of several fields, offsets.
# Covers: tools/common/file_new.c, tools/count/svg.c, tools/count/print.c, tools/count/rows.c.
tool=$1
# shellcheck source=tests/cli/cli.sh disable=SC2154
. "$2/cli.sh"
plan 43

# Keys with a tab, a backslash, broken UTF-8, a control byte, a NUL, an umlaut, quotes.
{
    printf '10.0.0.1 - - [17/May/2015:10:05:03 +0000] "a\tb" 200 1 "-" "x"\n'
    printf '10.0.0.1 - - [17/May/2015:10:05:03 +0000] "a\\\\b" 200 1 "-" "x"\n'
    printf '10.0.0.1 - - [17/May/2015:10:05:03 +0000] "a\377\300\257b" 200 1 "-" "x"\n'
    printf '10.0.0.1 - - [17/May/2015:10:05:03 +0000] "a\033[31m" 200 1 "-" "x"\n'
    printf '10.0.0.1 - - [17/May/2015:10:05:03 +0000] "a\000b" 200 1 "-" "x"\n'
    printf '10.0.0.1 - - [17/May/2015:10:05:03 +0000] "\303\274\\"q\\"" 200 1 "-" "x"\n'
} >"$work/odd"
{
    printf '2015-05-17T10:00:00Z\ta\\x00b\t1\n'
    printf '2015-05-17T10:00:00Z\ta\\tb\t1\n'
    printf '2015-05-17T10:00:00Z\ta\\x1B[31m\t1\n'
    printf '2015-05-17T10:00:00Z\ta\\\\\\\\b\t1\n'
    printf '2015-05-17T10:00:00Z\ta\\xFF\\xC0\\xAFb\t1\n'
    printf '2015-05-17T10:00:00Z\t\303\274\\\\"q\\\\"\t1\n'
} >"$work/want"
run 0 count --key 5 --output tsv "$work/odd" && same "$work/out" "$work/want" && err_is_empty
ok $? 'tsv: odd bytes are escaped, rows are sorted by the bytes themselves'
run 0 count --key 5 --output json "$work/odd" && python3 - "$work/out" <<'END'
import json, sys
(window,) = json.load(open(sys.argv[1], encoding="utf-8"))
assert window["window"] == "2015-05-17T10:00:00Z"
keys = [(c["key"], c.get("key_hex"), c["count"]) for c in window["counts"]]
assert keys == [("a\0b", None, 1), ("a\tb", None, 1), ("a\033[31m", None, 1), ("a\\\\b", None, 1),
                ("a\ufffd\ufffd\ufffdb", "61ffc0af62", 1), ("ü\\\"q\\\"", None, 1)], keys
END
ok $? 'json: valid, keys exact, broken UTF-8 marked and given in hexadecimal'
run 0 count --key 5 "$work/odd" && ! tr -d '\n' <"$work/out" | grep -q '[[:cntrl:]]'
ok $? 'table: no control byte reaches the terminal'

printf '' >"$work/none"
run 0 count --output json "$work/none" && [ "$(cat "$work/out")" = '[]' ]
ok $? 'json of nothing is an empty array'

{
    printf '1431857103\tb\t2\n1431857103\ta\t2\n1431857103\tc\t10\n1431857103\tneg\t-5\n'
    printf '1431853503\tearlier\n-1\tbefore 1970\n1431857103\ta\t+1\n'
} >"$work/tsv"
{
    printf '1969-12-31T23:00:00Z\tbefore 1970\t1\n2015-05-17T09:00:00Z\tearlier\t1\n'
    printf '2015-05-17T10:00:00Z\tc\t10\n2015-05-17T10:00:00Z\ta\t3\n2015-05-17T10:00:00Z\tb\t2\n2015-05-17T10:00:00Z\tneg\t-5\n'
} >"$work/want"
run 0 count --format tsv --output tsv "$work/tsv" && same "$work/out" "$work/want"
ok $? 'deltas, negative ones too; windows in order of time, rows by count'
tr '\n' '\r' <"$work/tsv" | sed 's/\r/\r\n/g' >"$work/crlf"
run 0 count --format tsv --output tsv "$work/crlf" && same "$work/out" "$work/want"
ok $? 'carriage returns at the ends of lines belong to no key'

log() { # TIME
    printf '10.0.0.1 - frank [%s] "GET /x HTTP/1.1" 404 1 "-" "Some Agent"\n' "$1"
}
{
    log '17/May/2015:10:05:03 +0200'
    log '17/May/2015:08:59:59 +0000'
    log '17/May/2015:00:30:00 -0800'
} >"$work/offsets"
printf '2015-05-17T08:00:00Z\t10.0.0.1\t3\n' >"$work/want"
run 0 count --output tsv "$work/offsets" && same "$work/out" "$work/want"
ok $? "a line's own offset is honoured"
printf '2015-05-16T16:00:00Z\t10.0.0.1\t3\n' >"$work/want"
run 0 count --output tsv --window 1d --utc-offset +08:00 "$work/offsets" && same "$work/out" "$work/want"
ok $? 'with --utc-offset +08:00 days begin at midnight in Shanghai'
run 0 count --window 1d --utc-offset=+08:00 "$work/offsets" && grep -q '^Sun 2015-05-17 +08:00  3 counts of 1 key$' "$work/out"
ok $? "table: the heading is in the offset's time"

printf '2015-05-17T08:00:00Z\t404:frank:Some Agent\t3\n' >"$work/want"
run 0 count --output tsv --key 6,3,9 "$work/offsets" && same "$work/out" "$work/want"
ok $? 'several fields are joined in the order given'
run 1 count --output tsv --key 10 "$work/offsets" && err_has 'fewer fields than --key needs'
ok $? 'a field that no line has'
printf '[2001:db8::1]:443 - john smith [17/May/2015:08:05:03 +0000] "GET / HTTP/1.1" 200 1\n' >"$work/spaces"
printf '2015-05-17T08:00:00Z\tjohn smith\t1\n' >"$work/want"
run 0 count --output tsv --key 3 "$work/spaces" && same "$work/out" "$work/want"
ok $? 'the client may be an address in brackets with its port'
sed 's/^[^ ]* /[2001:db8::1] /' "$work/spaces" >"$work/spaces2"
run 0 count --output tsv --key 3 "$work/spaces2" && same "$work/out" "$work/want"
ok $? "a user's name with a space is all up to the time, behind a client in brackets"

# Behind a virtual host: recognised line by line, however the host and the client are written.
rest='[17/May/2015:08:05:03 +0000] "GET / HTTP/1.1" 200 1 "-" "agent"'
{
    echo "shop.example:443 10.0.0.1 - - $rest"
    echo "shop.example 10.0.0.1 - frank $rest"
    echo "shop.example:80 2001:db8::1 - - $rest"
    echo "intranet:80 desk - - $rest"
} >"$work/vhost"
echo "10.0.0.1 - frank $rest" >"$work/plain"
echo "10.0.0.9 - john smith $rest" >>"$work/plain"
hour=2015-05-17T08:00:00Z
printf "%b" "$hour\t10.0.0.1\t3\n$hour\t10.0.0.9\t1\n$hour\t2001:db8::1\t1\n$hour\tdesk\t1\n" >"$work/want"
run 0 count --output tsv "$work/vhost" "$work/plain" && same "$work/out" "$work/want" && err_is_empty
ok $? 'behind a virtual host the client is the key, in the same file or not'
run 0 count --output tsv --format combined "$work/vhost" "$work/plain" && same "$work/out" "$work/want"
ok $? 'also where combined was asked for'
run 0 count --output tsv --key 5 --format vhost_combined "$work/vhost" &&
    [ "$(cat "$work/out")" = "$hour${tab}GET / HTTP/1.1${tab}4" ]
ok $? 'fields count from the client, so that one --key goes for both'
printf "%b" "$hour\tshop.example:443:10.0.0.1\t1\n$hour\tshop.example:80:2001:db8::1\t1\n$hour\tshop.example:10.0.0.1\t1\n$hour\tintranet:80:desk\t1\n" |
    sort_rows >"$work/want"
run 0 count --output tsv --key host,client --format vhost_combined "$work/vhost" && same "$work/out" "$work/want"
ok $? 'the host is a part of the key where its name is said'
run 0 count --output tsv --key host "$work/vhost" "$work/plain" && err_has '2 lines skipped' &&
    err_has 'the line does not begin with a virtual host'
ok $? 'a line without a host has none to count'
run 1 count --output tsv --format vhost_combined "$work/plain" && err_has 'the line does not begin with a virtual host'
ok $? 'where every line is to have one, a line without is not read'

{
    echo '2024-05-01 00:00:01 install foo:amd64 <none> 1.0'
    echo '2024-05-01 00:00:02 status installed foo:amd64 1.0'
    echo '2024-05-01 00:00:02 status half-installed foo:amd64 1.0'
    echo 'garbage'
} >"$work/dpkg"
printf '2024-05-01T00:00:00Z\tstatus\t2\n2024-05-01T00:00:00Z\tinstall\t1\n' >"$work/want"
run 0 count --format dpkg --output tsv "$work/dpkg" && same "$work/out" "$work/want" &&
    err_has "1 line skipped, first: $work/dpkg:4: no time like 2024-05-01 12:00:01 at the start"
ok $? 'dpkg: the action is the key'
printf '2024-04-30T22:00:00Z\tinstall:foo:amd64\t1\n' >"$work/want"
head -n 1 "$work/dpkg" >"$work/dpkg1"
run 0 count --format dpkg --key 3,4 --utc-offset +02:00 --output tsv "$work/dpkg1" && same "$work/out" "$work/want"
ok $? "dpkg: its local times are taken as in --utc-offset"

awk 'BEGIN { for (i = 0; i < 1000; i++) for (j = 0; j <= i % 7; j++) print "1431857103\tkey" i }' >"$work/ties"
run 0 count --format tsv --output tsv "$work/ties" && sort_rows <"$work/out" >"$work/want" && cp "$work/out" "$work/all" &&
    same "$work/all" "$work/want" && run 0 count --format tsv --output tsv --top 400 "$work/ties" &&
    head -n 400 "$work/want" >"$work/top" && same "$work/out" "$work/top"
ok $? 'equal counts: by key in byte order, with and without --top'
run 0 count --format tsv --top 2 "$work/ties" && grep -q '(998 more keys)' "$work/out"
ok $? 'table: what --top leaves out is summed up'

# Distinct values: three clients of page a in the first hour, one of them twice; two of page b; one in the next hour.
visit() { # CLIENT TIME PAGE USER
    printf '%s - %s [17/May/2015:%s +0000] "GET /%s HTTP/1.1" 200 1 "-" "x"\n' "$1" "$4" "$2" "$3"
}
{
    visit 10.0.0.1 10:00:00 a ann
    visit 10.0.0.2 10:10:00 a ann
    visit 10.0.0.1 10:20:00 a bob
    visit 10.0.0.3 10:59:59 a ann
    visit 10.0.0.1 10:00:00 b ann
    visit 10.0.0.2 10:00:01 b ann
    visit 10.0.0.1 09:59:59 a ann
} >"$work/visits"
{
    printf '2015-05-17T09:00:00Z\tGET /a HTTP/1.1\t1\n'
    printf '2015-05-17T10:00:00Z\tGET /a HTTP/1.1\t3\n2015-05-17T10:00:00Z\tGET /b HTTP/1.1\t2\n'
} >"$work/want"
run 0 count --key 5 --distinct 1 --output tsv "$work/visits" && same "$work/out" "$work/want" && err_is_empty
ok $? '--distinct: different clients of each page, by hour'
printf '2015-05-17T00:00:00Z\tGET /a HTTP/1.1\t4\n2015-05-17T00:00:00Z\tGET /b HTTP/1.1\t2\n' >"$work/want"
run 0 count --key 5 --distinct 1,3 --window 1d --output tsv "$work/visits" && same "$work/out" "$work/want"
ok $? '--distinct of several fields: their different combinations'
run 0 count --key 5 --distinct 1 --top 1 "$work/visits" && grep -q '^Sun 2015-05-17 10:00 UTC  2 keys$' "$work/out" &&
    grep -q '(1 more key)' "$work/out" && ! grep -q 'counts in' "$work/out"
ok $? '--distinct, table: estimates of several keys are not summed up'
{
    printf '1431857103\tk\tx\n1431857103\tk\t\n1431857103\tk\tx\n1431857103\tk\ty\ty\n1431857103\tk\n'
    head -c 30000 /dev/zero | tr '\0' z | sed 's/^/1431857103\tlong\t/'
} >"$work/tsv3"
printf '2015-05-17T10:00:00Z\tk\t3\n2015-05-17T10:00:00Z\tlong\t1\n' >"$work/want"
run 0 count --format tsv --distinct 3 --output tsv "$work/tsv3" && same "$work/out" "$work/want" &&
    err_has "1 line skipped, first: $work/tsv3:5: no tab after the key"
ok $? '--distinct 3 of tsv: elements are bytes of any size, none included'
run 1 count --distinct 10 "$work/visits" && err_has 'fewer fields than --key and --distinct need'
ok $? '--distinct of a field that no line has'
run 0 count --key host --distinct client --format vhost_combined --output tsv "$work/vhost" &&
    grep -q "intranet:80${tab}1" "$work/out"
ok $? '--distinct behind a virtual host'

# On a terminal, which is python's here: bars where it is wide enough, nothing beyond its width. Chinese characters have
# two columns. Where standard error is the terminal, the command is to take its time: it is stopped again and again.
cat >"$work/terminal.py" <<'END'
import fcntl, os, pty, signal, struct, sys, termios, threading
main, side = pty.openpty()
fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, int(sys.argv[1]), 0, 0))
child = os.fork()
if child == 0:
    os.dup2(side, int(sys.argv[2]))
    os.execvp(sys.argv[3], sys.argv[3:])
os.close(side)
over = threading.Event()
def hold_up():
    while not over.wait(0.02):
        os.kill(child, signal.SIGSTOP)
        over.wait(0.25)
        os.kill(child, signal.SIGCONT)
holder = threading.Thread(target=hold_up)
if sys.argv[2] == "2":
    holder.start()
while True:
    try:
        piece = os.read(main, 65536)
    except OSError:
        break
    if not piece:
        break
    sys.stdout.buffer.write(piece.replace(b"\r\n", b"\n"))
over.set()
if holder.ident:
    holder.join()  # before the number of the child can be another process's
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
END
awk 'BEGIN { for (i = 0; i < 40; i++) for (j = 0; j < 40 - i; j++)
    printf "1431857103\tkey %d with a tail that is longer than a terminal is wide, or should be wide, for all that we know\n", i }' >"$work/long"
on_terminal() { # WIDTH ENVIRONMENT...
    width=$1
    shift
    env -u NO_COLOR -u LC_ALL -u LC_CTYPE LANG=C.UTF-8 TERM=xterm PYTHONCOERCECLOCALE=0 "$@" python3 "$work/terminal.py" "$width" 1 \
        "$tool" count --format tsv --top 21 "${log:-$work/long}" >"$work/out" 2>"$work/err"
}
widest() { # of the lines, which end in a newline or are overwritten
    python3 -c 'import re, sys, unicodedata
lines = re.split("[\r\n]", re.sub("\x1b\\[[0-9]*[mK]", "", open(sys.argv[1], encoding="utf-8", newline="").read()))
print(max(sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line) for line in lines))' "$work/out"
}
block=$(printf '\342\226\210')
on_terminal 80 A=1 && w=$(widest) && [ "$w" -le 80 ] && [ "$w" -gt 75 ] && [ "$(grep -c "$block" "$work/out")" -eq 21 ] &&
    [ "$(grep -c "$(printf '\342\226\210%.0s' 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20)" "$work/out")" -eq 1 ]
ok $? 'table: on a terminal bars stand beside the counts, within its width'
on_terminal 80 NO_COLOR=1 LANG=C && ! grep -q "$(printf '\033')" "$work/out" && grep -q ' 40  ####################  key 0 ' "$work/out" &&
    grep -q ' 20  ##########            key 20 ' "$work/out"
ok $? 'table: without colours where NO_COLOR says so, of # where the locale has no blocks'
on_terminal 60 A=1 && w=$(widest) && [ "$w" -le 60 ] && [ "$w" -gt 55 ] && ! grep -q "$block" "$work/out"
ok $? 'table: a narrow terminal has its columns for the keys'
awk 'BEGIN { for (i = 0; i < 9; i++) for (j = 0; j < 9 - i; j++)
    printf "1431857103\t%d \344\270\255\346\226\207\351\224\256\344\270\255\346\226\207\351\224\256\344\270\255\346\226\207\351\224\256\344\270\255\346\226\207\351\224\256\344\270\255\346\226\207\351\224\256\344\270\255\346\226\207\351\224\256\344\270\255\346\226\207\351\224\256\344\270\255\346\226\207\351\224\256\344\270\255\346\226\207\351\224\256\n", i }' >"$work/wide"
ellipsis=$(printf '\342\200\246')
log=$work/wide on_terminal 80 A=1 && w=$(widest) && [ "$w" -le 80 ] && [ "$w" -gt 75 ] && [ "$(grep -c "$ellipsis\$" "$work/out")" -eq 9 ]
ok $? 'table: keys of wide characters stay within the width, too'
log=$work/wide on_terminal 80 LANG=C && w=$(widest) && [ "$w" -le 80 ] && ! grep -q "$ellipsis" "$work/out" && [ "$(grep -c '\.\.\.$' "$work/out")" -eq 9 ]
ok $? 'table: three points where the locale has no ellipsis'
printf '1431857103\tkey\t1234567890\n' >"$work/much"
log=$work/much on_terminal 40 A=1 NO_COLOR=1 && w=$(widest) && [ "$w" -le 40 ] && grep -q '^  1,234,567,890 counts of 1 key$' "$work/out"
ok $? 'table: a heading that is too wide has two lines'
awk 'BEGIN { for (i = 0; i < 200; i++) print "1431857103\tgreat\t9007199254740992"; print "1431857103\tsmall and long, longer than a terminal is wide"; print "1431857103\tnegative\t-5" }' >"$work/much"
log=$work/much on_terminal 80 NO_COLOR=1 LANG=C && w=$(widest) && [ "$w" -le 80 ] &&
    grep -q '^1,801,439,850,948,198,400  #* *great$' "$work/out" && grep -q '^                        1  *small and lo' "$work/out"
ok $? 'table: great counts have a column that is wide enough for all'
# The bar is drawn every 200 ms, and each stop is longer. Compressed, so that it is not done before the first one.
head -c 100000000 /dev/zero | gzip -1 >"$work/zeros.gz"
progress() { # WIDTH
    python3 "$work/terminal.py" "$1" 2 "$tool" count "$work/zeros.gz" >"$work/out" 2>"$work/err"
    grep -q '%.*MiB/s' "$work/out"
}
progress 80 && grep -q '\[=* *\] ' "$work/out" && progress 40 && ! grep -q '\[=* *\] ' "$work/out"
ok $? 'progress: a bar where the terminal is wide enough, else figures'
run 0 count --format tsv --top 20 "$work/long" && ! grep -q "#\\|$(printf '\033')" "$work/out" && [ "$(widest)" -gt 80 ]
ok $? 'table: what is no terminal gets plain text, and whole keys'

# The picture is read as a browser reads it: well-formed, a bar for each window, the greatest keys with their counts.
{
    for key in '<b>&"bold"' 'plain' "$(printf 'odd\377\001')" "$(head -c 900 /dev/zero | tr '\0' 'l')"; do
        printf '1431857103\t%s\t5\n1431864303\t%s\t1\n' "$key" "$key"
    done
    printf '1431864303\tplain\t1000\n'
} >"$work/drawn"
run 0 count --format tsv --output tsv --top 1 --svg "$work/counts.svg" "$work/drawn" && [ "$(wc -l <"$work/out")" -eq 2 ] && err_is_empty &&
    python3 - "$work/counts.svg" <<'END'
import sys, xml.etree.ElementTree as tree
root = tree.parse(sys.argv[1]).getroot()
space = "{http://www.w3.org/2000/svg}"
texts = ["".join(t.itertext()) for t in root.iter(space + "text")]
bars = [r for r in root.iter(space + "rect") if r.get("class") == "window"]
keys = ["".join(t.itertext()) for t in root.iter(space + "text") if t.get("class") == "key"]
assert len(bars) == 2 and float(bars[0].get("height")) < float(bars[1].get("height")) / 40, bars
assert keys[0] == "plain" and keys[1] == '<b>&"bold"' and keys[3] == "odd\\xFF\\x01" and keys[2] == "l" * 48 + "\u2026", keys
assert "1,024 counts of 4 keys" in texts and "1,006" in texts and "2015-05-17T10:00:00Z" in texts and "2015-05-17T12:00:00Z" in texts, texts
END
ok $? '--svg: windows and keys of all of them, whatever a key is'
# U+FFFE and U+FFFF, which XML forbids; wide characters; a count whose half is no whole number.
printf '1431857103\tx\357\277\276\357\277\277\t4\n' >"$work/drawn2"
cat "$work/wide" >>"$work/drawn2"
run 0 count --format tsv --output tsv --svg "$work/counts.svg" "$work/drawn2" && python3 - "$work/counts.svg" <<'END'
import sys, xml.etree.ElementTree as tree
root = tree.parse(sys.argv[1]).getroot()
space = "{http://www.w3.org/2000/svg}"
keys = ["".join(t.itertext()) for t in root.iter(space + "text") if t.get("class") == "key"]
assert "x\\xEF\\xBF\\xBE\\xEF\\xBF\\xBF" in keys and max(len(k) for k in keys) == 26 and sum(k[-1] == "\u2026" for k in keys) == 9, keys
axis = {int(t.text): float(t.get("y")) for t in root.iter(space + "text") if t.get("class") == "count"}
assert sorted(axis) == [0, 24, 49] and abs((axis[0] - axis[24]) / 24 - (axis[0] - axis[49]) / 49) < 0.01, axis
END
ok $? '--svg: what XML forbids is escaped, wide keys are cut'
mkfifo "$work/svg_pipe"
cat "$work/svg_pipe" >"$work/got.svg" &
pid=$!
printf 'mine\n' >"$work/target.svg"
ln -s target.svg "$work/link.svg"
run 0 count --format tsv --output tsv --svg "$work/svg_pipe" "$work/drawn" && wait $pid && [ -p "$work/svg_pipe" ] &&
    run 0 count --format tsv --output tsv --svg "$work/link.svg" "$work/drawn" && [ ! -L "$work/link.svg" ] &&
    grep -q '</svg>' "$work/got.svg" && same "$work/link.svg" "$work/got.svg" && [ "$(cat "$work/target.svg")" = mine ]
ok $? '--svg: a pipe is written to; a link is replaced, and what it names is left alone'
run 0 count --format tsv --window all --svg "$work/counts.svg" "$work/none" && python3 -c 'import sys, xml.etree.ElementTree as tree
assert tree.parse(sys.argv[1]).getroot().tag.endswith("svg")' "$work/counts.svg" && [ -z "$(find "$work" -name "counts.svg.*")" ]
ok $? '--svg: a picture of nothing is one'
run 1 count --format tsv --output tsv --svg "$work/absent/counts.svg" "$work/drawn" && err_has "--svg $work/absent/counts.svg: No such file" && [ -s "$work/out" ]
ok $? '--svg: a file that cannot be written is an error; the counts are printed all the same'
