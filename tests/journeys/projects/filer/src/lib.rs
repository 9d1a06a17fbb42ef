#![deny(unsafe_code)]
#![deny(clippy::all)]

use astrid_sdk::fs::{File, OpenMode};
use astrid_sdk::prelude::*;
use astrid_sdk::schemars;
use serde::Deserialize;

#[derive(Default)]
pub struct Filer;

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct Below {
    /// The folder to work in, which must not be there yet.
    pub path: String,
}

/// What a call gave: `ok`, or the error's case.
fn told<T>(result: Result<T, SysError>) -> String {
    match result {
        Ok(_) => "ok".to_string(),
        Err(SysError::HostError(code)) => code,
        Err(other) => other.to_string(),
    }
}

#[capsule]
impl Filer {
    /// Call every file function below a folder.
    #[astrid::tool("exercise", mutable)]
    pub fn exercise(&self, args: Below) -> Result<Vec<String>, SysError> {
        let at = |name: &str| format!("{}/{name}", args.path);
        let mut lines = Vec::new();
        fs::create_dir_all(&at("a/b"))?;
        fs::create_dir(&at("c"))?;
        fs::write(&at("one"), b"first")?;
        fs::append(&at("one"), b" second")?;
        fs::copy(&at("one"), &at("copy"))?;
        fs::rename(&at("copy"), &at("a/moved"))?;
        fs::hard_link(&at("one"), &at("linked"))?;
        lines.push(fs::read_to_string(&at("linked"))?);
        lines.push(fs::canonicalize(&at("./a//moved"))?);
        lines.push(told(fs::read_link(&at("one"))));
        lines.push(fs::exists(&at("gone"))?.to_string());

        let file = File::open_mode(&at("one"), OpenMode::ReadWrite)?;
        lines.push(file.write_at(0, b"FIRST")?.to_string());
        lines.push(String::from_utf8_lossy(&file.read_at(3, 6)?).into_owned());
        file.set_len(8)?;
        file.sync_data()?;
        file.sync_all()?;
        let found = file.metadata()?;
        lines.push(format!(
            "{} {} {}",
            found.len(),
            found.is_file(),
            found.modified().is_ok()
        ));
        drop(file);
        let created = File::create(&at("made"))?;
        created.write_at(2, b"x")?;
        lines.push(told(created.read_at(0, 1)));
        let adding = File::open_mode(&at("made"), OpenMode::Append)?;
        adding.write_at(0, b"y")?;
        lines.push(format!("{:?}", fs::read(&at("made"))?));
        lines.push(told(File::open(&at("gone"))));

        let mut open = Vec::new();
        while let Ok(one) = File::open(&at("one")) {
            open.push(one);
        }
        lines.push(format!(
            "{} more, then {}",
            open.len(),
            told(File::open(&at("one")))
        ));
        drop(open);
        lines.push(told(File::open(&at("one"))));

        let names: Vec<String> = fs::read_dir(&args.path)?
            .map(|entry| entry.file_name().to_string())
            .collect();
        lines.push(names.join(" "));
        lines.push(format!("{}", fs::metadata(&at("a"))?.is_dir()));
        lines.push(format!(
            "{}",
            fs::symlink_metadata(&at("one"))?.is_symlink()
        ));
        lines.push(told(fs::remove_file(&at("a"))));
        fs::remove_file(&at("made"))?;
        lines.push(fs::remove_dir_all(&args.path)?.to_string());
        lines.push(told(fs::metadata(&args.path)));
        lines.push(told(fs::rename("cwd://x", "home://x")));
        lines.push(told(fs::read("home://.config/env/filer.env.json")));
        Ok(lines)
    }
}
