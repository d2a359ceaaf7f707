# Sums up the output of `cargo test --no-fail-fast`, given -v status=EXIT_CODE.
# Prints: passed failed ignored filtered. A test binary that ended without a result (it crashed, was killed, did not
# compile) counts as one failure, and so does a failure of cargo that left no other trace.
match($0, /test result: (ok|FAILED)\. [0-9]+ passed; [0-9]+ failed; [0-9]+ ignored; [0-9]+ measured; [0-9]+ filtered out/) {
    split(substr($0, RSTART, RLENGTH), field, " ")
    passed += field[4]
    failed += field[6]
    ignored += field[8]
    filtered += field[12]
    if (field[3] == "FAILED.") red_targets++
}
/^error: [0-9]+ targets? failed:$/ { failed_targets = $2 }
END {
    if (red_targets < failed_targets) failed += failed_targets - red_targets
    if (status != 0 && failed == 0) failed = 1
    print passed + 0, failed + 0, ignored + 0, filtered + 0
}
