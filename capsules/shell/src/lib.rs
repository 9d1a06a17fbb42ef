//! Tools that run commands: each is looked at, asked for, and only then started. What a command may reach is the
//! runtime's to say; what is asked, and what a model is told of the end, is decided here.

#![deny(unsafe_code)]
#![deny(clippy::all)]

mod background;
mod command;

use astrid_sdk::prelude::*;
use astrid_sdk::process::{self, ExitInfo};
use astrid_sdk::schemars;
use serde::{Deserialize, Serialize};

use command::{action_of, blocked, shortened};

/// What the runtime takes as a resource to ask about.
const MAX_COMMAND_CHARS: usize = 4096;

#[derive(Default)]
pub struct Shell;

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct CommandArgs {
    /// The command for bash, exactly as it shall run.
    pub command: String,
}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct ProcessArgs {
    /// The id that spawn_background_process gave.
    pub id: u64,
}

/// What a background process said since it was last asked, and how it ended, where it has.
#[derive(Serialize)]
pub struct Said {
    running: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<String>,
    stdout: String,
    stderr: String,
}

#[capsule]
impl Shell {
    /// Run a command in bash and wait for its end. It starts in the working folder, which it can change; of the rest
    /// of the machine it changes nothing. A person is asked first. Returns what it wrote to stdout, or to stderr
    /// where that is all; where it fails, the exit code and both. For what goes on running, use
    /// spawn_background_process.
    #[astrid::tool("run_shell_command", mutable)]
    pub fn run_shell_command(&self, args: CommandArgs) -> Result<String, SysError> {
        let command = admitted(&args.command)?;
        let output = process::spawn("bash", &["-c", command]).map_err(|error| explain(&error))?;
        let (out, errors) = (shortened(&output.stdout), shortened(&output.stderr));
        if output.exit.success() {
            return Ok(if out.is_empty() { errors } else { out });
        }
        Err(said(&format!(
            "Command failed ({}): {}",
            ending(output.exit),
            both(&errors, &out)
        )))
    }

    /// Start a command that goes on running, such as a server, and return at once with its id. A person is asked
    /// first. read_process_logs tells what it says, kill_process ends it; it ends with the daemon at the latest.
    #[astrid::tool("spawn_background_process", mutable)]
    pub fn spawn_background_process(&self, args: CommandArgs) -> Result<String, SysError> {
        let command = admitted(&args.command)?;
        let started = process::Command::new("bash")
            .args(["-c", command])
            .spawn_background()
            .map_err(|error| explain(&error))?;
        // Nobody will write to it. A host that cannot close it has not opened it.
        let _ = started.close_stdin();
        let id = background::keep(started)?;
        Ok(format!(
            "Background process started with id: {id}. read_process_logs tells what it says, kill_process ends it."
        ))
    }

    /// Read what a background process wrote since it was last read, and whether it still runs. Nobody is asked.
    #[astrid::tool("read_process_logs")]
    pub fn read_process_logs(&self, args: ProcessArgs) -> Result<Said, SysError> {
        let logs = background::with(args.id, |process| process.read_logs())?;
        Ok(Said {
            running: logs.running,
            ended: logs.exit.map(ending),
            stdout: shortened(&logs.stdout),
            stderr: shortened(&logs.stderr),
        })
    }

    /// End a background process with everything that it started, and return what it had not been asked for yet.
    /// Nobody is asked.
    #[astrid::tool("kill_process", mutable)]
    pub fn kill_process(&self, args: ProcessArgs) -> Result<Said, SysError> {
        let end = background::with(args.id, |process| process.kill())?;
        background::forget(args.id);
        Ok(Said {
            running: false,
            ended: end.exit.map(ending),
            stdout: shortened(&end.stdout),
            stderr: shortened(&end.stderr),
        })
    }
}

/// The command as it may run: not empty, not one that destroys a machine, and approved.
fn admitted(text: &str) -> Result<&str, SysError> {
    let command = text.trim();
    if command.is_empty() {
        return Err(said("Command cannot be empty"));
    }
    if command.chars().count() > MAX_COMMAND_CHARS {
        return Err(said(&format!(
            "Command is longer than the {MAX_COMMAND_CHARS} characters that a person can be asked about: write it into \
             a file, and run that"
        )));
    }
    if let Some(reason) = blocked(command) {
        return Err(said(&format!("Command blocked: {reason}")));
    }
    let approved = approval::request(&action_of(command), command).map_err(|error| {
        said(&format!(
            "nobody could be asked whether '{}' may run: {error}",
            shortened(command)
        ))
    })?;
    if approved {
        Ok(command)
    } else {
        Err(said(&format!(
            "Command '{}' was not approved by user",
            shortened(command)
        )))
    }
}

/// What a failed command wrote: why, then what it had found until then.
fn both(errors: &str, out: &str) -> String {
    match (errors.trim().is_empty(), out.trim().is_empty()) {
        (true, _) => out.to_owned(),
        (false, true) => errors.to_owned(),
        (false, false) => format!("{}\nstdout:\n{out}", errors.trim_end()),
    }
}

fn ending(exit: ExitInfo) -> String {
    match (exit.exit_code, exit.signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no exit code".to_owned(),
    }
}

/// A host's refusal in words that a model can act on.
fn explain(error: &SysError) -> SysError {
    const WORDS: [(&str, &str); 5] = [
        (
            "Quota",
            "as many background processes as there may be run already: end one with kill_process",
        ),
        ("Cancelled", "The command was cancelled"),
        (
            "InvalidInput",
            "The command could not be started: the working folder is gone, bash or bubblewrap is missing here, or it \
             is no text for a command line; the capsule's log says which",
        ),
        ("CapabilityDenied", "This tool may not run commands here"),
        (
            "Closed",
            "The process has ended; its last words were told before",
        ),
    ];
    let SysError::HostError(code) = error else {
        return said(&error.to_string());
    };
    let found = WORDS.iter().find(|(name, _)| code.contains(name));
    said(found.map_or(code, |(_, words)| words))
}

fn said(text: &str) -> SysError {
    SysError::ApiError(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_by_code_or_signal() {
        let end = |exit_code, signal| ending(ExitInfo { exit_code, signal });
        assert_eq!(end(Some(3), None), "exit code 3");
        assert_eq!(end(None, Some(9)), "signal 9");
        assert_eq!(end(None, None), "no exit code");
    }

    #[test]
    fn a_failure_tells_both_streams() {
        assert_eq!(both("why\n", "out\n"), "why\nstdout:\nout\n");
        assert_eq!(both(" \n", "out\n"), "out\n");
        assert_eq!(both("why\n", ""), "why\n");
    }

    #[test]
    fn a_refusal_is_told_in_words() {
        let told = |code: &str| explain(&SysError::HostError(code.to_owned())).to_string();
        assert!(told("ErrorCode::Quota").contains("kill_process"));
        assert!(told("ErrorCode::Unknown(\"the disk is full\")").contains("the disk is full"));
    }
}
