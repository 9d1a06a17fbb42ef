//! Tools over the files of a workspace. What a path may reach is the runtime's to say; what is said of it to a
//! model is decided here.

#![deny(unsafe_code)]
#![deny(clippy::all)]

mod search;
mod text;

use astrid_sdk::prelude::*;
use astrid_sdk::schemars;
use serde::Deserialize;

use search::{Files, Kind};

#[derive(Default)]
pub struct FileTools;

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct ReadFileArgs {
    /// The file, from the working folder on.
    pub file_path: String,
    /// The first line to read, from 1.
    pub start_line: Option<usize>,
    /// The last line to read.
    pub end_line: Option<usize>,
}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct WriteFileArgs {
    /// The file, from the working folder on. Its folder must be there.
    pub file_path: String,
    /// Everything that the file shall hold.
    pub content: String,
}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct ReplaceInFileArgs {
    /// The file, from the working folder on.
    pub file_path: String,
    /// The text to replace, exactly as it stands in the file, with enough around it to be there once.
    pub old_string: String,
    /// The text to put in its place.
    pub new_string: String,
}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct ListDirectoryArgs {
    /// The folder, from the working folder on; `.` is the working folder.
    pub dir_path: String,
}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct GrepSearchArgs {
    /// The text to look for, as it is: no regular expression.
    pub pattern: String,
    /// The folder to look in, `.` where it is left out.
    pub dir_path: Option<String>,
}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct CreateDirectoryArgs {
    /// The folder to make; what is missing above it is made too.
    pub dir_path: String,
}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct DeleteFileArgs {
    /// The file to delete.
    pub file_path: String,
}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct MoveFileArgs {
    /// The file to move.
    pub source_path: String,
    /// Its new name, which nothing may have yet.
    pub destination_path: String,
}

#[capsule]
impl FileTools {
    /// Read a text file, whole or a range of its lines.
    #[astrid::tool("read_file")]
    pub fn read_file(&self, args: ReadFileArgs) -> Result<String, SysError> {
        let whole = read_text(&args.file_path)?;
        let part = text::lines(&whole, args.start_line, args.end_line)
            .map_err(|problem| about(&args.file_path, &problem))?;
        if !text::fits(part) {
            let count = whole.lines().count();
            let problem =
                format!("it has {count} lines, more than one answer holds; read a range of them");
            return Err(about(&args.file_path, &problem));
        }
        Ok(part.to_string())
    }

    /// Write a file: a new one, or in place of all that it holds. To change a part of one, use replace_in_file.
    #[astrid::tool("write_file", mutable)]
    pub fn write_file(&self, args: WriteFileArgs) -> Result<String, SysError> {
        write_text(&args.file_path, &args.content)?;
        Ok(format!(
            "Wrote {} bytes to {}.",
            args.content.len(),
            args.file_path
        ))
    }

    /// Replace a text in a file that stands there exactly once. The way to change a file.
    #[astrid::tool("replace_in_file", mutable)]
    pub fn replace_in_file(&self, args: ReplaceInFileArgs) -> Result<String, SysError> {
        let old = read_text(&args.file_path)?;
        let new = text::replace_once(&old, &args.old_string, &args.new_string)
            .map_err(|problem| about(&args.file_path, &problem))?;
        write_text(&args.file_path, &new)?;
        Ok(format!("Replaced it in {}.", args.file_path))
    }

    /// List what is in a folder, one name a line; the name of a folder ends in a slash.
    #[astrid::tool("list_directory")]
    pub fn list_directory(&self, args: ListDirectoryArgs) -> Result<String, SysError> {
        let folder = &args.dir_path;
        let entries = fs::read_dir(folder).map_err(|error| explain(folder, &error))?;
        let names: Vec<String> = entries
            .map(|entry| {
                let name = entry.file_name().to_string();
                let is_folder =
                    fs::metadata(&text::join(folder, &name)).is_ok_and(|found| found.is_dir());
                if is_folder { format!("{name}/") } else { name }
            })
            .collect();
        let listing = if names.is_empty() {
            format!("{folder} is empty.")
        } else {
            names.join("\n")
        };
        if text::fits(&listing) {
            Ok(listing)
        } else {
            Err(about(
                folder,
                "the names in it are more than one answer holds",
            ))
        }
    }

    /// Find a text in all files below a folder. Answers `path:line:text` for each line that holds it.
    #[astrid::tool("grep_search")]
    pub fn grep_search(&self, args: GrepSearchArgs) -> Result<String, SysError> {
        let folder = args.dir_path.as_deref().unwrap_or(".");
        if args.pattern.is_empty() {
            return Err(about(folder, "the pattern is empty: say what to look for"));
        }
        fs::read_dir(folder).map_err(|error| explain(folder, &error))?;
        Ok(search::search(&Workspace, folder, &args.pattern))
    }

