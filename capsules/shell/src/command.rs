//! What is decided from the text of a command alone. The walls around a command are the runtime's; the list here only
//! keeps a model from what nobody means, with words that say why.

/// What one answer holds of a text, half from its beginning and half from its end.
const MAX_ANSWER_BYTES: usize = 128 * 1024;
/// What a person is shown as the action, at most.
const MAX_ACTION_CHARS: usize = 200;
/// What makes more than one plain command of a text.
const COMPOUND: &[char] = &[
    ';', '&', '|', '<', '>', '`', '$', '(', ')', '{', '}', '\\', '\n', '\r', '=', '\'', '"',
];
/// Words before a command that leave it what it is.
const PREFIXES: [&str; 8] = [
    "sudo", "doas", "env", "exec", "nohup", "time", "nice", "command",
];
const SYSTEM: [&str; 18] = [
    "/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/opt", "/proc", "/root",
    "/run", "/sbin", "/srv", "/sys", "/usr", "/var", "~",
];

/// What a person is asked to approve: of a plain command its program and the verb after it, so that a rule can name
/// them; of everything else all of it, so that no rule for its beginning covers the rest.
pub fn action_of(command: &str) -> String {
    if command.contains(COMPOUND) {
        return command.chars().take(MAX_ACTION_CHARS).collect();
    }
    let mut words = command.split_whitespace();
    let program = words.next().unwrap_or_default();
    let action = match words.next() {
        Some(verb) if is_verb(verb) => format!("{program} {verb}"),
        _ => program.to_owned(),
    };
    action.chars().take(MAX_ACTION_CHARS).collect()
}

fn is_verb(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_lowercase())
        && word
            .chars()
            .all(|one| one.is_ascii_lowercase() || one.is_ascii_digit() || one == '-')
}

/// Why a command never runs, whoever would approve it; None where nothing speaks against asking.
pub fn blocked(command: &str) -> Option<&'static str> {
    let packed: String = command.chars().filter(|one| !one.is_whitespace()).collect();
    if packed.contains(":(){:|:&};:") {
        return Some("it starts itself without end");
    }
    command
        .replace("${HOME}", "$HOME")
        .split([';', '&', '|', '\n', '(', ')', '{', '}', '`'])
        .find_map(blocked_alone)
}

/// As `blocked`, for one command of several.
fn blocked_alone(command: &str) -> Option<&'static str> {
    let words: Vec<&str> = command
        .split_whitespace()
        .map(|word| word.trim_matches(['"', '\'']))
        .skip_while(|word| PREFIXES.contains(word) || word.starts_with('-') || word.contains('='))
        .collect();
    let (program, arguments) = words.split_first()?;
    let name = program.rsplit('/').next().unwrap_or(program);
    let is_recursive = arguments.iter().any(|word| {
        *word == "--recursive"
            || (word.starts_with('-') && !word.starts_with("--") && word.contains(['r', 'R']))
    });
    let meets_system = arguments.iter().any(|word| is_system(word));
    let writes_device = words
        .iter()
        .any(|word| word.starts_with("of=/dev/") || word.starts_with(">/dev/sd"))
        || command
            .split('>')
            .skip(1)
            .any(|target| is_disk(target.trim_start()));
    match name {
        "rm" if is_recursive && meets_system => Some(
            "it removes what the machine needs; folders below the working folder can be removed",
        ),
        "chmod" | "chown" | "chgrp" if is_recursive && meets_system => {
            Some("it changes the owners or rights of what the machine needs")
        }
        "shutdown" | "reboot" | "halt" | "poweroff" => Some("it stops the machine"),
        _ if name == "mkfs" || name.starts_with("mkfs.") || name == "wipefs" => {
            Some("it makes a disk empty")
        }
        _ if writes_device => Some("it writes over a device"),
        _ => None,
    }
}

