//! Tools that say what is installed for the caller and which interfaces there are. They read what the runtime shows
//! of it in the home, and change nothing.

#![deny(unsafe_code)]
#![deny(clippy::all)]

mod manifest;
mod wit;

use std::collections::BTreeMap;

use astrid_sdk::prelude::*;
use astrid_sdk::schemars;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use manifest::Facts;

const CAPSULES: &str = "home://.local/capsules";
const INTERFACES: &str = "home://wit";
const MAX_TEXT_BYTES: usize = 200 * 1024;

#[derive(Default)]
pub struct System;

/// Nothing. A tool with this argument keeps its description, one without any does not.
#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct Nothing {}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct InspectCapsuleArgs {
    /// The capsule, by the name that list_capsules gives.
    pub name: String,
}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct ReadInterfaceArgs {
    /// An interface (`tool`, `astrid:contracts/tool`) or a file (`astrid-contracts.wit`), as list_interfaces has them.
    pub name: String,
}

/// One installed capsule in a list.
#[derive(Serialize)]
pub struct Listed {
    name: String,
    version: String,
    description: String,
    tools: Vec<String>,
    capabilities: Vec<String>,
    /// Why nothing is known of it; left out where something is.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// One installed capsule: its manifest, and what the install noted.
#[derive(Serialize)]
pub struct Inspected {
    name: String,
    #[serde(flatten)]
    facts: Facts,
    installed_at: Value,
    updated_at: Value,
    wasm_hash: Value,
    /// The WIT files that it brings.
    interfaces: Vec<String>,
}

#[derive(Serialize)]
pub struct InterfaceFile {
    file: String,
    package: String,
    interfaces: Vec<String>,
}

#[derive(Debug, Serialize, PartialEq)]
pub struct Interface {
    file: String,
    package: String,
    text: String,
    /// Other files that have an interface of that name.
    also_in: Vec<String>,
}

#[derive(Serialize)]
pub struct Status {
    /// Whose capsules these are.
    principal: Option<String>,
    capsules: usize,
    tools: usize,
    interfaces: usize,
    /// Capsules of which nothing can be read.
    unreadable: Vec<String>,
    /// For each capability, the capsules that hold it.
    capabilities: BTreeMap<String, Vec<String>>,
}

#[capsule]
impl System {
    /// List the installed capsules: name, version, what each is for, its tools, and the capabilities that it holds.
    #[astrid::tool("list_capsules")]
    pub fn list_capsules(&self, _args: Nothing) -> Result<Vec<Listed>, SysError> {
        Ok(capsules()?.into_iter().map(list).collect())
    }

    /// Tell all that is known of one installed capsule: capabilities with their entries, topics, imports and exports,
    /// when it was installed, and the hash of its binary.
    #[astrid::tool("inspect_capsule")]
    pub fn inspect_capsule(&self, args: InspectCapsuleArgs) -> Result<Inspected, SysError> {
        let name = args.name.trim();
        let known = capsules()?;
        if !known.iter().any(|one| one == name) {
            return Err(unknown("capsule", name, &known));
        }
        let facts = facts_of(name).map_err(|problem| told(format!("{name}: {problem}")))?;
        let mut meta = meta_of(name);
        let files = meta.remove("wit_files");
        let mut noted = |key: &str| meta.remove(key).unwrap_or_default();
        Ok(Inspected {
            name: name.to_string(),
            facts,
            installed_at: noted("installed_at"),
            updated_at: noted("updated_at"),
            wasm_hash: noted("wasm_hash"),
            interfaces: files
                .as_ref()
                .and_then(Value::as_object)
                .map(|files| files.keys().cloned().collect())
                .unwrap_or_default(),
        })
    }

    /// List the interfaces (WIT) that the installed capsules bring, file by file.
    #[astrid::tool("list_interfaces")]
    pub fn list_interfaces(&self, _args: Nothing) -> Result<Vec<InterfaceFile>, SysError> {
        let files = interface_files()?;
        Ok(files
            .iter()
            .map(|(file, text)| InterfaceFile {
                file: file.clone(),
                package: wit::package(text).to_string(),
                interfaces: names_in(text),
            })
            .collect())
    }

