//! What a manifest says, in the words that an answer uses.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value as Json;
use toml::{Table, Value};

const TOOL: &str = "tool.v1.execute.";

/// The parts of a `Capsule.toml` that tell what a capsule is for and what it may do.
#[derive(Debug, Default, Serialize, PartialEq)]
pub struct Facts {
    pub version: String,
    pub description: String,
    pub tools: Vec<String>,
    /// What it may do, as the manifest has it; what it does not ask for is left out.
    pub capabilities: BTreeMap<String, Json>,
    pub publishes: Vec<String>,
    pub subscribes: Vec<String>,
    pub imports: Vec<String>,
    pub exports: Vec<String>,
    pub mcp_servers: Vec<String>,
}

pub fn read(text: &str) -> Result<Facts, String> {
    let root: Table = text.parse().map_err(|error: toml::de::Error| {
        format!("its manifest is no TOML: {}", error.message())
    })?;
    let package = root.get("package").and_then(Value::as_table);
    let word = |name: &str| {
        let found = package.and_then(|table| table.get(name));
        found
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_string()
    };
    let subscribes = keys(&root, "subscribe");
    Ok(Facts {
        version: word("version"),
        description: word("description"),
        tools: subscribes
            .iter()
            .filter_map(|topic| tool_of(topic))
            .collect(),
        capabilities: capabilities(&root),
        publishes: keys(&root, "publish"),
        subscribes,
        imports: interfaces(&root, "imports"),
        exports: interfaces(&root, "exports"),
        mcp_servers: names(&root, "mcp_server"),
    })
}

/// The tool that a topic calls; the results of tools are no calls.
fn tool_of(topic: &str) -> Option<String> {
    let name = topic.strip_prefix(TOOL)?;
    (!name.contains(['.', '*']) && name != "result").then(|| name.to_string())
}

fn keys(root: &Table, section: &str) -> Vec<String> {
    let table = root.get(section).and_then(Value::as_table);
    table
        .map(|table| table.keys().cloned().collect())
        .unwrap_or_default()
}

/// `ns:name` of each, whether written flat or as a table for each namespace.
fn interfaces(root: &Table, section: &str) -> Vec<String> {
    let Some(table) = root.get(section).and_then(Value::as_table) else {
        return Vec::new();
    };
    table
        .iter()
        .flat_map(|(name, value)| match value {
            Value::Table(below) if !name.contains(':') => {
                below.keys().map(|one| format!("{name}:{one}")).collect()
            }
            _ => vec![name.clone()],
        })
        .collect()
}

fn names(root: &Table, section: &str) -> Vec<String> {
    rows(root, section)
        .filter_map(|row| Some(row.get("name")?.as_str()?.to_string()))
        .collect()
}

fn rows<'a>(root: &'a Table, section: &str) -> impl Iterator<Item = &'a Table> {
    let found = root.get(section).and_then(Value::as_array);
    found.into_iter().flatten().filter_map(Value::as_table)
}

/// Those of the capsule and of its component together: a flag that is set, a list that holds something.
fn capabilities(root: &Table) -> BTreeMap<String, Json> {
    let mut held = BTreeMap::<String, Json>::new();
    for table in std::iter::once(root).chain(rows(root, "component")) {
        let asked = table.get("capabilities").and_then(Value::as_table);
        for (name, value) in asked.into_iter().flatten() {
            match value {
                Value::Boolean(true) => {
                    held.insert(name.clone(), Json::Bool(true));
                }
                Value::Array(entries) if !entries.is_empty() => {
                    let list = held
                        .entry(name.clone())
                        .or_insert_with(|| Json::Array(Vec::new()));
                    for entry in entries.iter().filter_map(Value::as_str) {
                        if let Some(list) = list
                            .as_array_mut()
                            .filter(|list| !list.contains(&entry.into()))
                        {
                            list.push(entry.into());
                        }
                    }
                }
                _ => {}
            }
        }
    }
    held
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_told_in_its_own_words() {
        let facts = read(
            r#"
            [package]
            name = "x"
            version = "1.2.3"
            description = "Does x"
            [[component]]
            id = "x"
            [component.capabilities]
            net = ["a.test", "b.test"]
            [capabilities]
            net = ["a.test"]
            uplink = false
            allow_prompt_injection = true
            kv = []
            [publish]
            "tool.v1.execute.*.result" = "opaque"
            [subscribe]
            "tool.v1.execute.do_x" = { wit = "opaque", handler = "do_x" }
            "tool.v1.execute.*.result" = "opaque"
            "tool.v1.execute.result" = "opaque"
            [imports]
            "astrid:llm" = "1.0"
            [imports.other]
            one = { version = "1.0", optional = true }
            [exports]
            "astrid:x" = "1.0.0"
            [[mcp_server]]
            name = "files"
            "#,
        )
        .unwrap();
        assert_eq!(facts.version, "1.2.3");
        assert_eq!(facts.description, "Does x");
        assert_eq!(facts.tools, ["do_x"]);
        assert_eq!(
            facts.capabilities["net"],
            serde_json::json!(["a.test", "b.test"])
        );
        assert_eq!(
            facts.capabilities.keys().collect::<Vec<_>>(),
            ["allow_prompt_injection", "net"]
        );
        assert_eq!(facts.imports, ["astrid:llm", "other:one"]);
        assert_eq!(facts.exports, ["astrid:x"]);
        assert_eq!(facts.mcp_servers, ["files"]);
    }

    #[test]
    fn what_is_odd_is_no_fault_and_what_is_no_toml_is_told() {
        assert_eq!(
            read("package = 1\ncomponent = 2\ncapabilities = []"),
            Ok(Facts::default())
        );
        assert!(
            read("[package")
                .unwrap_err()
                .starts_with("its manifest is no TOML: ")
        );
    }
}
