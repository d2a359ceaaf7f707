use pario::*;
#[test]
fn scratch() {
    let dir = std::path::PathBuf::from("/tmp/pario-scratch-disk");
    let options = EmbedOptions { servers: 1, store: EmbedStore::Direct, memory_bytes: 4 << 20, outbox_bytes: 1 << 20, dir: Some(dir), ..EmbedOptions::default() };
    let partition = Partition::embed(&options).unwrap();
    let file = partition.create("f").unwrap();
    let data = vec![5; 64 << 10];
    for n in 0..1000u64 {
        if let Err(e) = file.write_at(n * (64 << 10), &data) { println!("{n}: {e}"); break; }
    }
    println!("{:?}", file.sync());
    println!("{:?}", file.sync());
}
