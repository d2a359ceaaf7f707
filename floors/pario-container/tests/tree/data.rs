//! Random reads, writes and resizes of datasets against a model in memory.

use pario_container::{FLETCHER32, FilterSpec, Hex, ROOT_ID, SHUFFLE};

use super::scene::{READ, Random, WRITE, add_dataset, bytes, create, dataset, find, gzip, open, read, seed};

/// A dataset of two dimensions and what it should hold.
struct Model {
    extent: [u64; 2],
    fill: i32,
    cells: std::collections::HashMap<(u64, u64), i32>,
}

impl Model {
    fn at(&self, row: u64, column: u64) -> i32 {
        self.cells.get(&(row, column)).copied().unwrap_or(self.fill)
    }

    fn all(&self) -> Vec<i32> {
        let [rows, columns] = self.extent;
        (0..rows)
            .flat_map(|row| (0..columns).map(move |column| (row, column)))
            .map(|(r, c)| self.at(r, c))
            .collect()
    }

    fn resize(&mut self, extent: [u64; 2]) {
        self.extent = extent;
        self.cells.retain(|(row, column), _| *row < extent[0] && *column < extent[1]);
    }
}

fn run(random: &mut Random, filters: &[FilterSpec], fill: i32) {
    let dir = tempfile::tempdir().unwrap();
    let mut tree = create(dir.path());
    let extent = [1 + random.below(12), 1 + random.below(12)];
    let wide = random.below(2) == 0;
    let maximum = [None, if wide { None } else { Some(extent[1]) }];
    let chunk = [1 + random.below(5), 1 + random.below(5)];
    let mut new = dataset(&extent, &maximum, Some(&chunk));
    new.filters = filters.to_vec();
    new.fill = (fill != 0).then(|| Hex(fill.to_le_bytes().to_vec()));
    let mut id = add_dataset(&mut tree, ROOT_ID, "x", new).unwrap();
    let mut model = Model { extent, fill, cells: std::collections::HashMap::new() };
    for step in 0..40 {
        match random.below(5) {
            0 => {
                let columns = if wide { random.below(14) } else { extent[1] };
                let new = [random.below(14), columns];
                tree.set_extent(id, &new).unwrap();
                model.resize(new);
            }
            1 => {
                tree.close().unwrap();
                tree = open(dir.path(), WRITE);
                id = find(&mut tree, "x").unwrap();
            }
            _ => write_block(&mut tree, id, &mut model, random),
        }
        let count = model.extent[0] * model.extent[1];
        assert_eq!(read(&mut tree, id, count), model.all(), "step {step}, chunks {chunk:?}, fill {fill}");
    }
    tree.close().unwrap();
    let mut tree = open(dir.path(), READ);
    let id = find(&mut tree, "x").unwrap();
    assert_eq!(read(&mut tree, id, model.extent[0] * model.extent[1]), model.all());
}

fn write_block(tree: &mut pario_container::Tree, id: u64, model: &mut Model, random: &mut Random) {
    let [rows, columns] = model.extent;
    if rows * columns == 0 {
        return;
    }
    let (row, column) = (random.below(rows), random.below(columns));
    let (height, width) = (1 + random.below(rows - row), 1 + random.below(columns - column));
    let (mut runs, mut values) = (Vec::new(), Vec::new());
    for line in row..row + height {
        runs.push((line * columns + column, width));
        for cell in column..column + width {
            let value = i32::try_from(random.below(1 << 30)).unwrap();
            values.push(value);
            model.cells.insert((line, cell), value);
        }
    }
    tree.write_elements(id, &runs, &bytes(&values)).unwrap();
}

#[test]
fn chunks_hold_what_was_written_through_resizes() {
    let mut random = Random(seed());
    let shuffle = FilterSpec { number: SHUFFLE, optional: true, parameters: vec![4] };
    let sum = FilterSpec { number: FLETCHER32, optional: false, parameters: vec![] };
    for _ in 0..12 {
        run(&mut random, &[], 0);
        run(&mut random, &[], 7);
        run(&mut random, &[shuffle.clone(), gzip(), sum.clone()], 0);
        run(&mut random, &[gzip()], -3);
    }
}

#[test]
fn contiguous_data_is_the_file_itself() {
    let dir = tempfile::tempdir().unwrap();
    let mut tree = create(dir.path());
    let id = add_dataset(&mut tree, ROOT_ID, "x", dataset(&[2, 3], &[Some(2), Some(3)], None)).unwrap();
    tree.write_elements(id, &[(1, 2), (4, 1)], &bytes(&[10, 20, 30])).unwrap();
    assert_eq!(std::fs::read(dir.path().join("a.h5/x")).unwrap(), bytes(&[0, 10, 20, 0, 30, 0]));
    assert!(tree.write_elements(id, &[(5, 2)], &bytes(&[1, 2])).unwrap_err().to_string().contains("outside"));
}

#[test]
fn variable_length_values_of_one_call_are_one_write() {
    let dir = tempfile::tempdir().unwrap();
    let mut tree = create(dir.path());
    let id = add_dataset(&mut tree, ROOT_ID, "x", super::scene::line(1)).unwrap();
    let blobs: Vec<_> =
        (0..1000).map(|number| tree.put_blob(id, format!("value {number}").as_bytes()).unwrap()).collect();
    tree.flush_heap(id).unwrap();
    assert_eq!(tree.heap_appends(id), 1);
    tree.close().unwrap();
    let mut tree = open(dir.path(), READ);
    let id = find(&mut tree, "x").unwrap();
    for (number, blob) in blobs.iter().enumerate() {
        assert_eq!(tree.blob(id, *blob).unwrap(), format!("value {number}").into_bytes());
    }
    let mut wrong = blobs[3];
    wrong.offset += 1;
    assert!(tree.blob(id, wrong).unwrap_err().to_string().contains("checksum"));
    wrong.offset = u64::MAX - 2;
    assert!(tree.blob(id, wrong).is_err());
}
