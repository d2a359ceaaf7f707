//! `pario.h`: every function, by two ranks of `pario run -n 2`.

use crate::compilers::Compiler;
use crate::fixture::Workplace;

#[test]
fn every_function_of_partitions_and_groups() {
    for compiler in Compiler::OF_C.into_iter().filter(|compiler| compiler.is_here()) {
        let world = Workplace::new();
        let program = world.program(compiler, "partition.c");
        let ran = world.run_on_partition(&["-n", "2"], &program, &[], &[]);
        ran.check(compiler.command());
        assert_eq!(ran.out.matches("0 failures").count(), 2, "both ranks: {}", ran.out);
    }
}