    /// Read one interface, or a whole file of them, as WIT text.
    #[astrid::tool("read_interface")]
    pub fn read_interface(&self, args: ReadInterfaceArgs) -> Result<Interface, SysError> {
        find(&interface_files()?, args.name.trim()).map_err(told)
    }

    /// Tell how many capsules, tools and interfaces there are, whose they are, and which capsule holds which
    /// capability.
    #[astrid::tool("system_status")]
    pub fn system_status(&self, _args: Nothing) -> Result<Status, SysError> {
        let listed: Vec<Listed> = capsules()?.into_iter().map(list).collect();
        let mut capabilities = BTreeMap::<String, Vec<String>>::new();
        for one in &listed {
            for held in &one.capabilities {
                capabilities
                    .entry(held.clone())
                    .or_default()
                    .push(one.name.clone());
            }
        }
        Ok(Status {
            principal: runtime::caller()?.principal,
            capsules: listed.len(),
            tools: listed.iter().map(|one| one.tools.len()).sum(),
            interfaces: interface_files()?
                .iter()
                .map(|(_, text)| wit::parts(text).len())
                .sum(),
            unreadable: listed
                .iter()
                .filter(|one| one.problem.is_some())
                .map(|one| one.name.clone())
                .collect(),
            capabilities,
        })
    }
}

fn list(name: String) -> Listed {
    let (facts, problem) = match facts_of(&name) {
        Ok(facts) => (facts, None),
        Err(problem) => (Facts::default(), Some(problem)),
    };
    Listed {
        name,
        version: facts.version,
        description: facts.description,
        tools: facts.tools,
        capabilities: facts.capabilities.into_keys().collect(),
        problem,
    }
}

fn capsules() -> Result<Vec<String>, SysError> {
    names_below(CAPSULES)
}

/// What is in a folder, sorted; nothing where there is no such folder.
fn names_below(folder: &str) -> Result<Vec<String>, SysError> {
    if !fs::exists(folder)? {
        return Ok(Vec::new());
    }
    let names = fs::read_dir(folder)?.map(|entry| entry.file_name().to_string());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    Ok(names)
}

fn facts_of(name: &str) -> Result<Facts, String> {
    let path = format!("{CAPSULES}/{name}/Capsule.toml");
    let text = fs::read_to_string(&path).map_err(|_| "its manifest cannot be read".to_string())?;
    manifest::read(&text)
}

/// What the install noted; nothing where that cannot be read.
fn meta_of(name: &str) -> Map<String, Value> {
    let text = fs::read_to_string(&format!("{CAPSULES}/{name}/meta.json")).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Name and text of each file of interfaces; one that is no text is left out.
fn interface_files() -> Result<Vec<(String, String)>, SysError> {
    let names = names_below(INTERFACES)?
        .into_iter()
        .filter(|name| name.ends_with(".wit"));
    Ok(names
        .filter_map(|name| {
            Some((
                name.clone(),
                fs::read_to_string(&format!("{INTERFACES}/{name}")).ok()?,
            ))
        })
        .collect())
}

fn names_in(text: &str) -> Vec<String> {
    wit::parts(text)
        .iter()
        .map(|part| part.name.to_string())
        .collect()
}

/// The file, or the interface, of that name. `Err` says what there is.
fn find(files: &[(String, String)], name: &str) -> Result<Interface, String> {
    let whole = name.strip_suffix(".wit").unwrap_or(name);
    if let Some((file, text)) = files
        .iter()
        .find(|(file, _)| file.strip_suffix(".wit") == Some(whole))
    {
        return fitting(file, text, text, Vec::new());
    }
    let bare = name.rsplit_once('/').map_or(name, |(_, bare)| bare);
    let bare = bare.split_once('@').map_or(bare, |(bare, _)| bare);
    let mut found = files.iter().filter_map(|(file, text)| {
        let part = wit::parts(text)
            .into_iter()
            .find(|part| part.name == bare && is_meant(name, text))?;
        Some((file, text, part))
    });
    let Some((file, text, part)) = found.next() else {
        let known = files
            .iter()
            .flat_map(|(_, text)| names_in(text))
            .collect::<Vec<_>>();
        return Err(unknown_text("interface", name, &known));
    };
    fitting(
        file,
        text,
        part.text,
        found.map(|(file, _, _)| file.clone()).collect(),
    )
}

/// Whether a file has the package that a name is qualified with; a bare name is meant anywhere.
fn is_meant(name: &str, text: &str) -> bool {
    let without_version = |package: &str| package.split('@').next().unwrap_or_default().to_string();
    match name.rsplit_once('/') {
        Some((package, _)) => without_version(package) == without_version(wit::package(text)),
        None => true,
    }
}

fn fitting(file: &str, whole: &str, text: &str, also_in: Vec<String>) -> Result<Interface, String> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(format!(
            "{file} has {} bytes, more than one answer holds; read one of its interfaces: {}",
            text.len(),
            names_in(whole).join(", ")
        ));
    }
    Ok(Interface {
        file: file.to_string(),
        package: wit::package(whole).to_string(),
        text: text.to_string(),
        also_in,
    })
}

