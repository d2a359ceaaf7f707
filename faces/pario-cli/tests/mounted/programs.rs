//! Programs that know files only: git, tar, make, SQLite, a shell; results as on a plain directory.

use std::fs;

use crate::fixture::{MountFixture, shell};

#[test]
fn needs_root_git_keeps_its_history() {
    let fixture = MountFixture::new(1);
    let dir = fixture.dir(0);
    let said = shell(
        dir,
        "git init -q r; cd r; git config user.email a@example.org; git config user.name A
         for i in 1 2 3 4 5 6 7 8; do mkdir d$i; echo $i > d$i/f; ln -s f d$i/s; done
         git add .; git commit -qm one; git status --porcelain
         echo changed > d3/f; git mv d4 e4; git rm -q d5/s; git commit -qam two; git gc -q; git fsck --strict
         git checkout -q HEAD~1; git status --porcelain; cat d3/f; git checkout -q -
         git clone -q . ../copy; cd ../copy; git log --format=%s; cat d3/f; ls",
    );
    assert_eq!(said, "3\ntwo\none\nchanged\nd1\nd2\nd3\nd5\nd6\nd7\nd8\ne4\n");
    fixture.end();
}

#[test]
fn needs_root_tar_brings_back_what_it_packed() {
    let fixture = MountFixture::new(1);
    let dir = fixture.dir(0);
    let said = shell(
        dir,
        "mkdir tree; cd tree; mkdir -p a/b/c; printf x > a/one; ln a/one a/two; ln -s ../one a/b/link; mkfifo a/pipe
         head -c 3000000 /dev/urandom > a/b/c/large; chmod 6750 a/one; chmod 1777 a/b; touch -d '2001-02-03 04:05:06.789' a/one
         touch -d '1999-01-01 00:00:01' a/b; cd ..
         tar -cf t.tar tree; mkdir back; tar -xpf t.tar -C back
         list() { (cd $1; find . -exec stat -c '%n %A %h %U %Y %s' {} + | sort); }
         list tree > one; list back/tree > two
         # The length of a directory is the number of its entries, in both.
         diff one two; cmp tree/a/b/c/large back/tree/a/b/c/large; readlink back/tree/a/b/link; wc -l < one",
    );
    assert_eq!(said, "../one\n9\n");
    fixture.end();
}

#[test]
fn needs_root_make_builds_what_changed() {
    let fixture = MountFixture::new(1);
    let dir = fixture.dir(0);
    for (name, text) in [
        ("Makefile", "prog: a.o b.o\n\tcc -o $@ a.o b.o\n%.o: %.c h.h\n\tcc -c -o $@ $<\nb.o: only.h\n"),
        ("h.h", "int b(void);\n"),
        ("only.h", "#define N 41\n"),
        (
            "a.c",
            "#include <stdio.h>\n#include \"h.h\"\nint main(void) { printf(\"%d\\n\", b()); return 0; }\n",
        ),
        ("b.c", "#include \"h.h\"\n#include \"only.h\"\nint b(void) { return N + 1; }\n"),
    ] {
        fs::write(dir.join(name), text).unwrap();
    }
    shell(dir, "make -s -j2");
    assert_eq!(shell(dir, "./prog; make -q && echo up to date"), "42\nup to date\n");
    assert_eq!(
        shell(dir, "echo '#define N 1' > only.h; make -s -W only.h; ./prog; make -q && echo done"),
        "2\ndone\n"
    );
    fixture.end();
}

#[test]
fn needs_root_sqlite_finds_its_database_whole() {
    let fixture = MountFixture::new(1);
    let dir = fixture.dir(0);
    for journal in ["delete", "truncate", "wal"] {
        let said = shell(
            dir,
            &format!(
                "sqlite3 {journal}.db \"pragma journal_mode={journal}; create table t(a integer primary key, b text);
                 with recursive n(i) as (select 1 union all select i+1 from n where i<2000) insert into t select i, hex(randomblob(50)) from n;
                 delete from t where a % 3 = 0; vacuum; pragma integrity_check; select count(*) from t;\"
                 sqlite3 {journal}.db 'pragma integrity_check; select count(*) from t;'"
            ),
        );
        assert_eq!(said, format!("{journal}\nok\n1334\nok\n1334\n"));
    }
    // Two programs add rows at the same time; each waits for the other's lock.
    let add = "for i in 1 2 3 4 5 6 7 8 9 10; do sqlite3 -cmd '.timeout 60000' delete.db \"insert into t(b) values('x')\"; done";
    let said = shell(
        dir,
        &format!(
            "({add}) & ({add}); wait; sqlite3 delete.db \"pragma integrity_check; select count(*) from t where b='x'\""
        ),
    );
    assert_eq!(said, "ok\n20\n");
    fixture.end();
}

#[test]
fn needs_root_a_shell_redirects_maps_and_executes() {
    let fixture = MountFixture::new(1);
    let dir = fixture.dir(0);
    let said = shell(
        dir,
        "cat > here <<END
one
two
END
         echo three >> here; sort -r here > sorted; cat sorted
         cp /bin/true t; ./t; printf '#!/bin/sh\\necho script\\n' > s; chmod +x s; ./s
         exec 3<>both; echo abc >&3; exec 3<both; cat <&3
         cp --sparse=always /bin/sh copy; cmp /bin/sh copy; dd if=copy of=half bs=64k count=1 status=none; stat -c %s half
         mkfifo pipe; (echo through the pipe > pipe) & cat pipe; wait",
    );
    assert_eq!(said, "two\nthree\none\nscript\nabc\n65536\nthrough the pipe\n");
    fixture.end();
}

#[test]
fn needs_root_run_mounts_for_the_life_of_its_command() {
    let cli = crate::support::CliFixture::new();
    let (work, out) = (cli.text("work"), cli.text("out"));
    let script = format!("echo result > {work}/file; mkdir {work}/d; stat -f -c %T {work}");
    let said = cli.pario(&[
        "run",
        "-q",
        "--servers",
        "2",
        "--dir",
        &cli.text("data"),
        "--mount",
        &work,
        "--stage-out",
        &out,
        "--",
        "sh",
        "-c",
        &script,
    ]);
    assert_eq!((said.code, said.out.as_str()), (0, "fuseblk\n"), "{said:?}");
    assert_eq!(fs::read_to_string(cli.path("out/file")).unwrap(), "result\n");
    assert!(!crate::fixture::is_mounted(&cli.path("work")));
    cli.assert_nothing_left();
}