/// Whether a path is one that the machine cannot be without, or all that lies in it.
fn is_system(word: &str) -> bool {
    let bare = word.trim_end_matches('*');
    let bare = if bare.len() > 1 {
        bare.trim_end_matches('/')
    } else {
        bare
    };
    let bare = if bare.is_empty() { "/" } else { bare };
    word.starts_with(['/', '~', '$']) && (SYSTEM.contains(&bare) || bare == "$HOME")
}

fn is_disk(target: &str) -> bool {
    ["/dev/sd", "/dev/nvme", "/dev/vd", "/dev/hd", "/dev/mmcblk"]
        .iter()
        .any(|disk| target.starts_with(disk))
}

/// The text, without its middle where it is long: the message that carries it has a bound.
pub fn shortened(text: &str) -> String {
    if text.len() <= MAX_ANSWER_BYTES {
        return text.to_owned();
    }
    let head = floor(text, MAX_ANSWER_BYTES / 2);
    let tail = floor(text, text.len() - MAX_ANSWER_BYTES / 2);
    format!(
        "{}\n... {} bytes left out ...\n{}",
        &text[..head],
        tail - head,
        &text[tail..]
    )
}

/// The place of a character at or before `at`.
fn floor(text: &str, at: usize) -> usize {
    (0..=at)
        .rev()
        .find(|place| text.is_char_boundary(*place))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_command_is_named_by_its_first_words() {
        assert_eq!(action_of("git push origin main"), "git push");
        assert_eq!(action_of("ls -la"), "ls");
        assert_eq!(action_of("make"), "make");
        assert_eq!(action_of("cat ./notes"), "cat");
        assert_eq!(action_of("python3 Main.py"), "python3");
    }

    #[test]
    fn anything_else_is_named_whole() {
        for command in [
            "git push; rm x",
            "git push && x",
            "git push $(x)",
            "git push\nrm x",
            "A=1 git push",
            "git push 'x'",
        ] {
            assert_eq!(action_of(command), command);
        }
        assert_eq!(
            action_of(&format!("x;{}", "y".repeat(500))).chars().count(),
            MAX_ACTION_CHARS
        );
    }

    #[test]
    fn what_destroys_a_machine_is_blocked() {
        for command in [
            "rm -rf /",
            "rm -rf /*",
            "rm -fr -- /",
            "rm -r --force /etc/",
            "sudo rm -R /usr",
            "cd x && rm -rf ~",
            "rm -rf \"$HOME\"",
            "rm -rf ${HOME}",
            "true; /bin/rm --recursive /var/*",
            "chmod -R 777 /",
            "chown -R me /home",
            "mkfs.ext4 /dev/sda1",
            "wipefs -a x",
            "dd if=/dev/zero of=/dev/sda",
            "echo x > /dev/sda",
            "cat x >/dev/nvme0n1",
            ":(){ :|:& };:",
            "shutdown -h now",
            "sudo -n reboot",
        ] {
            assert!(blocked(command).is_some(), "{command}");
        }
    }

    #[test]
    fn what_only_looks_like_it_is_asked_for() {
        for command in [
            "rm -rf target",
            "rm -rf ./build/*",
            "rm -rf /tmp/x",
            "rm /etc/x",
            "rm -rf /home/me/project/target",
            "chmod -R u+w src",
            "echo rm -rf /",
            "grep -r reboot .",
            "cargo test 2> /dev/null",
            "ls /",
            "git rm -r x",
        ] {
            assert_eq!(blocked(command), None, "{command}");
        }
    }

    #[test]
    fn a_long_text_loses_its_middle() {
        assert_eq!(shortened("short"), "short");
        let text = format!("{}{}", "a".repeat(200_000), "é".repeat(100_000));
        let cut = shortened(&text);
        assert!(cut.len() < MAX_ANSWER_BYTES + 64);
        assert!(cut.starts_with("aaa") && cut.ends_with("é") && cut.contains(" bytes left out "));
    }
}