fn unknown(what: &str, name: &str, known: &[String]) -> SysError {
    told(unknown_text(what, name, known))
}

fn unknown_text(what: &str, name: &str, known: &[String]) -> String {
    if known.is_empty() {
        return format!("there is no {what} {name:?}; there is none at all");
    }
    format!(
        "there is no {what} {name:?}; there are {}",
        known.join(", ")
    )
}

fn told(problem: String) -> SysError {
    SysError::ApiError(problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> Vec<(String, String)> {
        [
            (
                "bundle.wit",
                "package a:bundle@1.0.0;\ninterface tool { f: func(); }\ninterface two {}\n",
            ),
            (
                "notes.wit",
                "package my:notes;\ninterface notes {}\ninterface tool {}\n",
            ),
        ]
        .map(|(name, text)| (name.to_string(), text.to_string()))
        .to_vec()
    }

    #[test]
    fn a_file_an_interface_and_a_qualified_one() {
        let text =
            |name: &str| find(&files(), name).map(|found| (found.file, found.text, found.also_in));
        let tool = "interface tool { f: func(); }".to_string();
        let also = vec!["notes.wit".to_string()];
        assert_eq!(
            text("tool"),
            Ok(("bundle.wit".to_string(), tool.clone(), also))
        );
        assert_eq!(
            text("a:bundle/tool@1.0.0"),
            Ok(("bundle.wit".to_string(), tool, Vec::new()))
        );
        let other = (
            "notes.wit".to_string(),
            "interface tool {}".to_string(),
            Vec::new(),
        );
        assert_eq!(text("my:notes/tool"), Ok(other));
        for name in ["notes", "notes.wit"] {
            assert_eq!(text(name).unwrap().1, files()[1].1);
        }
        assert_eq!(find(&files(), "two").unwrap().package, "a:bundle@1.0.0");
    }

    #[test]
    fn what_there_is_not_is_told_with_what_there_is() {
        assert_eq!(
            find(&files(), "../x"),
            Err("there is no interface \"../x\"; there are tool, two, notes, tool".to_string())
        );
        assert_eq!(
            find(&[], "x"),
            Err("there is no interface \"x\"; there is none at all".to_string())
        );
    }

    #[test]
    fn a_file_that_is_too_large_names_its_parts() {
        let text = format!("interface one {{}} // {}", "x".repeat(MAX_TEXT_BYTES));
        let problem = find(&[("big.wit".to_string(), text)], "big").unwrap_err();
        assert!(
            problem.ends_with("read one of its interfaces: one"),
            "{problem}"
        );
    }
}