    /// Make a folder.
    #[astrid::tool("create_directory", mutable)]
    pub fn create_directory(&self, args: CreateDirectoryArgs) -> Result<String, SysError> {
        fs::create_dir_all(&args.dir_path).map_err(|error| explain(&args.dir_path, &error))?;
        Ok(format!("{} is there.", args.dir_path))
    }

    /// Delete a file. A folder is not deleted.
    #[astrid::tool("delete_file", mutable)]
    pub fn delete_file(&self, args: DeleteFileArgs) -> Result<String, SysError> {
        check_file(&args.file_path)?;
        fs::remove_file(&args.file_path).map_err(|error| explain(&args.file_path, &error))?;
        Ok(format!("Deleted {}.", args.file_path))
    }

    /// Move a file, or give it another name. Nothing is overwritten.
    #[astrid::tool("move_file", mutable)]
    pub fn move_file(&self, args: MoveFileArgs) -> Result<String, SysError> {
        check_file(&args.source_path)?;
        let target = &args.destination_path;
        if fs::symlink_metadata(target).is_ok() {
            return Err(about(target, "something has that name already"));
        }
        fs::rename(&args.source_path, target).map_err(|error| explain(target, &error))?;
        Ok(format!("Moved {} to {target}.", args.source_path))
    }
}

/// The files that the runtime lets this capsule reach.
struct Workspace;

impl Files for Workspace {
    fn kind(&self, path: &str) -> Option<Kind> {
        let found = fs::symlink_metadata(path).ok()?;
        Some(if found.is_dir() {
            Kind::Folder
        } else if found.is_file() {
            Kind::File {
                size_bytes: found.len(),
            }
        } else {
            Kind::Other
        })
    }

    fn list(&self, path: &str) -> Option<Vec<String>> {
        Some(
            fs::read_dir(path)
                .ok()?
                .map(|entry| entry.file_name().to_string())
                .collect(),
        )
    }

    fn read(&self, path: &str) -> Option<Vec<u8>> {
        fs::read(path).ok()
    }
}

fn read_text(path: &str) -> Result<String, SysError> {
    let bytes = fs::read(path).map_err(|error| explain(path, &error))?;
    String::from_utf8(bytes).map_err(|_| about(path, "it is no text"))
}

fn write_text(path: &str, content: &str) -> Result<(), SysError> {
    fs::write(path, content.as_bytes()).map_err(|error| explain(path, &error))
}

/// A folder has its own tools; what is no folder may be deleted and moved, a link as well.
fn check_file(path: &str) -> Result<(), SysError> {
    let found = fs::symlink_metadata(path).map_err(|error| explain(path, &error))?;
    if found.is_dir() {
        Err(about(path, "it is a folder"))
    } else {
        Ok(())
    }
}

/// A host's refusal in words that a model can act on.
fn explain(path: &str, error: &SysError) -> SysError {
    let SysError::HostError(code) = error else {
        return about(path, &error.to_string());
    };
    about(path, explain_code(code))
}

fn explain_code(code: &str) -> &str {
    const WORDS: [(&str, &str); 11] = [
        ("NotFound", "it is not there, or its folder is not"),
        ("CapabilityDenied", "this tool may not use it"),
        (
            "BoundaryEscape",
            "a link on the way leads out of the working folder",
        ),
        (
            "InvalidPath",
            "that is no path: `..` and control characters are not allowed",
        ),
        ("IsDirectory", "it is a folder"),
        ("NotDirectory", "it, or something on the way, is no folder"),
        (
            "TooLarge",
            "it is larger than 10 MiB, or has more than 4096 names",
        ),
        ("AlreadyExists", "something has that name already"),
        (
            "CrossVfs",
            "a file cannot be moved from one scheme to another",
        ),
        ("Quota", "there is no room for it"),
        ("Access", "the system does not allow it"),
    ];
    WORDS
        .iter()
        .find(|(name, _)| code.contains(name))
        .map_or(code, |(_, words)| words)
}

fn about(path: &str, problem: &str) -> SysError {
    SysError::ApiError(format!("{path}: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_in_words_with_the_path() {
        let error = SysError::HostError("ErrorCode::NotFound".to_string());
        let told = explain("src/x", &error).to_string();
        assert!(
            told.ends_with("src/x: it is not there, or its folder is not"),
            "{told}"
        );
        assert_eq!(
            explain_code("ErrorCode::CapabilityDenied"),
            "this tool may not use it"
        );
        assert_eq!(explain_code("Something new"), "Something new");
    }
}
