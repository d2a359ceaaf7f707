#!/bin/sh
# Runs test programs one after the other: LAUNCHER SECONDS LIST. A line of the list is a name, a number of ranks, and a command. What a
# program said is left in NAME.out and NAME.err, and a line for each says how it ended.
launcher=$1 limit=$2
while read -r name ranks command; do
    began=$(date +%s)
    # Some start themselves, from where they run.
    ln -sf "${command%% *}" .
    # Split into words on purpose.
    # shellcheck disable=SC2086
    timeout -k 5 "$limit" "$launcher" -n "$ranks" $command >"$name.out" 2>"$name.err" </dev/null
    status=$?
    echo "$name $status $(($(date +%s) - began))"
done <"$3"
