//! `pario h5 show`: what an object is.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use pario_container::{Attribute, DataLayout, DataSpace, Dataset, Tree};
use serde_json::{Value, json};

use super::ls::words;
use super::object::{ShownObject, blob, failed, open};
use crate::context::Context;
use crate::error::{CliResult, one_line};

/// Arguments of `pario h5 show`.
#[derive(ClapArgs, Debug)]
pub(crate) struct Args {
    /// An object of a tree
    #[arg(value_name = "PATH")]
    path: PathBuf,
}

/// Elements of a value as text.
fn value(tree: &mut Tree, id: u64, attribute: &Attribute) -> String {
    let size = usize::try_from(attribute.element.size).unwrap_or(1).max(1);
    let mut get = |element: &[u8]| blob(tree, id, element);
    let elements = attribute.value.0.chunks_exact(size);
    let shown: Vec<String> =
        elements.map(|element| attribute.element.description.shown(element, &mut get)).collect();
    match attribute.space {
        DataSpace::Null => "(empty)".into(),
        DataSpace::Scalar => shown.concat(),
        DataSpace::Simple { .. } => format!("[{}]", shown.join(", ")),
    }
}

fn layout(dataset: &Dataset) -> String {
    match &dataset.layout {
        DataLayout::Contiguous => "contiguous".into(),
        DataLayout::Ordered { chunk } => format!("chunks {chunk:?} in order"),
        DataLayout::Indexed { chunk } => format!("chunks {chunk:?} with an index"),
    }
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let ShownObject { mut tree, id } = open(&args.path)?;
    let header = tree.header(id).map_err(|error| failed(&error))?.clone();
    let attributes: Vec<(String, String, String)> = header
        .attributes
        .iter()
        .map(|one| (one.name.to_string(), one.element.description.label(), value(&mut tree, id, one)))
        .collect();
    let mut lines =
        vec![("what", words(&header)), ("id", header.id.to_string()), ("links", header.links.to_string())];
    if let Some(dataset) = header.dataset() {
        let stored = tree.stored_bytes(id).map_err(|error| failed(&error))?;
        lines.push(("layout", layout(dataset)));
        lines.push(("bytes", format!("{}, {stored} stored", dataset.bytes())));
        let filters: Vec<String> = dataset.filters.iter().map(|filter| filter.number.to_string()).collect();
        lines.push(("filters", if filters.is_empty() { "none".into() } else { filters.join(", ") }));
    }
    if context.speech.json {
        let facts: serde_json::Map<String, Value> =
            lines.into_iter().map(|(name, text)| (name.to_owned(), Value::String(text))).collect();
        let attributes: Vec<Value> = attributes
            .into_iter()
            .map(|(name, kind, value)| json!({ "name": name, "type": kind, "value": value }))
            .collect();
        return context.json(&json!({ "object": facts, "attributes": attributes }));
    }
    for (name, text) in lines {
        context.line(format!("{name:<10} {}", one_line(&text)))?;
    }
    for (name, kind, value) in attributes {
        context.line(format!("@{} ({kind}) = {}", one_line(&name), one_line(&value)))?;
    }
    Ok(())
}
