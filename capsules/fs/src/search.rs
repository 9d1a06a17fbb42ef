//! Looking for a text in every file below a folder, within bounds.

use crate::text::{fits, join};

const MAX_MATCHES: usize = 200;
const MAX_FILES: usize = 5000;
const MAX_DEPTH: usize = 32;
const MAX_FILE_BYTES: u64 = 1024 * 1024;
const MAX_LINE_CHARACTERS: usize = 300;
/// Folders of tools, in which nobody looks for the own text.
const SKIPPED: [&str; 3] = [".git", "node_modules", "target"];

/// What stands at a path. A link is `Other`: a search follows none, so it ends.
#[derive(Clone, Copy)]
pub enum Kind {
    File { size_bytes: u64 },
    Folder,
    Other,
}

/// The files that are searched.
pub trait Files {
    fn kind(&self, path: &str) -> Option<Kind>;
    fn list(&self, path: &str) -> Option<Vec<String>>;
    fn read(&self, path: &str) -> Option<Vec<u8>>;
}

/// `path:line:text` for each line with `pattern` in it, in the order of the paths, and a last line where the search
/// did not see everything. What cannot be read, is no text or is large is passed over.
pub fn search(files: &impl Files, folder: &str, pattern: &str) -> String {
    let mut found = Found {
        lines: Vec::new(),
        files: 0,
        limit: None,
    };
    found.below(files, folder, pattern, MAX_DEPTH);
    if let Some(limit) = found.limit {
        found.lines.push(format!(
            "(stopped at {limit}; search a smaller folder or a longer text)"
        ));
    } else if found.lines.is_empty() {
        return format!("No line with {pattern:?} in {} files.", found.files);
    }
    let mut text = found.lines.join("\n");
    while !fits(&text) {
        found.lines.truncate(found.lines.len() / 2);
        text = format!("{}\n(cut: the answer was too long)", found.lines.join("\n"));
    }
    text
}

struct Found {
    lines: Vec<String>,
    files: usize,
    limit: Option<String>,
}

impl Found {
    fn below(&mut self, files: &impl Files, folder: &str, pattern: &str, depth: usize) {
        let mut names = files.list(folder).unwrap_or_default();
        names.sort();
        for name in names {
            let path = join(folder, &name);
            match files.kind(&path) {
                Some(Kind::File { size_bytes }) if size_bytes <= MAX_FILE_BYTES => {
                    self.within(files, &path, pattern);
                }
                Some(Kind::Folder) if depth > 0 && !SKIPPED.contains(&name.as_str()) => {
                    self.below(files, &path, pattern, depth - 1);
                }
                _ => {}
            }
            if self.limit.is_some() {
                return;
            }
        }
    }

    fn within(&mut self, files: &impl Files, path: &str, pattern: &str) {
        self.files += 1;
        if self.files > MAX_FILES {
            self.limit = Some(format!("{MAX_FILES} files"));
            return;
        }
        let Some(Ok(text)) = files.read(path).map(String::from_utf8) else {
            return;
        };
        for (number, line) in text.lines().enumerate() {
            if line.contains(pattern) {
                let shown: String = line.chars().take(MAX_LINE_CHARACTERS).collect();
                self.lines.push(format!("{path}:{}:{shown}", number + 1));
                if self.lines.len() >= MAX_MATCHES {
                    self.limit = Some(format!("{MAX_MATCHES} matches"));
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Files by path; `None` is a link.
    struct Memory(BTreeMap<String, Option<Vec<u8>>>);

    impl Memory {
        fn of(files: &[(&str, &[u8])]) -> Self {
            Self(
                files
                    .iter()
                    .map(|(path, data)| (path.to_string(), Some(data.to_vec())))
                    .collect(),
            )
        }
    }

    impl Files for Memory {
        fn kind(&self, path: &str) -> Option<Kind> {
            match self.0.get(path) {
                Some(Some(data)) => Some(Kind::File {
                    size_bytes: data.len() as u64,
                }),
                Some(None) => Some(Kind::Other),
                None => Some(Kind::Folder),
            }
        }

        fn list(&self, folder: &str) -> Option<Vec<String>> {
            let start = if folder == "." {
                String::new()
            } else {
                format!("{folder}/")
            };
            let mut names: Vec<String> = self
                .0
                .keys()
                .filter_map(|path| path.strip_prefix(&start))
                .map(|rest| rest.split('/').next().unwrap_or(rest).to_string())
                .collect();
            names.dedup();
            Some(names)
        }

        fn read(&self, path: &str) -> Option<Vec<u8>> {
            self.0.get(path).cloned().flatten()
        }
    }

    #[test]
    fn every_line_that_holds_the_text_is_found_with_its_place() {
        let files = Memory::of(&[
            ("b", b"x\nfind me\n"),
            ("a/c", b"find me and find me"),
            ("d", b"no"),
        ]);
        assert_eq!(
            search(&files, ".", "find me"),
            "a/c:1:find me and find me\nb:2:find me"
        );
        assert_eq!(search(&files, "a", "find me"), "a/c:1:find me and find me");
        assert_eq!(
            search(&files, ".", "nowhere"),
            "No line with \"nowhere\" in 3 files."
        );
    }

    #[test]
    fn what_is_no_text_or_nobodys_own_is_passed_over() {
        let mut files = Memory::of(&[
            (".git/a", b"x"),
            ("node_modules/m/a", b"x"),
            ("bin", b"x\xff"),
            ("ok", b"x"),
        ]);
        files.0.insert("link".to_string(), None);
        files.0.insert(
            "large".to_string(),
            Some(vec![b'x'; MAX_FILE_BYTES as usize + 1]),
        );
        assert_eq!(search(&files, ".", "x"), "ok:1:x");
    }

    #[test]
    fn it_stops_at_its_bounds_and_says_so() {
        let many = "x\n".repeat(MAX_MATCHES + 1);
        let answer = search(&Memory::of(&[("a", many.as_bytes())]), ".", "x");
        assert_eq!(answer.lines().count(), MAX_MATCHES + 1);
        assert!(
            answer.ends_with("(stopped at 200 matches; search a smaller folder or a longer text)")
        );
        let names: Vec<String> = (0..=MAX_FILES)
            .map(|number| format!("f{number:05}"))
            .collect();
        let files: Vec<(&str, &[u8])> = names
            .iter()
            .map(|name| (name.as_str(), b"y".as_slice()))
            .collect();
        assert!(search(&Memory::of(&files), ".", "x").starts_with("(stopped at 5000 files"));
        let deep = format!("{}f", "d/".repeat(MAX_DEPTH + 1));
        assert!(search(&Memory::of(&[(&deep, b"x")]), ".", "x").starts_with("No line"));
    }

    #[test]
    fn a_long_line_is_cut() {
        let long = "x".repeat(1000);
        let answer = search(&Memory::of(&[("a", long.as_bytes())]), ".", "x");
        assert_eq!(answer.chars().count(), "a:1:".len() + MAX_LINE_CHARACTERS);
    }
}
