//! What is made of the answers, as pure functions over their text. Every answer is untrusted.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

const MAX_TOOLS: usize = 256;
const MAX_SHADOWED: usize = 256;
const MAX_NAME_CHARS: usize = 200;

/// A tool as a model is shown it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    name: String,
    description: String,
    input_schema: Value,
}

/// A description that lost against an earlier one of the same name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shadowed {
    pub name: String,
    pub source_id: String,
}

/// Tools by name, and what lost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Collection {
    #[serde(serialize_with = "as_list", deserialize_with = "from_list")]
    tools: BTreeMap<String, Tool>,
    shadowed: Vec<Shadowed>,
}

impl Collection {
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    pub fn shadowed(&self) -> &[Shadowed] {
        &self.shadowed
    }

    /// Take the answer of one capsule: `{"tools": [...]}`, or the same below `data`. Anything else is ignored.
    pub fn take(&mut self, payload: &str, source_id: &str) {
        let Ok(mut answer) = serde_json::from_str::<Value>(payload) else {
            return;
        };
        if answer.get("tools").is_none()
            && let Some(data) = answer.get_mut("data")
        {
            answer = data.take();
        }
        let Some(Value::Array(rows)) = answer.get_mut("tools").map(Value::take) else {
            return;
        };
        for row in rows.into_iter().take(MAX_TOOLS) {
            if let Some(tool) = read_tool(row) {
                self.add(tool, source_id);
            }
        }
    }

    fn add(&mut self, tool: Tool, source_id: &str) {
        if self.tools.contains_key(&tool.name) {
            if self.shadowed.len() < MAX_SHADOWED {
                self.shadowed.push(Shadowed {
                    name: tool.name,
                    source_id: source_id.to_string(),
                });
            }
        } else if self.tools.len() < MAX_TOOLS {
            self.tools.insert(tool.name.clone(), tool);
        }
    }
}

/// Whether a text can be one segment of a topic and nothing else.
pub fn is_segment(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 128
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
}

fn read_tool(row: Value) -> Option<Tool> {
    let Value::Object(mut row) = row else {
        return None;
    };
    let Some(Value::String(name)) = row.remove("name") else {
        return None;
    };
    if !is_tool_name(&name) {
        return None;
    }
    let description = match row.remove("description") {
        Some(Value::String(text)) => text,
        _ => String::new(),
    };
    Some(Tool {
        name,
        description,
        input_schema: normal_schema(row.remove("input_schema")),
    })
}

/// The rule of the router: a name that it would turn away is not shown to a model.
fn is_tool_name(name: &str) -> bool {
    !name.is_empty()
        && name != "result"
        && name.chars().count() <= MAX_NAME_CHARS
        && name
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | ':'))
}

/// A schema as strict clients take it: an object with `properties`, even where it has none.
fn normal_schema(schema: Option<Value>) -> Value {
    let mut schema = match schema {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    };
    schema
        .entry("type")
        .or_insert_with(|| Value::String("object".to_string()));
    if schema["type"] == "object" {
        schema
            .entry("properties")
            .or_insert_with(|| Value::Object(Map::new()));
    }
    Value::Object(schema)
}

fn as_list<S: serde::Serializer>(
    tools: &BTreeMap<String, Tool>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(tools.values())
}

fn from_list<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Tool>, D::Error> {
    let tools = Vec::<Tool>::deserialize(deserializer)?;
    Ok(tools
        .into_iter()
        .map(|tool| (tool.name.clone(), tool))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn taken(answers: &[(&str, &str)]) -> Value {
        let mut collection = Collection::default();
        for (payload, source_id) in answers {
            collection.take(payload, source_id);
        }
        serde_json::to_value(collection).unwrap()
    }

    #[test]
    fn tools_come_in_the_order_of_their_names() {
        let first = r#"{"tools":[{"name":"z","description":"Z."}]}"#;
        let second = r#"{"data":{"tools":[{"name":"a","description":"A.","input_schema":{"type":"string"}}]}}"#;
        assert_eq!(
            taken(&[(first, "1"), (second, "2")]),
            json!({
                "tools": [
                    { "name": "a", "description": "A.", "input_schema": { "type": "string" } },
                    { "name": "z", "description": "Z.",
                      "input_schema": { "type": "object", "properties": {} } },
                ],
                "shadowed": [],
            })
        );
    }

    #[test]
    fn the_first_of_a_name_wins_and_the_others_are_told() {
        let mine = r#"{"tools":[{"name":"a","description":"mine"}]}"#;
        let yours = r#"{"tools":[{"name":"a","description":"yours"},{"name":"b"}]}"#;
        let value = taken(&[(mine, "1"), (yours, "2")]);
        assert_eq!(value["tools"][0]["description"], "mine");
        assert_eq!(value["tools"][1]["name"], "b");
        assert_eq!(
            value["shadowed"],
            json!([{ "name": "a", "source_id": "2" }])
        );
    }

    #[test]
    fn a_tool_without_arguments_has_properties() {
        let value = taken(&[(
            r#"{"tools":[{"name":"a","input_schema":{"type":"object"}}]}"#,
            "1",
        )]);
        assert_eq!(
            value["tools"][0]["input_schema"],
            json!({ "type": "object", "properties": {} })
        );
    }

    #[test]
    fn what_is_no_description_is_ignored() {
        for payload in [
            "",
            "null",
            "[]",
            r#"{"tools":{}}"#,
            r#"{"data":[]}"#,
            r#"{"tools":[1,{},{"name":1},{"name":""},{"name":"a.b"},{"name":"result"}]}"#,
        ] {
            assert_eq!(
                taken(&[(payload, "1")]),
                json!({ "tools": [], "shadowed": [] }),
                "{payload}"
            );
        }
    }

    #[test]
    fn there_is_an_end_to_it() {
        let rows: Vec<Value> = (0..300)
            .map(|n| json!({ "name": format!("t{n}") }))
            .collect();
        let payload = json!({ "tools": rows }).to_string();
        let mut collection = Collection::default();
        collection.take(&payload, "1");
        assert_eq!(collection.tools.len(), MAX_TOOLS);
        for _ in 0..3 {
            collection.take(&payload, "2");
        }
        assert_eq!(collection.shadowed.len(), MAX_SHADOWED);
    }

    #[test]
    fn what_was_kept_comes_back_as_it_was() {
        let mut collection = Collection::default();
        collection.take(r#"{"tools":[{"name":"a"},{"name":"b"},{"name":"a"}]}"#, "1");
        let text = serde_json::to_string(&collection).unwrap();
        assert_eq!(
            serde_json::from_str::<Collection>(&text).unwrap(),
            collection
        );
    }

    #[test]
    fn a_segment_is_one_segment() {
        for good in ["a", "0-9_z", &"x".repeat(128)] {
            assert!(is_segment(good), "{good}");
        }
        for bad in ["", "a.b", "*", "ä", "a b", &"x".repeat(129)] {
            assert!(!is_segment(bad), "{bad}");
        }
    }
}
